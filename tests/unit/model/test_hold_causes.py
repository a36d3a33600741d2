"""Causes for holding a world: written, read back and said; the sentences of older ledgers."""

from __future__ import annotations

import json

import pytest

from substrate.history.store.old_hold_texts import hold_causes_in
from substrate.model.hold_causes import (
    Hold,
    HoldCause,
    hold_causes_json,
    hold_words,
    is_of_both_sides,
)

_BOTH = "your repository was changed on both sides: "
_READ = "perhaps changed by others, too, while the project was read for the first time: "
_MOVED = HoldCause(Hold.REF_MOVED, ("refs/heads/main",))
_INDEX = HoldCause(Hold.GIT_FILE_WRITTEN, (".git/index",))
#: The sentences of schema 1 and 2, and what they mean.
OLD = {
    "": (),
    "asked for with --hold": (HoldCause(Hold.REQUESTED),),
    "processes of the command are still running": (HoldCause(Hold.PROCESSES_RUNNING),),
    "the command's recorder was ended": (HoldCause(Hold.RECORDER_ENDED),),
    "the shell was ended": (HoldCause(Hold.SHELL_ENDED),),
    "the machine stopped while its command ran": (HoldCause(Hold.MACHINE_STOPPED),),
    "the history was put aside while the command ran": (HoldCause(Hold.HISTORY_REPLACED),),
    "the history was put aside before it was recorded": (HoldCause(Hold.HISTORY_LOST),),
    "it changes what other programs run: .envrc, Makefile":
        (HoldCause(Hold.RUNS_CODE, (".envrc", "Makefile")),),
    "some of it could not be applied: a": (HoldCause(Hold.PARTLY_APPLIED, ("a",)),),
    _BOTH + "refs/heads/main was moved meanwhile; .git/index was written meanwhile":
        (_MOVED, _INDEX),
    _BOTH + "something was written in .git/x meanwhile":
        (HoldCause(Hold.GIT_DIRECTORY_WRITTEN, (".git/x",)),),
    _READ + "a, b and 7 more": (HoldCause(Hold.CHANGED_DURING_BASELINE, ("a", "b"), 7),),
    _BOTH + "HEAD was moved meanwhile; " + _READ + "a":
        (HoldCause(Hold.REF_MOVED, ("HEAD",)), HoldCause(Hold.CHANGED_DURING_BASELINE, ("a",))),
    "Permission denied: /x": (HoldCause(Hold.OTHER, ("Permission denied: /x",)),),
}  # fmt: skip


@pytest.mark.parametrize("sentence", OLD)
def test_a_sentence_of_an_old_ledger_becomes_causes(sentence: str) -> None:
    assert hold_causes_in(sentence) == OLD[sentence]


@pytest.mark.parametrize("cause", Hold)
def test_a_cause_is_written_and_read_back(cause: Hold) -> None:
    causes = (HoldCause(cause, ("a", "b"), 3),)
    assert hold_causes_in(json.loads(json.dumps(hold_causes_json(causes)))) == causes


@pytest.mark.parametrize("cause", Hold)
def test_every_cause_has_words(cause: Hold) -> None:
    said = hold_words((HoldCause(cause, ("a", "b"), 3),))
    assert said and "{" not in said
    names_it = cause in OLD_WITHOUT_NAMES or ("a" in said and "b" in said and "3 more" in said)
    assert names_it, said


OLD_WITHOUT_NAMES = {causes[0].cause for causes in OLD.values() if causes and not causes[0].what}


def test_a_cause_of_a_newer_version_keeps_its_text() -> None:
    newer = [{"cause": "quota", "what": ["a", "b"], "more": 0}, {"cause": "alien"}]
    assert hold_causes_in(newer) == (
        HoldCause(Hold.OTHER, ("quota: a, b",)), HoldCause(Hold.OTHER, ("alien",)),
    )  # fmt: skip


@pytest.mark.parametrize("damaged", [None, 7, {"cause": "requested"}, ["requested"]])
def test_a_damaged_record_is_no_cause(damaged: object) -> None:
    assert hold_causes_in(damaged) == ()


def test_the_words_name_each_collision_under_one_heading() -> None:
    both = (_MOVED, HoldCause(Hold.CHANGED_DURING_BASELINE, ("a",), 2), _INDEX)
    assert hold_words(both) == (
        "your repository was changed on both sides: refs/heads/main was moved since the command"
        " began; .git/index was written since the command began; others may have changed it, too,"
        " while the project was read for the first time: a and 2 more"
    )


def test_a_second_apply_overrides_only_a_collision() -> None:
    may = {cause for cause in Hold if is_of_both_sides((HoldCause(cause),))}
    assert may == {
        Hold.REF_MOVED, Hold.GIT_FILE_WRITTEN, Hold.GIT_DIRECTORY_WRITTEN,
        Hold.CHANGED_DURING_BASELINE,
    }  # fmt: skip
    assert not is_of_both_sides(())
