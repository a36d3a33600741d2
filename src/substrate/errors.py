"""Every error Substrate raises on purpose, with its kind, its hint and its exit code.

    SubstrateError
    ├── UsageError              2   usage error
    ├── MissingDependencyError  3   git, a kernel feature or a package is missing
    │   ├── WorldFailedError    3   a world could not be made; the command did not run
    │   └── OutputError         3   the answer could not be written to stdout
    ├── NotFoundError           4   no such id, path, session or checkpoint
    │   └── AmbiguousError      4   the prefix matches several things
    ├── RefusedError            5   refused for safety; nothing was changed
    │   ├── HistoryRefusedError 5   no history in this place (``/``, a home directory, …)
    │   ├── MovedBranchesError  5   an undo must say what happens to the branches
    │   ├── ExternalEditsError  5   the workspace holds edits that are not recorded
    │   ├── LockedError         5   another process holds the history lock
    │   ├── StalePlanError      5   the plan of a preview no longer holds
    │   └── WorkspaceError      5   the workspace cannot be read or written
    │       └── DiskFullError   5   no space or quota left; nothing was changed
    ├── ConflictError           1   both sides changed the same thing; nothing was changed
    ├── HalfAppliedError        1   a change stopped in the middle; the bytes are kept
    │   └── WorkspaceMovedError 1   the project moved, or its mount went, during an operation
    ├── NotArrivedError       122   the command ran; its change is not in the tree
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
#: ``-c`` and ``run`` only: the command succeeded, but part of its change is not in the tree.
EXIT_NOT_ALL_APPLIED = 122
#: ``-c`` and ``run`` only: Substrate itself failed, not the command it ran.
EXIT_RUN_FAILED = 125
#: ``-c`` and ``run`` only: policy forbids the command.
EXIT_RUN_DENIED = 126


class SubstrateError(Exception):
    """The root of the tree: what happened, and what the user can do next."""

    kind = "error"
    exit_code = EXIT_BUG
    #: The exit status of `-c` and `run`, where any other could be mistaken for the command's own.
    run_exit = EXIT_RUN_FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SubstrateError):
    kind = "usage"
    exit_code = EXIT_USAGE


class NothingToRunError(UsageError):
    """`-c` or `-f` without a command. Exit status 2 could be the command's own, so it is 125."""

    exit_code = EXIT_RUN_FAILED


class MissingDependencyError(SubstrateError):
    kind = "missing-dependency"
    exit_code = EXIT_MISSING


class WorldFailedError(MissingDependencyError):
    """The machine refused a part of a world; raised before the command started."""

    kind = "world-failed"


class OutputError(MissingDependencyError):
    """The answer could not be written to stdout. What the verb changed before stays changed."""

    kind = "output"


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


class SettingTakenError(RefusedError):
    """A file of settings has another value where one is to be added."""

    def __init__(self, message: str, *, hint: str = "", last_key: str = "") -> None:
        super().__init__(message, hint=hint)
        #: The innermost name of the setting, so that a caller need not read the message.
        self.last_key = last_key


class MovedBranchesError(RefusedError):
    """The command to undo moved branches, and the caller did not say what to do with them."""

    kind = "moved-branches"

    def __init__(self, fact: str, *, hint: str = "", can_move: bool = True) -> None:
        super().__init__(f"nothing was changed: {fact}", hint=hint)
        #: What the command did, for the question to the user.
        self.fact = fact
        #: False: the branches have moved again since, so the undo can only restore the files.
        self.can_move = can_move


class ExternalEditsError(RefusedError):
    """`history.external = "refuse"`, and the workspace holds edits that are not recorded."""

    kind = "external-edits"
    run_exit = EXIT_REFUSED


class LockedError(RefusedError):
    kind = "locked"


class StalePlanError(RefusedError):
    """Something that a preview relied on has changed since."""

    kind = "stale"


class WorkspaceError(RefusedError):
    kind = "workspace"


class DiskFullError(WorkspaceError):
    kind = "disk-full"


class ConflictError(SubstrateError):
    """Paths that could not be merged; raised before anything was changed."""

    kind = "conflict"
    exit_code = EXIT_DIFFERENT

    def __init__(
        self, message: str, *, hint: str = "", paths: tuple[str, ...] = (), is_all: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths
        #: No path is free of conflicts, so that leaving these out would leave nothing to do.
        self.is_all = is_all


class HalfAppliedError(SubstrateError):
    """A change could neither be finished nor reversed; the message says where the bytes are.

    Keep its journal entry: the next command finishes the change.
    """

    kind = "half-applied"
    exit_code = EXIT_DIFFERENT


class WorkspaceMovedError(HalfAppliedError):
    """The workspace is no longer the directory at its path; the operation is incomplete.

    `now_at`: where the workspace is now, if that is known.
    """

    kind = "workspace-moved"

    def __init__(self, message: str, *, hint: str = "", now_at: str = "") -> None:
        super().__init__(message, hint=hint)
        self.now_at = now_at


class ChangedMeanwhileError(SubstrateError):
    """Files changed between the read and the write. Nothing was written; the caller reads again."""

    kind = "conflict"
    exit_code = EXIT_DIFFERENT


class DamagedStoreError(SubstrateError):
    kind = "damaged-store"
    exit_code = EXIT_DAMAGED


class NotArrivedError(SubstrateError):
    """A command ran in a world, and its change could not be recorded or applied."""

    kind = "not-applied"
    exit_code = EXIT_NOT_ALL_APPLIED

    def __init__(self, message: str, *, hint: str, command_exit: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.run_exit = command_exit or EXIT_NOT_ALL_APPLIED
