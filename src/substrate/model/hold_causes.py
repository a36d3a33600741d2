"""Why a world is held: values that code compares and the ledger stores, and their words.

A world can be held for several causes at once. In the ledger and in JSON each is
``{"cause": "ref_moved", "what": ["refs/heads/main"], "more": 0}``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class Hold(StrEnum):
    #: The user asked for it (``--hold``).
    REQUESTED = "requested"
    #: Both sides moved a ref of the user's repository, or HEAD.
    REF_MOVED = "ref_moved"
    #: Both sides wrote a file in ``.git``, such as the index.
    GIT_FILE_WRITTEN = "git_file_written"
    #: The command removed a directory in ``.git`` where another process wrote.
    GIT_DIRECTORY_WRITTEN = "git_directory_written"
    #: Others may have changed the paths while the baseline was taken.
    CHANGED_DURING_BASELINE = "changed_during_baseline"
    #: The change makes other programs run code, and the settings ask to hold such changes.
    RUNS_CODE = "runs_code"
    #: The check of the call (``--check``) failed; `what` is how.
    CHECK_FAILED = "check_failed"
    #: Applying the change failed; `what` is the message.
    APPLY_FAILED = "apply_failed"
    #: Most of the change has arrived; `what` are the paths that could not be applied.
    PARTLY_APPLIED = "partly_applied"
    #: The world itself failed while the command ran; `what` is the message.
    WORLD_FAILED = "world_failed"
    PROCESSES_RUNNING = "processes_running"
    RECORDER_ENDED = "recorder_ended"
    SHELL_ENDED = "shell_ended"
    MACHINE_STOPPED = "machine_stopped"
    #: The history was put aside while the command ran.
    HISTORY_REPLACED = "history_replaced"
    #: The history was put aside before the command was recorded.
    HISTORY_LOST = "history_lost"
    #: A sentence of an older version, or a cause of a newer one; `what` is the text.
    OTHER = "other"


#: The user, after seeing the cause, may decide for the world's version by a second apply.
BOTH_SIDES = frozenset(
    {
        Hold.REF_MOVED,
        Hold.GIT_FILE_WRITTEN,
        Hold.GIT_DIRECTORY_WRITTEN,
        Hold.CHANGED_DURING_BASELINE,
    }
)
_IN_REPOSITORY = BOTH_SIDES - {Hold.CHANGED_DURING_BASELINE}


class HoldCause(NamedTuple):
    cause: Hold
    #: Paths and refs as text, or a message.
    what: tuple[str, ...] = ()
    #: How many more there are than `what` names.
    more: int = 0

    def to_json(self) -> dict[str, object]:
        return {"cause": self.cause.value, "what": list(self.what), "more": self.more}


def is_of_both_sides(causes: Iterable[HoldCause]) -> bool:
    return any(one.cause in BOTH_SIDES for one in causes)


def hold_causes_json(causes: Iterable[HoldCause]) -> list[dict[str, object]]:
    return [one.to_json() for one in causes]


def hold_causes_from(record: object) -> tuple[HoldCause, ...]:
    """What the ledger holds, as values. A text (a ledger that cannot be migrated because it is
    read only) and an unknown cause become `Hold.OTHER`."""
    if isinstance(record, str):
        return (HoldCause(Hold.OTHER, (record,)),) if record else ()
    if not isinstance(record, list):
        return ()
    return tuple(_cause_from(one) for one in record if isinstance(one, dict))


def _cause_from(record: dict[str, object]) -> HoldCause:
    what, more = record.get("what"), record.get("more")
    named = tuple(map(str, what)) if isinstance(what, list) else ()
    name = str(record.get("cause", ""))
    try:
        return HoldCause(Hold(name), named, more if isinstance(more, int) else 0)
    except ValueError:
        return HoldCause(Hold.OTHER, (": ".join((name, ", ".join(named))) if named else name,))


_WORDS = {
    Hold.REQUESTED: "asked for with --hold",
    Hold.REF_MOVED: "{} was moved since the command began",
    Hold.GIT_FILE_WRITTEN: "{} was written since the command began",
    Hold.GIT_DIRECTORY_WRITTEN: "another process wrote in {} since the command began",
    Hold.CHANGED_DURING_BASELINE:
        "others may have changed it, too, while the project was read for the first time: {}",
    Hold.RUNS_CODE: "it changes what other programs run: {}",
    Hold.CHECK_FAILED: "the check failed: {}",
    Hold.APPLY_FAILED: "{}",
    Hold.PARTLY_APPLIED: "some of it could not be applied: {}",
    Hold.WORLD_FAILED: "{}",
    Hold.PROCESSES_RUNNING: "processes of the command are still running",
    Hold.RECORDER_ENDED: "the process that recorded the command was ended",
    Hold.SHELL_ENDED: "the shell was ended",
    Hold.MACHINE_STOPPED: "the machine stopped while the command ran",
    Hold.HISTORY_REPLACED: "the history was put aside while the command ran",
    Hold.HISTORY_LOST: "the history was put aside before the command was recorded",
    Hold.OTHER: "{}",
}  # fmt: skip


def hold_words(causes: Iterable[HoldCause]) -> str:
    """The causes for people; empty if there are none."""
    causes = tuple(causes)
    in_repository = [cause_words(one) for one in causes if one.cause in _IN_REPOSITORY]
    said = [cause_words(one) for one in causes if one.cause not in _IN_REPOSITORY]
    if in_repository:
        said.insert(0, "your repository was changed on both sides: " + "; ".join(in_repository))
    return "; ".join(said)


def cause_words(one: HoldCause) -> str:
    """One cause for people."""
    more = f" and {one.more} more" if one.more else ""
    template = _WORDS[one.cause]
    if one.cause in _IN_REPOSITORY:
        return "; ".join(template.format(name) for name in one.what) + more
    return template.format(", ".join(one.what) + more)
