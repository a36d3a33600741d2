"""Every error Substrate raises on purpose, with its kind, its hint and its exit code.

    SubstrateError
    ├── UsageError              2   the call's words are off
    ├── MissingDependencyError  3   git, a kernel feature or a package is not there
    │   └── WorldFailedError    3   a world could not be made; the command has not run
    ├── NotFoundError           4   no such id, path, session or checkpoint
    │   └── AmbiguousError      4   several things answer to that prefix
    ├── RefusedError            5   refused for safety; nothing was changed
    │   ├── HistoryRefusedError 5   no history in this place (``/``, a home directory, …)
    │   ├── LockedError         5   another process holds the history lock
    │   └── WorkspaceError      5   the workspace cannot be read or written
    │       └── DiskFullError   5   no space or quota left; nothing was changed
    ├── ConflictError           1   both sides changed the same thing; nothing was changed
    ├── HalfAppliedError        1   a change stopped in the middle; the bytes are kept
    └── DamagedStoreError       6   the history store is damaged

Anything else that escapes is a bug: the command line writes a crash report and exits 70.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_DIFFERENT = 1
EXIT_USAGE = 2
EXIT_MISSING = 3
EXIT_NOT_FOUND = 4
EXIT_REFUSED = 5
EXIT_DAMAGED = 6
EXIT_BUG = 70
#: ``-c`` and ``run`` only: Substrate itself failed, as opposed to the command it ran.
EXIT_RUN_FAILED = 125
#: ``-c`` and ``run`` only: policy forbids the command.
EXIT_RUN_DENIED = 126


class SubstrateError(Exception):
    """The root of the tree: what happened, and what the user can do next."""

    kind = "error"
    exit_code = EXIT_BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SubstrateError):
    kind = "usage"
    exit_code = EXIT_USAGE


class NothingToRunError(UsageError):
    """`-c` or `-f` with nothing behind it: 2 could be the command's own status."""

    exit_code = EXIT_RUN_FAILED


class MissingDependencyError(SubstrateError):
    kind = "missing-dependency"
    exit_code = EXIT_MISSING


class WorldFailedError(MissingDependencyError):
    """The machine refused a part of a world; raised before the command started."""

    kind = "world-failed"


class NotFoundError(SubstrateError):
    kind = "not-found"
    exit_code = EXIT_NOT_FOUND


class AmbiguousError(NotFoundError):
    kind = "ambiguous"


class RefusedError(SubstrateError):
    kind = "refused"
    exit_code = EXIT_REFUSED


class HistoryRefusedError(RefusedError):
    kind = "history-refused"


class LockedError(RefusedError):
    kind = "locked"


class WorkspaceError(RefusedError):
    kind = "workspace"


class DiskFullError(WorkspaceError):
    kind = "disk-full"


class ConflictError(SubstrateError):
    """Paths that could not be merged; raised before anything was changed."""

    kind = "conflict"
    exit_code = EXIT_DIFFERENT

    def __init__(self, message: str, *, hint: str = "", paths: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class HalfAppliedError(SubstrateError):
    """A change could neither be finished nor taken back; the message says where the bytes are.

    Its journal entry must stay: the next command finishes it.
    """

    kind = "half-applied"
    exit_code = EXIT_DIFFERENT


class ChangedMeanwhileError(SubstrateError):
    """Files moved between the look and the write. Nothing was changed; the caller looks again."""

    kind = "conflict"
    exit_code = EXIT_DIFFERENT


class DamagedStoreError(SubstrateError):
    kind = "damaged-store"
    exit_code = EXIT_DAMAGED
