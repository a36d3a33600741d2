"""Rewrite, restore and prune, killed at any system call of theirs, again while being finished,
and with a disk that is full or fails."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash import harness, rewrite_site
from tests.crash.harness import KILLED, Point
from tests.crash.oracle import Cli
from tests.crash.rewrite_site import Fault, git, write

pytestmark = [pytest.mark.needs("strace"), pytest.mark.timeout(0)]

#: The directory of an operation's journal, from its first write to its last.
JOURNAL = ".manifold/journal/"
#: What announces the operation: before this file is there, nothing has changed.
INTENT = "intent.json"
TEN = "".join(f"{n}\n" for n in range(10))


class Operation(NamedTuple):
    words: tuple[str, ...]
    within: str
    status: int = 0
    default_points: int = 6


REWRITE = ("rewrite", "--base", "base", "--target", "target")
RESTORE = ("recover", "restore", "default/", "--with-git")
#: Only the sweep does these.
LARGE = {"rewrite, many": Operation(REWRITE, JOURNAL), "restore, many": Operation(RESTORE, JOURNAL)}
OPERATIONS = {
    "rewrite": Operation(REWRITE, JOURNAL),
    "conflict": Operation(REWRITE, JOURNAL, 1, 3),
    "defer": Operation((*REWRITE, "--defer-untracked"), JOURNAL, 0, 3),
    "restore": Operation(RESTORE, JOURNAL, 0, 4),
}


def prepare(cli: Cli, named: str) -> None:
    root = cli.workspace
    git(root, "init", "-q", "-b", "main")
    for name in ("mm", "clean", "gone/deep/g", "swap", "run", *_many(named, "old")):
        write(root, name, TEN)
    os.symlink("clean", root / "link")
    git(root, "add", "--all")
    git(root, "commit", "-qm", "base")
    git(root, "tag", "base")
    for name in ("mm", "clean", "run", *_many(named, "old")[10:], *_many(named, "new")):
        write(root, name, "target\n" + TEN)
    git(root, "rm", "-q", "-r", "gone", "swap", *_many(named, "old")[:10])
    write(root, "swap/in", "a directory now\n")
    write(root, "new/file", "new\n")
    (root / "run").chmod(0o755)
    git(root, "add", "--all")
    git(root, "commit", "-qm", "target")
    git(root, "branch", "target")
    git(root, "checkout", "-q", "-B", "main", "base")
    write(root, "mm", TEN + "staged\n")
    git(root, "add", "mm")
    write(root, "mm", TEN + "staged\nunstaged\n")
    write(root, b"untracked-\xff", "mine\n")
    if named == "conflict":
        write(root, "clean", "mine\n" + TEN)
    if named.startswith("restore"):
        cli.ok(*REWRITE)
        write(root, "clean", "later work\n")
        write(root, "added", "later\n")
    git(root, "status")


def _many(named: str, what: str) -> list[str]:
    """For the sweep: more steps between the journal's first write and its last."""
    return [f"{what}{n % 7}/{n}" for n in range(60)] if named.endswith("many") else []


def fault(named: str, tmp_path: Path) -> Fault:
    operation = (OPERATIONS | LARGE)[named]
    return rewrite_site.make(
        tmp_path, lambda cli: prepare(cli, named), operation.words, operation.status
    )


