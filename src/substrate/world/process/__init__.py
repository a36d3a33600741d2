"""The processes of a world: its sandbox, its init, the wait for the command, its output."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.process import broker_socket as broker_socket
    from substrate.world.process import host_masks as host_masks
    from substrate.world.process import host_services as host_services
    from substrate.world.process import limits as limits
    from substrate.world.process import pid_space as pid_space
    from substrate.world.process import sandbox as sandbox
    from substrate.world.process import tiers as tiers
    from substrate.world.process import world_init as world_init
    from substrate.world.process.capture import Capturing as Capturing
    from substrate.world.process.hide_git_locks import look_for as look_for
    from substrate.world.process.init_reaper import TICK_S as TICK_S
    from substrate.world.process.init_reaper import Children as Children
    from substrate.world.process.init_reaper import others as others
    from substrate.world.process.limits import Limiter as Limiter
    from substrate.world.process.pid_space import Entrance as Entrance
    from substrate.world.process.pid_space import PidSpace as PidSpace
    from substrate.world.process.refused_writes import Refused as Refused
    from substrate.world.process.refused_writes import RefusedWrites as RefusedWrites
    from substrate.world.process.run_world import Ended as Ended
    from substrate.world.process.run_world import OpenWorld as OpenWorld
    from substrate.world.process.run_world import open_world as open_world
    from substrate.world.process.sandbox import Sandbox as Sandbox
    from substrate.world.process.sandbox import SetupError as SetupError
    from substrate.world.process.sandbox import is_privileged as is_privileged
    from substrate.world.process.sandbox import mount_proc as mount_proc
    from substrate.world.process.sandbox import submounts as submounts
    from substrate.world.process.wait_loop import Limits as Limits
    from substrate.world.process.world_spec import Recipe as Recipe

__getattr__ = lazy_names(
    __name__,
    {
        "capture": "Capturing",
        "hide_git_locks": "look_for",
        "init_reaper": "Children, TICK_S, others",
        "limits": "Limiter",
        "pid_space": "Entrance, PidSpace",
        "refused_writes": "Refused, RefusedWrites",
        "run_world": "Ended, OpenWorld, open_world",
        "sandbox": "Sandbox, SetupError, is_privileged, mount_proc, submounts",
        "wait_loop": "Limits",
        "world_spec": "Recipe",
    },
)
