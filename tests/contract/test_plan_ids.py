"""`--dry-run --json` names its plan, and `--plan` carries out that plan or nothing."""

from __future__ import annotations

import pytest

from tests.contract.program import Program


@pytest.fixture
def edited(substrate: Program) -> Program:
    (substrate.cwd / "a.txt").write_text("1\n2\n3\n4\n5\n6\n7\n8\n")
    substrate.sh("true")
    substrate.sh("sed -i s/2/two/ a.txt; echo new > new.txt")
    return substrate


def test_the_plan_that_was_shown_is_carried_out(edited: Program) -> None:
    plan = edited.json("undo", "--dry-run")["plan_id"]
    assert plan == edited.json("undo", "@", "--dry-run")["plan_id"], "the same plan, the same id"
    (edited.cwd / "other.txt").write_text("of no concern\n")
    edited("undo", "--plan", plan).went_well()
    assert (edited.cwd / "a.txt").read_text() == "1\n2\n3\n4\n5\n6\n7\n8\n"
    assert not (edited.cwd / "new.txt").exists()
    again = edited.json("redo", "--dry-run")["plan_id"]
    edited("redo", "--plan", again).went_well()
    assert (edited.cwd / "new.txt").exists()


def test_another_plan_is_refused_and_nothing_changes(edited: Program) -> None:
    """An edit that merges cleanly changes what the file becomes: the preview did not show it."""
    plan = edited.json("undo", "--dry-run")["plan_id"]
    typed = (edited.cwd / "a.txt").read_text().replace("8", "eight")
    (edited.cwd / "a.txt").write_text(typed)
    refused = edited("--json", "undo", "--plan", plan).is_clear(5, "out of date")
    assert refused.error["kind"] == "stale"
    assert (edited.cwd / "a.txt").read_text() == typed
    assert (edited.cwd / "new.txt").exists()
    assert [one["kind"] for one in edited.json("log")["commands"]].count("undo") == 0
    edited("undo", "--plan", edited.json("undo", "--dry-run")["plan_id"]).went_well()
    assert (edited.cwd / "a.txt").read_text() == "1\n2\n3\n4\n5\n6\n7\neight\n"


def test_hunks_and_a_rollback_have_plans_too(edited: Program) -> None:
    hunk = edited.json("diff", "--hunks")["hunks"][0]["id"]
    plan = edited.json("undo", "--hunk", hunk, "--dry-run")["plan_id"]
    assert plan != edited.json("undo", "--dry-run")["plan_id"]
    edited("undo", "--plan", plan).is_clear(5, "out of date")
    edited("undo", "--hunk", hunk, "--plan", plan).went_well()
    assert (edited.cwd / "new.txt").exists()
    first = edited.json("log")["commands"][-2]["command_id"]
    plan = edited.json("rollback", "--to", first, "--dry-run")["plan_id"]
    edited("rollback", "--to", first, "--plan", plan).went_well()
    assert not (edited.cwd / "new.txt").exists()
