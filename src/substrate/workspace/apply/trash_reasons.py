"""Why an entry is in the trash: a value that code can compare.

`entry.json` holds the value, and in `detail` what else is known. Older versions wrote a
sentence and no `detail`; `from_record` reads both.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class TrashReason(StrEnum):
    #: A rule leaves it out of history; the detail is that rule.
    EXCLUDED = "excluded"
    #: Another user's file, of which history cannot hold the content.
    UNREADABLE = "unreadable"
    #: A directory that holds nothing but excluded entries.
    ONLY_EXCLUDED_INSIDE = "only_excluded_inside"
    CHANGED = "changed_during_apply"
    IN_USE = "open_for_writing"
    NEVER_RECORDED = "never_recorded"
    #: A socket or device, which cannot be made from history.
    CANNOT_BE_MADE = "cannot_be_made"
    ADDED = "added_during_apply"
    #: Another process made a new entry at its path.
    PATH_TAKEN = "path_taken"
    #: Replaced twice at the moment of the change.
    REPLACED_TWICE = "replaced_twice"
    #: The detail is the system's error.
    NOT_REMOVABLE = "not_removable"
    #: Found in the scratch directory of an interrupted operation.
    INTERRUPTED = "interrupted"
    REPLACED_BY_UNDO = "replaced_by_undo"
    REPLACED_BY_RECOVER = "replaced_by_recover"
    #: Its record was damaged, and `fsck --repair` wrote a new one.
    RECORD_DAMAGED = "record_damaged"
    #: A sentence that no version of Substrate writes; the detail is the sentence.
    OTHER = "other"


class Kept(NamedTuple):
    """Why an entry goes to the trash instead of being removed."""

    reason: TrashReason
    detail: str = ""

    @property
    def is_outside_history(self) -> bool:
        """Whether history never had the content, because of a rule or of missing rights."""
        return self.reason in (TrashReason.EXCLUDED, TrashReason.UNREADABLE)


#: The sentences of earlier versions. A group is the detail.
_SENTENCES = (
    (r"excluded from history \(another user's file that cannot be read\)", TrashReason.UNREADABLE),
    (r"excluded from history \((.*)\)", TrashReason.EXCLUDED),
    (r"held only what is excluded from history \((.*)\)", TrashReason.ONLY_EXCLUDED_INSIDE),
    (r"changed meanwhile", TrashReason.CHANGED),
    (r"another program still has it open for writing", TrashReason.IN_USE),
    (r"its content was never recorded", TrashReason.NEVER_RECORDED),
    (r"an? (.*) cannot be made again from history", TrashReason.CANNOT_BE_MADE),
    (r"something was put into it while it was replaced", TrashReason.ADDED),
    (r"(?:something )?was put there while the directory was removed", TrashReason.ADDED),
    (r"was put into a directory of ours", TrashReason.ADDED),
    (r"its place was taken meanwhile", TrashReason.PATH_TAKEN),
    (r"replaced twice in the moment of the change", TrashReason.REPLACED_TWICE),
    (r"could not be removed: (.*)", TrashReason.NOT_REMOVABLE),
    (r"found in the scratch directory of an interrupted operation", TrashReason.INTERRUPTED),
    (r"gave way to what an undo brought back", TrashReason.REPLACED_BY_UNDO),
    (r"gave way to what `recover restore` brought back", TrashReason.REPLACED_BY_RECOVER),
    (r"its record was damaged", TrashReason.RECORD_DAMAGED),
)


def from_record(reason: str, detail: str | None) -> Kept:
    """The reason in a record; without a `detail`, an earlier version wrote it."""
    if detail is not None:
        try:
            return Kept(TrashReason(reason), detail)
        except ValueError:  # a reason of a later version
            return Kept(TrashReason.OTHER, f"{reason}: {detail}" if detail else reason)
    for sentence, value in _SENTENCES:
        found = re.fullmatch(sentence, reason, re.DOTALL)
        if found is not None:
            return Kept(value, found[1] if found.re.groups else "")
    return Kept(TrashReason.OTHER, reason)
