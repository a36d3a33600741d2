"""An operation that was killed is visible to every verb that reads, and reading changes nothing."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash import harness
from tests.crash.harness import KILLED, Point
from tests.crash.oracle import Cli, Tree, all_bytes, tree

pytestmark = [pytest.mark.needs("strace"), pytest.mark.timeout(0)]

#: Verbs that read, and dry runs of verbs that change something.
READING = (
    ("status",), ("log",), ("show",), ("diff",), ("recover", "list"), ("world", "list"),
    ("stats",), ("trace",), ("doctor",), ("blame", "src/a"), ("checkpoint", "list"),
    ("session", "list"), ("undo", "--dry-run"), ("compact", "--dry-run"),
    ("rollback", "--checkpoint", "s/1", "--dry-run"),
)  # fmt: skip
WORK = "for n in 1 2 3 4 5 6; do echo two > src/$n; done; rm -f src/b; echo two > src/a"


class State(NamedTuple):
    tree: Tree
    ledger: tuple[str, ...]
    refs: dict[str, tuple[int, bytes]]
    git: dict[str, tuple[int, bytes]]
    lock: bytes


def state(cli: Cli) -> State:
    store = cli.workspace / ".substrate-git"
    own = cli.workspace / ".git"
    return State(
        tree(cli.workspace), ledger(cli), all_bytes(store / ".git" / "refs"),
        all_bytes(own) if own.is_dir() else {}, (store / "lock").read_bytes(),
    )  # fmt: skip


def ledger(cli: Cli) -> tuple[str, ...]:
    """Every row, read from a copy: what SQLite has in its log counts, how it is filed does not."""
    file = cli.workspace / ".substrate-git" / "index" / "history.db"
    aside = cli.home / "peek"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for suffix in ("", "-wal"):
        source = file.with_name(file.name + suffix)
        if source.exists():
            shutil.copy(source, aside / source.name)
    connection = sqlite3.connect(aside / file.name)
    try:
        return tuple(connection.iterdump())
    finally:
        connection.close()


def prepare(cli: Cli) -> None:
    root = cli.workspace
    (root / "src").mkdir()
    for name in ("a", "b", "c"):
        (root / "src" / name).write_text("one\n")
    cli.ok("--session", "s", "checkpoint")
    cli.ok("--session", "s", "-c", WORK)


def prepare_many(cli: Cli) -> None:
    prepare(cli)
    for number in range(4):
        cli.ok("--session", "s", "-c", f"echo {number} > src/a")
    cli.ok("session", "close", "s")


class Operation(NamedTuple):
    words: tuple[str, ...]
    prepare: Callable[[Cli], None]
    #: Only calls between the first and the last that name this.
    within: str
    said: str


OPERATIONS = {
    "undo": Operation(("undo",), prepare, "/journal/", "undo of c-"),
    "rollback": Operation(
        ("rollback", "--checkpoint", "s/1"), prepare, "/journal/", "rollback to cp/task/s/1"
    ),
    "compact": Operation(
        ("compact", "--keep-checkpoints", "0", "--keep-sessions", "0"), prepare_many,
        "objects/", "compact",
    ),
    "apply": Operation(
        ("--session", "s", "-c", "for n in 1 2 3 4 5; do echo x > new$n; done; echo x > src/c"),
        prepare, '"new', "apply of c-",
    ),
}  # fmt: skip


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.needs("overlay")] if name == "apply" else [])
        for name in OPERATIONS
    ]
)
def operation(request: pytest.FixtureRequest) -> Operation:
    return OPERATIONS[str(request.param)]


def test_it_is_seen_and_only_finished_on_request(operation: Operation, tmp_path: Path) -> None:
    before = harness.make(tmp_path, operation.prepare, operation.words)
    found = harness.points(before, operation.words, operation.within)
    struck = _struck_in_the_middle(before, operation, found)
    assert struck is not None, "no kill left anything begun"
    site, point = struck
    cli = site.cli
    then = state(cli)
    for words in READING:
        _says_so(cli, words, operation.said, f"{operation.words} killed at {point}")
    fsck = cli("fsck")
    assert fsck.returncode == 1, fsck.stdout + fsck.stderr
    assert b"sound" not in fsck.stdout
    document = json.loads(cli("fsck", "--json").stdout)
    assert document["ok"] is False and document["problems"] == []
    now = state(cli)
    for name, was, is_now in zip(State._fields, then, now, strict=True):
        assert was == is_now, f"{name} was changed by a verb that reads"
    mended = cli("fsck", "--repair")
    assert mended.returncode == 0, mended.stderr
    assert b"finished" in mended.stderr, mended.stderr
    assert b"interrupted:" not in cli("status").stderr
    assert cli("fsck").returncode == 0
    assert tree(cli.workspace) == before.new


def _struck_in_the_middle(
    before: harness.Before, operation: Operation, found: list[Point]
) -> tuple[harness.Site, Point] | None:
    """A copy that was killed with something begun; the middle of the run is tried first."""
    middle = len(found) // 2
    order = sorted(range(len(found)), key=lambda at: abs(at - middle))
    for at in order[:: max(1, len(order) // 12)]:
        site = harness.copy(before, "struck")
        status, said = harness.struck(site, operation.words, found[at], "signal=KILL")
        assert status in KILLED or status == 0, said
        if any(row.startswith('INSERT INTO "intents"') for row in ledger(site.cli)):
            return site, found[at]
    return None


def _says_so(cli: Cli, words: tuple[str, ...], said: str, where: str) -> None:
    done = cli(*words)
    first = done.stderr.decode().partition("\n")[0]
    assert "interrupted: " in first and said in first, f"{where}: {words}: {done.stderr!r}"
    assert "`substrate fsck --repair`" in first
    with_json = cli(*words, "--json")
    assert with_json.returncode == done.returncode
    assert b"interrupted: " in with_json.stderr
    if with_json.returncode == 0 and words != ("trace",):
        (one,) = json.loads(with_json.stdout)["interrupted"]
        assert said in one["message"]
        assert one["finish"] == "substrate fsck --repair"


def test_killed_before_anything_changed(tmp_path: Path) -> None:
    before = harness.make(tmp_path, prepare, ("undo",))
    found = harness.points(before, ("undo",), "/lock")
    for point in found:
        site = harness.copy(before, "struck")
        harness.struck(site, ("undo",), point, "signal=KILL")
        then = state(site.cli)
        done = site.cli("log")
        if then.lock:
            break
    else:
        pytest.fail("no kill left the lock's record")
    assert b"was ended before it changed anything" in done.stderr
    assert site.cli("fsck").returncode == 1
    assert state(site.cli) == then
    site.cli.ok("undo")
    assert b"interrupted" not in site.cli("log").stderr
    assert tree(site.cli.workspace) == before.new


def test_a_rewrite(tmp_path: Path) -> None:
    words = ("rewrite", "--base", "HEAD", "--target", "other")
    before = harness.make(tmp_path, _repository, words)
    found = harness.points(before, words, "/.manifold/journal/")
    for point in found[len(found) // 3 :: 3]:
        site = harness.copy(before, "struck")
        status, said = harness.struck(site, words, point, "signal=KILL")
        assert status in KILLED or status == 0, said
        if any((site.cli.workspace / ".manifold" / "journal").glob("*/intent.json")):
            break
    else:
        pytest.fail("no kill left anything begun")
    then = state(site.cli)
    for verb in (("status",), ("log",), ("recover", "list"), ("stats",), ("doctor",)):
        first = site.cli(*verb).stderr.decode().partition("\n")[0]
        assert "interrupted: rewrite" in first, verb
    assert site.cli("fsck").returncode == 1
    assert state(site.cli) == then
    mended = site.cli("fsck", "--repair")
    assert b"finished an interrupted rewrite" in mended.stderr
    assert b"interrupted: " not in site.cli("status").stderr


def test_files_are_back_and_branches_are_not(tmp_path: Path) -> None:
    def prepare_commit(cli: Cli) -> None:
        _repository(cli)
        cli.ok("-c", "echo three > a; git commit -qam three")

    words = ("undo", "--with-git")
    before = harness.make(tmp_path, prepare_commit, words)
    for point in harness.points(before, words)[:-40:-2]:
        site = harness.copy(before, "struck")
        harness.struck(site, words, point, "signal=KILL")
        if any("'to_move','c-" in row for row in ledger(site.cli)):
            break
    else:
        pytest.fail("no kill came between the files and the branches")
    cli = site.cli
    then = state(cli)
    for verb in (("status",), ("log",), ("show",), ("undo", "--dry-run")):
        first = cli(*verb).stderr.decode().partition("\n")[0]
        assert "the files are back, refs/heads/main not yet moved" in first, (verb, first)
    assert cli("fsck").returncode == 1
    assert state(cli) == then
    mended = cli("fsck", "--repair")
    assert b"finished an interrupted undo of c-" in mended.stderr
    head = subprocess.run(
        ["git", "log", "-1", "--format=%s"], cwd=cli.workspace, capture_output=True, check=True
    )
    assert head.stdout == b"one\n"
    assert b"interrupted: " not in cli("status").stderr
    cli.ok("redo", "--with-git")
    assert (cli.workspace / "a").read_text() == "three\n"


def _repository(cli: Cli) -> None:
    root = cli.workspace

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    git("config", "user.name", "u")
    git("config", "user.email", "u@example.org")
    for name in ("a", "b", "c"):
        (root / name).write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "other")
    for name in ("a", "b", "d", "e"):
        (root / name).write_text("two\n")
    git("add", ".")
    git("commit", "-qm", "two")
    git("checkout", "-q", "main")
    cli.ok("-c", "true")


class TestDryRuns:
    """What the scan of a dry run or a question finds is not written down."""

    @pytest.mark.parametrize(
        "words",
        [
            ("undo", "--dry-run"), ("blame", "src/a"), ("redo", "--dry-run"),
            ("rollback", "--checkpoint", "s/1", "--dry-run"), ("world", "diff"),
            ("rollback", "--exact", "--checkpoint", "s/1", "--dry-run"),
            ("world", "apply", "--dry-run"), ("world", "discard", "--dry-run"),
            ("recover", "restore", "--dry-run"),
        ],
        ids=" ".join,
    )  # fmt: skip
    def test_nothing_is_written(self, tmp_path: Path, words: tuple[str, ...]) -> None:
        cli = Cli(tmp_path / "project", tmp_path / "home")
        cli.workspace.mkdir()
        cli.home.mkdir()
        prepare(cli)
        if words[0] == "world":
            cli.ok("--world", "--hold", "-c", "echo held >> src/a; echo n > src/new")
            (world,) = json.loads(cli.ok("world", "list", "--json"))["worlds"]
            words = (*words[:2], world["world_id"], *words[2:])
        else:
            cli.ok("undo")
        if words[0] == "recover":
            ref = json.loads(cli.ok("recover", "list", "--json"))["recoveries"][0]["name"]
            words = (*words[:2], ref, *words[2:])
        if words[0] == "undo":
            cli.ok("redo")
        with (cli.workspace / "src" / "a").open("a") as file:
            file.write("by hand\n")
        (cli.workspace / "mine").write_text("mine\n")
        then, cache = state(cli), _stat_cache(cli)
        done = cli(*words)
        assert done.returncode in (0, 1), done.stderr
        assert (state(cli), _stat_cache(cli)) == (then, cache)
        objects = cli.workspace / ".substrate-git" / ".git" / "objects"
        count = len(all_bytes(objects))
        cli(*words)
        assert len(all_bytes(objects)) == count


def _stat_cache(cli: Cli) -> bytes:
    return (cli.workspace / ".substrate-git" / "index" / "stat-cache").read_bytes()
