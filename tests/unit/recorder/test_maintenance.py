"""Status and reset; checks and repairs have their own tests beside history."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.errors import NotFoundError
from substrate.recorder import maintenance
from tests.unit.history.workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


def test_status_before_the_first_command(bench: Bench) -> None:
    found = maintenance.status(bench.place())
    assert found.history == "not begun"
    assert found.rules
    assert not (bench.root / ".substrate-git").exists()


def test_status_where_there_is_none(private_environment: Path) -> None:
    found = maintenance.status(Bench(private_environment).place())
    assert "home directory" in found.history


def test_status_reports_and_records_nothing(bench: Bench) -> None:
    entry = bench.run({"a": b"1"}, session="s-1")
    bench.outside({"a": b"mine", "node_modules/x/y": b"bulk", ".substrateignore": b"*.log\n"})
    bench.outside({"x.log": b"l"})
    log = bench.log()
    found = maintenance.status(bench.place())
    assert (found.history, found.session_id) == ("kept", entry.session_id)
    assert found.outside_changes == (b".substrateignore", b"a")
    reasons: dict[bytes, str] = dict(found.excluded)
    assert reasons[b"node_modules"] == "built-in: node_modules/"
    assert reasons[b"x.log"] == ".substrateignore:1: *.log"
    assert bench.log() == log


def test_reset_puts_everything_aside(bench: Bench) -> None:
    old = bench.run({"a": b"1"})
    before = bench.tree()
    aside = maintenance.reset_history(bench.place())
    assert bench.tree() == before
    assert (aside / ".git").is_dir()
    assert os.listdir(aside.parent) == [aside.name]
    bench.run({"a": b"2"})
    assert bench.kinds() == ["baseline", "command"]
    assert old.command_id not in [e.command_id for e in bench.log()]
    assert bench.fsck() == []


def test_what_was_put_aside_is_not_taken_for_damaged(bench: Bench) -> None:
    bench.run({"a": b"1"})
    maintenance.reset_history(bench.place())
    for act in (maintenance.check_store, maintenance.repair_store, maintenance.reset_history):
        with pytest.raises(NotFoundError, match="put aside"):
            act(bench.place())
    bench.run({"a": b"2"})
    assert maintenance.check_store(bench.place()) == []


def test_without_a_store_there_is_nothing_to_care_for(bench: Bench) -> None:
    for act in (maintenance.check_store, maintenance.repair_store, maintenance.reset_history):
        with pytest.raises(NotFoundError):
            act(bench.place())
