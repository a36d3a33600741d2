"""A history of an older schema: read as it is, upgraded by the first call that may write."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from substrate.history.store.schema import SCHEMA_VERSION
from tests.crash.oracle import Cli
from tests.daemons import Daemon, daemon_in, until
from tests.mounts import mounted

#: What schemas 2 and 3 added, taken away again. A store of schema 1 has neither the tables nor the
#: note of how far the index has come.
REVERSED = """
DROP TABLE agent_sessions;
DROP TABLE prompts;
DROP TABLE prompt_entries;
DROP TABLE tool_calls;
DROP TABLE touched;
DROP TABLE line_authors;
DELETE FROM meta WHERE key = 'touched_upto';
PRAGMA user_version = 1;
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (root / "a").write_text("first\n")
    cli = Cli(root, home)
    for number in (1, 2, 3):
        cli.ok("-c", f"echo {number} >> a; echo {number} > b{number}")
    cli.ok("checkpoint", "-m", "here")
    cli.ok("undo")
    return cli


def ledger(root: Path) -> Path:
    return root / ".substrate-git/index/history.db"


def schema_of(root: Path) -> int:
    with closing(sqlite3.connect(ledger(root))) as found:
        return int(found.execute("PRAGMA user_version").fetchone()[0])


def change(root: Path, script: str) -> None:
    """By SQL; the last connection that closes leaves no log behind."""
    with closing(sqlite3.connect(ledger(root))) as found:
        found.executescript(script)


READ_ONLY = [
    ("log", "--json"), ("log", "--path", "b1"), ("checkpoint", "list"), ("session", "list"),
]  # fmt: skip
ALL = [*READ_ONLY, ("blame", "a"), ("recover", "list"), ("diff", "@", "--stat")]


def answers(cli: Cli, questions: list[tuple[str, ...]]) -> list[str]:
    return [cli.ok(*words) for words in questions]


def test_an_older_history_answers_the_same_and_goes_on(cli: Cli) -> None:
    before = answers(cli, ALL)
    change(cli.workspace, REVERSED)
    assert schema_of(cli.workspace) == 1
    assert answers(cli, ALL) == before
    assert "sound" in cli.ok("fsck")
    cli.ok("-c", "echo 4 >> a")
    assert schema_of(cli.workspace) == SCHEMA_VERSION
    assert len(cli.ok("blame", "a").splitlines()) == 4
    cli.ok("undo")
    cli.ok("redo")
    assert (cli.workspace / "a").read_text() == "first\n1\n2\n4\n"
    assert "sound" in cli.ok("fsck")


STORES = Path(__file__).parents[1] / "stores"


@pytest.fixture(params=[1, 2])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> Cli:
    """A project with a store that the code of an older commit made: see `tests/stores/make`."""
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    with tarfile.open(STORES / f"schema-{request.param}.tar.xz") as archive:
        archive.extractall(root, filter="tar")
    assert schema_of(root) == request.param
    return Cli(root, home)


def held(cli: Cli) -> dict[str, dict[str, Any]]:
    """By the cause."""
    worlds = json.loads(cli.ok("world", "list", "--json"))["worlds"]
    return {world["causes"][0]["cause"]: world for world in worlds}


def test_reasons_of_an_older_store_become_values(old_store: Cli) -> None:
    found = held(old_store)
    assert {name: world["causes"][0]["what"] for name, world in found.items()} == {
        "requested": [], "ref_moved": ["refs/heads/main"], "runs_code": [".envrc"],
    }  # fmt: skip
    assert found["requested"]["reason"] == "asked for with --hold"
    old_store.ok("-c", "true")
    assert schema_of(old_store.workspace) == SCHEMA_VERSION
    assert held(old_store) == found
    shown = json.loads(old_store.ok("show", found["ref_moved"]["command_id"], "--json"))["detail"]
    assert shown["held"] == found["ref_moved"]["reason"]
    assert shown["held_causes"] == found["ref_moved"]["causes"]
    assert "sound" in old_store.ok("fsck")


