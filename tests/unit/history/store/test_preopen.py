"""A history that is opened before it is needed: this has no visible effect."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from substrate.errors import HistoryRefusedError
from substrate.history.store.history_store import HistoryStore
from substrate.history.store.preopen import open_ahead
from substrate.workspace.workspace_location import find_workspace
from tests.unit.history.workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "project")
    made.run({"a": b"1"})
    return made


@pytest.fixture
def opened(bench: Bench) -> Iterator[HistoryStore]:
    store = open_ahead(find_workspace(bench.root))
    assert store is not None
    yield store
    store.close()


def ledger_of(bench: Bench) -> sqlite3.Connection:
    return sqlite3.connect(bench.root / ".substrate-git/index/history.db", timeout=0)


def rows(bench: Bench) -> list[str]:
    with closing(ledger_of(bench)) as ledger:
        return list(ledger.iterdump())


def test_the_rehearsal_leaves_nothing_and_holds_nothing(bench: Bench) -> None:
    before = rows(bench)
    store = open_ahead(find_workspace(bench.root))
    assert store is not None
    assert rows(bench) == before
    with closing(ledger_of(bench)) as ledger, ledger:
        ledger.execute("INSERT INTO meta VALUES ('other', 1)")  # writing still works
    assert store.ledger.meta("other") == 1
    store.close()


def test_what_is_written_after_it_is_as_ever(bench: Bench, opened: HistoryStore) -> None:
    bench.run({"a": b"2"})
    newest = opened.ledger.tip()
    assert newest is not None
    assert newest.command_id == bench.log()[0].command_id
    with opened.writing("test"), opened.commit_point() as ledger:
        ledger.set_meta("mine", 2)
    with closing(ledger_of(bench)) as other:
        assert other.execute("SELECT value FROM meta WHERE key = 'mine'").fetchone() == (2,)


def test_another_process_is_writing(bench: Bench) -> None:
    with closing(ledger_of(bench)) as other:
        other.execute("BEGIN IMMEDIATE")
        store = open_ahead(find_workspace(bench.root))
        assert store is not None
        store.close()


def test_where_there_is_none(bench: Bench) -> None:
    shutil.rmtree(bench.root / ".substrate-git")
    assert open_ahead(find_workspace(bench.root)) is None
    assert not (bench.root / ".substrate-git").exists()


@pytest.mark.needs("symlinks")
def test_what_is_not_trusted_is_not_opened(bench: Bench) -> None:
    journal = bench.root / ".substrate-git/journal"
    journal.rename(bench.root / "elsewhere")
    journal.symlink_to(bench.root / "elsewhere")
    with pytest.raises(HistoryRefusedError):
        open_ahead(find_workspace(bench.root))


def test_a_world_that_another_process_is_making_is_left_alone(bench: Bench) -> None:
    """Its directory is there before anything is written in it."""
    worlds = bench.root / ".substrate-git/worlds"
    gone = subprocess.Popen(["true"])
    gone.wait()
    being_made, left = worlds / f"ahead-{os.getpid()}-x", worlds / f"ahead-{gone.pid}-x"
    for world in (being_made, left):
        (world / "upper").mkdir(parents=True)
    bench.run({"a": b"2"})
    assert being_made.exists()
    assert not left.exists()
