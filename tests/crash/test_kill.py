"""Killed at any system call, an operation has happened or it has not; the next call sees to it.

A bounded sample of the points; `test_sweep` goes through all of them.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash import harness
from tests.crash.harness import KILLED, Before, Point
from tests.crash.oracle import Cli

pytestmark = [pytest.mark.needs("strace"), pytest.mark.timeout(0)]

#: A command that touches every kind of path; run twice it does the same.
WORK = (
    "printf 'two\\n' > src/a; rm -f src/b; mkdir -p new/deep; printf 'n\\n' > new/deep/n;"
    " chmod 0755 src/c; ln -sfn a src/link; rm -rf gone; rm -f swap; mkdir -p swap; : > swap/in;"
    " head -c 300000 /dev/zero > big"
)
MORE = "printf 'three\\n' >> src/a; rm -f src/c; printf 'm\\n' > more; chmod 0700 new"


class Operation(NamedTuple):
    words: tuple[str, ...]
    #: What it writes in the log when it happens.
    kinds: tuple[str, ...]
    default_points: int


OPERATIONS = {
    # In a world: test_world_kill.
    "record": Operation(("--session", "s", "--no-world", "-c", WORK), ("command",), 14),
    "undo": Operation(("undo",), ("undo",), 16),
    "rollback": Operation(("rollback", "--checkpoint", "s/1"), ("rollback",), 16),
    "exact": Operation(("rollback", "--exact", "--checkpoint", "s/1"), ("rollback",), 8),
    "compact": Operation(
        ("compact", "--keep-checkpoints", "0", "--keep-sessions", "0"), ("squash",), 14
    ),
    "close": Operation(("session", "close", "s"), ("squash",), 8),
    "forget": Operation(("forget", "src/b", "--yes"), (), 10),
}


def prepare(cli: Cli, name: str) -> None:
    root = cli.workspace
    for directory in ("src", "gone/deep"):
        (root / directory).mkdir(parents=True)
    for file in ("src/a", "src/b", "src/c", "gone/deep/g", "swap"):
        (root / file).write_text("one\n")
    (root / "gone" / "deep" / "g").chmod(0o600)
    cli.ok("--session", "s", "checkpoint")
    if name == "record":
        return
    cli.ok("--session", "s", "-c", WORK)
    if name in ("rollback", "exact", "compact", "close"):
        cli.ok("--session", "s", "-c", MORE)
    if name in ("compact", "close"):
        for number in range(7):
            cli.ok("--session", "s", "-c", f"echo {number} > src/a")
            cli.ok("--session", "s", "checkpoint")
    if name == "compact":
        cli.ok("session", "close", "s")
    if name != "close":
        cli.ok("log")  # the user's work below is met by the operation itself
        (root / "mine").write_text("typed by hand\n")
        (root / "src" / "c2").write_text("also mine\n")


@pytest.fixture(params=list(OPERATIONS))
def named(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def before(named: str, tmp_path: Path) -> Before:
    return harness.make(tmp_path, lambda cli: prepare(cli, named), OPERATIONS[named].words)


def test_killed_at_a_system_call(named: str, before: Before) -> None:
    operation = OPERATIONS[named]
    found = harness.points(before, operation.words)
    points = harness.sample(found, operation.default_points)
    ended = Counter(killed(before, operation, point) for point in points)
    print(f"\n{named}: {ended.total()} kill points, {dict(ended)}")
    assert ended.total() - ended["survived"] > 0


def killed(before: Before, operation: Operation, point: Point) -> str:
    """How it ended after the next call: "old", "new", or "recovered" where that had something to
    finish or take back; "survived" if the call never came."""
    site = harness.copy(before, "struck")
    status, said = harness.struck(site, operation.words, point, "signal=KILL")
    assert status in KILLED or status == 0, f"{point}: {status} {said}"
    waiting = has_intent(site.cli)
    try:
        state = harness.verdict(site, status, operation.kinds)
    except AssertionError as error:
        raise AssertionError(f"{operation.words} killed at {point}: {error}") from error
    return "survived" if status == 0 else "recovered" if waiting else state


def has_intent(cli: Cli) -> bool:
    """Whether the kill left something begun, read from the store's own file by plain SQL."""
    import sqlite3

    file = cli.workspace / ".substrate-git" / "index" / "history.db"
    if not file.exists():
        return False
    copied = file.parent.parent.parent.parent / "peek.db"
    for suffix in ("", "-wal"):
        source = file.with_name(file.name + suffix)
        if source.exists():
            copied.with_name(copied.name + suffix).write_bytes(source.read_bytes())
    connection = sqlite3.connect(copied)
    try:
        return bool(connection.execute("SELECT count(*) FROM intents").fetchone()[0])
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
        for suffix in ("", "-wal", "-shm"):
            copied.with_name(copied.name + suffix).unlink(missing_ok=True)