@pytest.mark.needs("overlay")
def test_what_an_older_store_holds_can_be_applied(old_store: Cli) -> None:
    found = held(old_store)
    # The user has seen this collision: applying it takes the world's version at once.
    old_store.ok("world", "apply", found["ref_moved"]["world_id"])
    assert (old_store.workspace / "its").read_text() == "its\n"
    old_store.ok("world", "apply", found["requested"]["world_id"])
    assert (old_store.workspace / "held").read_text() == "held\n"
    old_store.ok("world", "discard", found["runs_code"]["world_id"])
    assert held(old_store) == {}
    (gone,) = json.loads(old_store.ok("world", "list", "--discarded", "--json"))["worlds"]
    assert gone["causes"] == found["runs_code"]["causes"]


def test_the_trash_of_an_older_store_can_be_restored(old_store: Cli) -> None:
    removed = next(
        entry["command_id"]
        for entry in json.loads(old_store.ok("log", "--json"))["commands"]
        if entry["command"] == "rm -r node_modules"
    )
    old_store.ok("recover", "restore", removed)
    assert (old_store.workspace / "node_modules/x").read_text() == "module\n"


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    with mounted(place, "--bind", str(place)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        yield


@pytest.mark.needs("root", "overlay")
def test_an_older_history_that_cannot_be_written(cli: Cli) -> None:
    before = answers(cli, READ_ONLY)
    change(cli.workspace, REVERSED)
    assert schema_of(cli.workspace) == 1
    with read_only(cli.workspace):
        assert answers(cli, READ_ONLY) == before
        assert schema_of_copy(cli.workspace, cli.home) == 1


@pytest.mark.needs("root", "overlay")
def test_a_newer_history_that_cannot_be_written(cli: Cli) -> None:
    cli.ok("-c", "true")
    change(cli.workspace, "PRAGMA user_version = 7;")
    with read_only(cli.workspace):
        done = cli("log")
    assert done.returncode == 5, done.stderr
    assert b"newer Substrate (schema 7)" in done.stderr and b"upgrade Substrate" in done.stderr


def schema_of_copy(root: Path, home: Path) -> int:
    """SQLite cannot look at a file in a read-only directory while it keeps a log."""
    copy = home / "copy/.substrate-git/index"
    copy.mkdir(parents=True)
    shutil.copy(ledger(root), copy)
    return schema_of(home / "copy")


@pytest.mark.needs("linux")
def test_an_daemon_of_the_older_install_gives_way(tmp_path: Path) -> None:
    """The daemon serves from a directory that a new install replaces file by file; an older
    history is upgraded by the new code, and never by the old."""
    import substrate

    site = tmp_path / "site"
    shutil.copytree(Path(substrate.__file__).parent, site / "substrate")
    version = site / "substrate/__init__.py"
    new = version.read_text()
    version.write_text(new.replace(substrate.__version__, "0.0.1"))
    env = {"PYTHONPATH": str(site), "SUBSTRATE_HOME": str(tmp_path / "home")}
    with daemon_in(tmp_path, env) as daemon:
        daemon.serve()
        assert daemon.run("-c", "echo 1 > a").returncode == 0
        old = daemon.pid
        change(daemon.workspace, REVERSED)
        version.write_text(new)
        os.utime(version, (1, 1))  # what an unpacked wheel has: not the time of the install
        until(lambda: _serves_anew(daemon, old))
        assert schema_of(daemon.workspace) == SCHEMA_VERSION
        assert (daemon.workspace / "a").read_text() == "2\n"
        assert daemon.run("undo").returncode == 0
        assert (daemon.workspace / "a").read_text() == "1\n"


def _serves_anew(daemon: Daemon, old: int) -> bool:
    done = daemon.run("-c", "echo 2 > a")
    assert done.returncode == 0, done.stderr
    return bool(daemon.state()) and daemon.pid not in (0, old)