def chosen(made: Fault, operation: Operation) -> list[Point]:
    """A few before the announcement, where nothing may have changed; more behind it."""
    found = rewrite_site.points(made, operation.within)
    behind = rewrite_site.points(made, operation.within, INTENT)
    before = found[: -len(behind)]
    few = before[len(before) // 4 :: len(before) // 2]
    return few + behind[1 :: max(1, len(behind) // operation.default_points)]


def struck(made: Fault, point: Point, how: str) -> tuple[Cli, int, str]:
    cli = rewrite_site.copy(made, "struck")
    site = harness.Site(cli, harness.Before(made.directory, {}, {}, ()))
    status, said = harness.struck(site, made.words, point, how)
    return cli, status, said


@pytest.mark.parametrize("named", list(OPERATIONS))
def test_killed_at_a_system_call(named: str, tmp_path: Path) -> None:
    """All of the calls: see test_sweep."""
    operation = OPERATIONS[named]
    made = fault(named, tmp_path)
    ended = Counter(killed(made, point) for point in chosen(made, operation))
    print(f"\n{named}: {ended.total()} kill points, {dict(ended)}")
    assert ended["old"] and ended["recovered"]


def killed(made: Fault, point: Point) -> str:
    """How it ended: "old", "new", or "recovered" where the next call had to finish it."""
    cli, status, said = struck(made, point, "signal=KILL")
    assert status in KILLED or status == made.status, f"{point}: {status} {said}"
    begun = rewrite_site.announced(cli)
    try:
        state = rewrite_site.verdict(made, cli)
    except AssertionError as error:
        raise AssertionError(f"{made.words} killed at {point}: {error}") from error
    assert not begun or state == "new", f"{point}: announced, and not carried out"
    return "recovered" if begun else state


@pytest.mark.parametrize("named", ["rewrite", "restore"])
def test_killed_again_while_it_is_being_finished(
    named: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    made = fault(named, tmp_path)
    found = rewrite_site.points(made, JOURNAL)
    every = 1 if request.config.getoption("--long") else 12
    rounds = 0
    for point in found[len(found) // 3 :: every]:
        cli, _, _ = struck(made, point, "signal=KILL")
        if not rewrite_site.announced(cli):
            continue
        site = harness.Site(cli, harness.Before(made.directory, {}, {}, ()))
        kinds = ("renameat2", "unlinkat", "rename", "fsync", "unlink", "openat")
        again = Point(kinds[rounds % len(kinds)], 1 + rounds % 4)
        harness.struck(site, ("fsck", "--repair"), again, "signal=KILL")
        try:
            assert rewrite_site.verdict(made, cli) == "new"
        except AssertionError as error:
            raise AssertionError(f"at {point}, then {again}: {error}") from error
        rounds += 1
        if rounds == 2 and every > 1:
            break
    print(f"\n{named}: killed again {rounds} times")
    assert rounds > 0


FAULTS = ("ENOSPC", "EIO")
FAILING = ("write", "openat", "fsync", "renameat2", "mkdir", "rename")


@pytest.mark.parametrize("error", FAULTS)
@pytest.mark.parametrize("named", ["rewrite", "restore"])
def test_a_disk_that_is_full_or_fails(
    named: str, error: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A clear error, all old or all new, and the next call works."""
    made = fault(named, tmp_path)
    found = rewrite_site.points(made, JOURNAL)
    failed = 0
    for call in FAILING:
        places = [point for point in found if point.call == call]
        some = places if request.config.getoption("--long") else places[-1:]
        for point in some:
            cli, status, said = struck(made, point, f"error={error}")
            where = f"{point} {error}: {status} {said}"
            assert "Traceback" not in said, where
            assert status in (0, 1, 3, 5, 6), where
            failed += bool(status)
            try:
                rewrite_site.verdict(made, cli)
            except AssertionError as wrong:
                raise AssertionError(f"{where}\n{wrong}") from wrong
    print(f"\n{named}: {failed} runs met {error}")
    assert failed > 0


@pytest.mark.parametrize("error", FAULTS)
def test_a_prune_on_a_disk_that_is_full_or_fails(error: str, tmp_path: Path) -> None:
    """The snapshot is there, or its tombstone is; and the next prune works."""
    made = prunable(tmp_path)
    found = [p for p in rewrite_site.points(made, ".manifold/") if p.call in FAILING]
    failed = 0
    for point in found:
        cli, status, said = struck(made, point, f"error={error}")
        assert "Traceback" not in said and status in (0, 1, 3, 5, 6), f"{point}: {status} {said}"
        failed += bool(status)
        after_prune(made, cli, point)
    print(f"\nprune: {failed} runs met {error}")
    assert failed > 0


PRUNE = ("recover", "prune", "--older-than", "0")


def prunable(tmp_path: Path) -> Fault:
    def with_snapshot(cli: Cli) -> None:
        prepare(cli, "rewrite")
        cli.ok(*REWRITE)

    return rewrite_site.make(tmp_path, with_snapshot, PRUNE)


def test_prune_killed_at_a_system_call(tmp_path: Path) -> None:
    """The tombstone comes first: a snapshot is there, or it is known to have gone, and why."""
    made = prunable(tmp_path)
    found = rewrite_site.points(made, ".manifold/")
    ended = Counter(prune_killed(made, point) for point in found[:: max(1, len(found) // 4)])
    print(f"\nprune: {ended.total()} kill points, {dict(ended)}")
    assert ended["old"] and ended["new"]


def prune_killed(made: Fault, point: Point) -> str:
    cli, status, _ = struck(made, point, "signal=KILL")
    assert status == 0 or status in KILLED
    return after_prune(made, cli, point)


def after_prune(made: Fault, cli: Cli, point: Point) -> str:
    kept = git(cli.workspace, "for-each-ref", "refs/manifold").splitlines()
    listed = json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    stones = json.loads(cli.ok("recover", "list", "--pruned", "--json"))["pruned"]
    assert len(listed) == len(kept)
    assert kept or stones, f"{point}: gone without a word"
    cli.ok(*PRUNE)
    assert git(cli.workspace, "for-each-ref", "refs/manifold") == b""
    assert rewrite_site.state(cli.workspace) == made.old, "prune touches no file"
    return "old" if kept and not stones else "recovered" if kept else "new"
