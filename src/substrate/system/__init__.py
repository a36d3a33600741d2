"""The only access to the operating system.

Each concern has one module or package here: subprocesses (`process`), environment variables
(`environment`), the wall clock (`clock`), ids (`ids`), atomic file work, extended attributes and
the renames Python lacks (`files`), locks (`sync`), boot ids and pids (`process.process_identity`).
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system import clock as clock
    from substrate.system import daemon_paths as daemon_paths
    from substrate.system import environment as environment
    from substrate.system import ids as ids
    from substrate.system import umask as umask
    from substrate.system import user_notes as user_notes
    from substrate.system import watcher_client as watcher_client
    from substrate.system.clock import iso as iso
    from substrate.system.clock import now_ns as now_ns
    from substrate.system.daemon_paths import Address as Address
    from substrate.system.environment import Environment as Environment
    from substrate.system.watcher_client import Question as Question
    from substrate.system.watcher_client import StillTree as StillTree
    from substrate.system.watcher_client import tree_of as tree_of

__getattr__ = lazy_names(
    __name__,
    {
        "clock": "iso, now_ns",
        "daemon_paths": "Address",
        "environment": "Environment",
        "watcher_client": "Question, StillTree, tree_of",
    },
)
