"""Several processes find a workspace without a history at once: each gets the same new one."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError, LockedError, NotFoundError, SubstrateError
from substrate.history.record import record_entry
from substrate.history.store import history_store, schema
from substrate.history.store.config import load_config
from substrate.history.store.history_store import HistoryStore
from substrate.history.store.messages import BRANCH
from substrate.workspace.scan.stat_cache import StatCache
from substrate.workspace.workspace_location import Workspace, find_workspace, protect_store


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a").write_text("1")
    return find_workspace(root)


@pytest.fixture
def home_config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def test_a_command_that_meets_another_one_making_the_ledger_waits(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    failed: list[SubstrateError] = []

    def come_second() -> None:
        try:
            schema.connect(path).close()
        except SubstrateError as error:
            failed.append(error)

    with closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("BEGIN IMMEDIATE")
        second = threading.Thread(target=come_second)
        second.start()
        second.join(0.3)
        assert second.is_alive(), failed
        first.execute("ROLLBACK")
        second.join()
    assert failed == []
    with closing(schema.connect(path)) as made:
        assert made.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert made.execute("SELECT count(*) FROM entries").fetchone()[0] == 0


def test_a_reader_that_others_keep_from_reading_is_asked_to_come_again() -> None:
    error = sqlite3.OperationalError("locking protocol")
    error.sqlite_errorname = "SQLITE_PROTOCOL"
    assert isinstance(schema.translated(error), LockedError)


class _LooksTwice(HistoryStore):
    """Between its look at the ledger and whatever it looks at next, another takes the baseline."""

    home_config: Path

    @property
    def tip_commit(self) -> bytes | None:
        found = super().tip_commit
        if found is None:
            other = history_store.open_store(self.workspace, self.home_config)
            with other.writing("record a command"):
                record_entry.ensure_baseline(other)
            other.close()
        return found


def test_a_baseline_that_comes_between_two_looks_is_no_damage(
    workspace: Workspace, home_config: Path
) -> None:
    history_store.open_store(workspace, home_config).close()
    looking = _LooksTwice(workspace, load_config(home_config, workspace.store / "config.toml"))
    looking.home_config = home_config
    assert not history_store.is_index_lost(looking)
    looking.close()


def test_a_question_while_the_store_is_made_finds_no_history(
    workspace: Workspace, home_config: Path
) -> None:
    protect_store(workspace)
    history_store.make_store(workspace)
    with pytest.raises(NotFoundError, match="no history"):
        history_store.existing_store(workspace, home_config)
    made = history_store.open_store(workspace, home_config)
    with made.writing("record a command"):
        record_entry.ensure_baseline(made)
    made.close()
    assert (workspace.store / ".git" / BRANCH).exists()
    (workspace.store / "index" / "history.db").unlink()
    with pytest.raises(DamagedStoreError, match="index is gone"):
        history_store.existing_store(workspace, home_config)


def test_what_a_first_command_leaves_for_later_is_saved_once(
    workspace: Workspace, home_config: Path
) -> None:
    with closing(history_store.open_store(workspace, home_config)) as first:
        with first.writing("record a command"):
            _begin(first)
        assert not first.stat_cache_file.exists()
        first.save_seen()
        tip = first.tip()
        assert StatCache.load(first.stat_cache_file).describes == tip.tree + tip.attrs
        first.stat_cache_file.unlink()
        first.save_seen()
        assert not first.stat_cache_file.exists()


def test_what_a_user_saw_later_stays(workspace: Workspace, home_config: Path) -> None:
    with closing(history_store.open_store(workspace, home_config)) as first:
        with first.writing("record a command"):
            _begin(first)
        (workspace.root / "a").write_text("2")
        with closing(history_store.open_store(workspace, home_config)) as other:
            with other.writing("record outside edits"):
                assert record_entry.record_outside(other) is not None
            tip = other.tip()
        first.save_seen()
        assert StatCache.load(first.stat_cache_file).describes == tip.tree + tip.attrs


def test_a_kill_before_it_is_saved_costs_time_only(workspace: Workspace, home_config: Path) -> None:
    first = history_store.open_store(workspace, home_config)
    with closing(first), first.writing("record a command"):
        _begin(first)
    (workspace.root / "a").write_text("2")
    other = history_store.open_store(workspace, home_config)
    with closing(other), other.writing("record outside edits"):
        found = record_entry.record_outside(other)
    assert found is not None
    assert [change.path for change in found.changes] == [b"a"]


def test_on_the_real_files_it_is_saved_before_the_command(
    workspace: Workspace, home_config: Path
) -> None:
    with closing(history_store.open_store(workspace, home_config)) as first:
        with first.writing("record a command"):
            record_entry.begin(first, session=None, agent_id=None, command="x", exact="x")
        assert first.stat_cache_file.exists()


def test_the_first_command_saves_it_while_it_runs(workspace: Workspace, tmp_path: Path) -> None:
    env = {**os.environ, "SUBSTRATE_HOME": str(tmp_path / "home"), "SUBSTRATE_DAEMON": "off"}
    seen = workspace.store / "index/stat-cache"
    done = subprocess.run(
        [sys.executable, "-m", "substrate", "-c", "echo 2 > a"],
        cwd=workspace.root, env=env, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert not StatCache.load(seen).reason


def _begin(opened: HistoryStore) -> None:
    world = record_entry.InWorld("wld_1", (opened.dir / "worlds",))
    record_entry.begin(opened, session=None, agent_id=None, command="x", exact="x", world=world)
