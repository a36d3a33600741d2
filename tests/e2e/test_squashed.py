"""What the verbs say of history that is only kept squashed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def squashed(tmp_path: Path) -> Program:
    """Outside edits and sessions in turns, compacted under a cap of 1 MiB."""
    program = Program(tmp_path / "project")
    program.cwd.mkdir()
    program.sh("true")
    config = program.cwd / ".substrate-git/config.toml"
    config.write_text("[retention]\ndisk_cap_mib = 1\n[compact]\nauto = false\n")
    for n in range(8):
        (program.cwd / "big").write_bytes(os.urandom(200_000))
        with (program.cwd / "log").open("a") as file:
            file.write(f"outside {n}\n")
        program("--session", f"s{n}", "-c", f"echo agent {n} >> log").went_well()
        program("--session", f"s{n}", "checkpoint", "-m", f"task {n}").went_well()
    return program


def test_each_verb_says_what_is_squashed(squashed: Program) -> None:
    whose = squashed.json("blame", "log")["lines"]
    commands = squashed.json("log", "--limit", "0")["commands"]
    ids = [one["command_id"] for one in commands]
    assert squashed.json("status")["disk_cap"]["given_up_entries"] == 0
    squashed("compact").went_well()
    names = ("text", "kind", "session_id", "agent_id")
    after = squashed.json("blame", "log")["lines"]
    assert [[a[n] for n in names] for a in after] == [[b[n] for n in names] for b in whose]
    assert after[0]["squashed"] is True
    assert after[-1]["squashed"] is False
    for one in ids:
        squashed("show", one).went_well()
    cap = squashed.json("status")["disk_cap"]
    assert cap["given_up_entries"] > 8
    assert cap["floor_bytes"] is None
    assert "are only kept squashed" in squashed("status").text
    listed = {s["session_id"]: s for s in squashed.json("session", "list")["sessions"]}
    assert listed["s0"]["squashed"] == 1
    assert listed["s7"]["squashed"] == 0
    assert "1 (1 squashed)" in squashed("session", "list").text
    marks = {c["session_id"]: c for c in squashed.json("checkpoint", "list")["checkpoints"]}
    holder = marks["s0"]["squashed_into"]
    assert holder
    assert marks["s7"]["squashed_into"] is None
    assert f"(squashed into {holder})  task 0" in squashed("checkpoint", "list").text
    shown = squashed("show", holder).text
    assert "external" in shown
    assert "over its disk cap" in shown
    assert squashed.json("show", "s0")["squashed_into"] == [holder]
    assert [e["command_id"] for e in squashed.json("--session", "s0", "log")["commands"]] == [
        holder
    ]
    squashed("--session", "s7", "undo").went_well()
    assert "agent 7\n" not in (squashed.cwd / "log").read_text()
