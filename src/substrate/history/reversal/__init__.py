"""Undo, redo, rollback and restore: computed first, then applied with a recovery ref."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.reversal import hunks as hunks
    from substrate.history.reversal import newest_command as newest_command
    from substrate.history.reversal import recovery_refs as recovery_refs
    from substrate.history.reversal import restore as restore
    from substrate.history.reversal import restore_excluded as restore_excluded
    from substrate.history.reversal import restore_from_trash as restore_from_trash
    from substrate.history.reversal import rollback as rollback
    from substrate.history.reversal import undo as undo
    from substrate.history.reversal.compute_reversal import Step as Step
    from substrate.history.reversal.compute_reversal import Wish as Wish
    from substrate.history.reversal.hunks import ChangeHunk as ChangeHunk
    from substrate.history.reversal.hunks import hunks_of as hunks_of
    from substrate.history.reversal.hunks import net_change as net_change
    from substrate.history.reversal.newest_command import Effect as Effect
    from substrate.history.reversal.newest_command import Picked as Picked
    from substrate.history.reversal.newest_command import ref_names as ref_names
    from substrate.history.reversal.newest_command import shown_words as shown_words
    from substrate.history.reversal.recovery_refs import Recovery as Recovery
    from substrate.history.reversal.restore import Outcome as Outcome
    from substrate.history.reversal.restore import notes_of as notes_of
    from substrate.history.reversal.restore import perform as perform
    from substrate.history.reversal.restore_excluded import Later as Later
    from substrate.history.reversal.undo import Branches as Branches
    from substrate.history.reversal.undo import Choice as Choice
    from substrate.history.reversal.undo import reversal_for as reversal_for

__getattr__ = lazy_names(
    __name__,
    {
        "compute_reversal": "Step, Wish",
        "newest_command": "Effect, Picked, ref_names, shown_words",
        "hunks": "ChangeHunk, hunks_of, net_change",
        "recovery_refs": "Recovery",
        "restore": "Outcome, notes_of, perform",
        "restore_excluded": "Later",
        "undo": "Branches, Choice, reversal_for",
    },
)
