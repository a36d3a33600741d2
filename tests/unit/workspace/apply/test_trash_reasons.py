"""Reasons in the trash: values that are written and read back, and the sentences of old stores."""

from __future__ import annotations

import pytest

from substrate.workspace.apply.trash_reasons import Kept, TrashReason, from_record

#: What commit 3ba45f3 wrote, with what each sentence means now.
OLD = {
    "excluded from history (built-in: node_modules/)":
        Kept(TrashReason.EXCLUDED, "built-in: node_modules/"),
    "excluded from history (another user's file that cannot be read)": Kept(TrashReason.UNREADABLE),
    "held only what is excluded from history (built-in: .venv/)":
        Kept(TrashReason.ONLY_EXCLUDED_INSIDE, "built-in: .venv/"),
    "changed meanwhile": Kept(TrashReason.CHANGED),
    "another program still has it open for writing": Kept(TrashReason.IN_USE),
    "its content was never recorded": Kept(TrashReason.NEVER_RECORDED),
    "a socket cannot be made again from history": Kept(TrashReason.CANNOT_BE_MADE, "socket"),
    "something was put into it while it was replaced": Kept(TrashReason.ADDED),
    "was put there while the directory was removed": Kept(TrashReason.ADDED),
    "something was put there while the directory was removed": Kept(TrashReason.ADDED),
    "was put into a directory of ours": Kept(TrashReason.ADDED),
    "its place was taken meanwhile": Kept(TrashReason.PATH_TAKEN),
    "replaced twice in the moment of the change": Kept(TrashReason.REPLACED_TWICE),
    "could not be removed: Permission denied": Kept(TrashReason.NOT_REMOVABLE, "Permission denied"),
    "found in the scratch directory of an interrupted operation": Kept(TrashReason.INTERRUPTED),
    "gave way to what an undo brought back": Kept(TrashReason.REPLACED_BY_UNDO),
    "gave way to what `recover restore` brought back": Kept(TrashReason.REPLACED_BY_RECOVER),
    "its record was damaged": Kept(TrashReason.RECORD_DAMAGED),
}  # fmt: skip


@pytest.mark.parametrize("sentence", OLD)
def test_a_sentence_of_an_old_store_becomes_a_value(sentence: str) -> None:
    assert from_record(sentence, None) == OLD[sentence]


def test_each_value_but_other_has_a_sentence_in_old_stores() -> None:
    assert {kept.reason for kept in OLD.values()} == set(TrashReason) - {TrashReason.OTHER}


@pytest.mark.parametrize("reason", TrashReason)
def test_a_value_is_read_back(reason: TrashReason) -> None:
    assert from_record(reason.value, "a detail") == Kept(reason, "a detail")


def test_an_unknown_sentence_is_kept() -> None:
    assert from_record("the moon was full", None) == Kept(TrashReason.OTHER, "the moon was full")
    assert from_record("excluded", None) == Kept(TrashReason.OTHER, "excluded")


def test_a_value_of_a_later_version_is_kept() -> None:
    assert from_record("sealed", "by x") == Kept(TrashReason.OTHER, "sealed: by x")
    assert from_record("sealed", "") == Kept(TrashReason.OTHER, "sealed")


def test_only_content_that_history_never_had_is_outside_history() -> None:
    outside = {one for one in TrashReason if Kept(one).is_outside_history}
    assert outside == {TrashReason.EXCLUDED, TrashReason.UNREADABLE}