@pytest.mark.parametrize("named", ["record", "undo", "rollback", "compact"], indirect=False)
def test_killed_again_while_recovering(
    named: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    operation = OPERATIONS[named]
    before = harness.make(tmp_path, lambda cli: prepare(cli, named), operation.words)
    found = harness.points(before, operation.words)
    # Near its end an operation has most behind it, and so recovery most to do.
    late = found[len(found) // 2 :: 1 if request.config.getoption("--long") else 6][:40]
    rounds = 0
    for point in late:
        site = harness.copy(before, "struck")
        status, _ = harness.struck(site, operation.words, point, "signal=KILL")
        if not has_intent(site.cli):
            continue
        again = Point(("rename", "unlink", "fdatasync", "pwrite64")[rounds % 4], 1 + rounds % 7)
        harness.struck(site, ("-c", "true"), again, "signal=KILL")
        try:
            harness.verdict(site, status, operation.kinds)
        except AssertionError as error:
            raise AssertionError(f"{named} at {point}, then {again}: {error}") from error
        rounds += 1
        if rounds == 4 and not request.config.getoption("--long"):
            break
    print(f"\n{named}: killed again {rounds} times")
    assert rounds > 0


#: A full disk stays full; a disk that fails may do so once.
NO_SPACE = (
    ("pwrite64", "error=ENOSPC", "+"),
    ("write", "error=ENOSPC", ""),
    ("openat", "error=ENOSPC", ""),
    ("rename", "error=ENOSPC", ""),
    ("mkdir", "error=ENOSPC", ""),
    ("fdatasync", "error=EIO", ""),
    ("pwrite64", "error=EIO", ""),
    ("write", "error=EIO", ""),
    ("renameat2", "error=EIO", ""),
)


@pytest.mark.parametrize("named", ["record", "undo", "rollback", "compact"], indirect=False)
def test_no_space_left_at_a_system_call(
    named: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A clear error, nothing lost, and the next call works."""
    operation = OPERATIONS[named]
    before = harness.make(tmp_path, lambda cli: prepare(cli, named), operation.words)
    found = harness.points(before, operation.words)
    failed = 0
    for call, fault, suffix in NO_SPACE:
        places = [point for point in found if point.call == call]
        for point in places if request.config.getoption("--long") else places[:: len(places) or 1]:
            site = harness.copy(before, "struck")
            wanted = (point.call, fault + f":when={point.number}{suffix}")
            argv = ["strace", "-o", os.devnull, "-e", f"trace={call}"]
            argv += ["-e", f"inject={wanted[0]}:{wanted[1]}", *site.cli.argv(*operation.words)]
            done = site.cli.spawn(argv)
            said = done.stderr.decode(errors="replace")
            where = f"{named}, {shlex.join(wanted)}: {done.returncode} {said}"
            assert "Traceback" not in said, where
            assert done.returncode in (0, 1, 5, 6, 125), where
            if done.returncode:
                assert "substrate: error:" in said, where
                failed += 1
            try:
                harness.verdict(site, done.returncode, operation.kinds)
            except AssertionError as error:
                raise AssertionError(f"{where}\n{error}") from error
    print(f"\n{named}: {failed} runs met a full disk")
    assert failed > 0
