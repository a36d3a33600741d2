"""Processes: start, fork, identify and end them."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system.process import deferred_work as deferred_work
    from substrate.system.process import die_of_signal as die_of_signal
    from substrate.system.process import fd_channel as fd_channel
    from substrate.system.process import fork_workers as fork_workers
    from substrate.system.process import process as process
    from substrate.system.process import process_identity as process_identity
    from substrate.system.process import process_tree as process_tree
    from substrate.system.process import rlimit_check as rlimit_check
    from substrate.system.process import signals as signals
    from substrate.system.process import spawn as spawn
    from substrate.system.process.fd_channel import Channel as Channel
    from substrate.system.process.fd_channel import ClosedError as ClosedError
    from substrate.system.process.fork_workers import Forked as Forked
    from substrate.system.process.fork_workers import Portions as Portions
    from substrate.system.process.fork_workers import by_weight as by_weight
    from substrate.system.process.fork_workers import can_fork as can_fork
    from substrate.system.process.fork_workers import fork as fork
    from substrate.system.process.fork_workers import processors as processors
    from substrate.system.process.fork_workers import share as share
    from substrate.system.process.gc_pause import uncollected as uncollected
    from substrate.system.process.process import EXIT_NOT_EXECUTABLE as EXIT_NOT_EXECUTABLE
    from substrate.system.process.process import EXIT_NOT_FOUND as EXIT_NOT_FOUND
    from substrate.system.process.process import EXIT_TIMED_OUT as EXIT_TIMED_OUT
    from substrate.system.process.process import KILL_GRACE_S as KILL_GRACE_S
    from substrate.system.process.process import Completed as Completed
    from substrate.system.process.process import Conversation as Conversation
    from substrate.system.process.process import Finished as Finished
    from substrate.system.process.process import Stdio as Stdio
    from substrate.system.process.process import converse as converse
    from substrate.system.process.process import fork_child as fork_child
    from substrate.system.process.process import fork_on_terminal as fork_on_terminal
    from substrate.system.process.process import run as run
    from substrate.system.process.process import spawn_script as spawn_script
    from substrate.system.process.process import start_error as start_error
    from substrate.system.process.process_identity import boot_id as boot_id
    from substrate.system.process.process_identity import pid_alive as pid_alive
    from substrate.system.process.process_identity import pid_namespace as pid_namespace
    from substrate.system.process.process_identity import process_start_token as process_start_token
    from substrate.system.process.thread_fanout import Asked as Asked
    from substrate.system.process.thread_fanout import AtOnce as AtOnce
    from substrate.system.process.worker_pool import map_forked as map_forked

__getattr__ = lazy_names(
    __name__,
    {
        "fd_channel": "Channel, ClosedError",
        "fork_workers": "Forked, Portions, by_weight, can_fork, fork, processors, share",
        "gc_pause": "uncollected",
        "process": (
            "Completed, Conversation, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_TIMED_OUT, "
            "Finished, KILL_GRACE_S, Stdio, converse, fork_child, fork_on_terminal, run, "
            "spawn_script, start_error"
        ),
        "process_identity": "boot_id, pid_alive, pid_namespace, process_start_token",
        "thread_fanout": "Asked, AtOnce",
        "worker_pool": "map_forked",
    },
)
