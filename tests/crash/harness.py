"""Run the program under strace, kill it (or fail a call) at a chosen system call, look after.

A point is the N-th call of one kind that the program itself makes (not its children): found by
tracing one run that goes well, met again in a fresh copy of the same workspace.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash.oracle import Cli, Tree, differences, store_problems, tree

#: Calls that change something. An `openat` counts if it may create or write.
CALLS = (
    *("write", "pwrite64", "openat", "rename", "renameat", "renameat2", "unlink", "unlinkat"),
    *("fsync", "fdatasync", "mkdir", "mkdirat", "rmdir", "link", "linkat", "symlink"),
    *("symlinkat", "ftruncate", "fchmod", "chmod", "fchmodat", "utimensat", "syncfs"),
)
_CALL = re.compile(r"(\w+)\((.*)")
_WRITES = re.compile(r"O_CREAT|O_WRONLY|O_RDWR|O_TRUNC")


class Point(NamedTuple):
    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}#{self.number}"


class Before(NamedTuple):
    """A workspace made once; every point gets a copy of it."""

    directory: Path
    old: Tree
    new: Tree
    #: Every entry the log had.
    ids: tuple[str, ...]
    #: The entries that the operation adds when nothing goes wrong: kind and files.
    added: tuple[tuple[str, str], ...] = ()


class Site(NamedTuple):
    """One copy: a workspace and its home, at paths of their own."""

    cli: Cli
    before: Before


def make(directory: Path, prepare: Callable[[Cli], None], words: tuple[str, ...]) -> Before:
    """Prepare a workspace, and find out in a copy what `words` make of it."""
    cli = _cli(directory / "template")
    cli.workspace.mkdir(parents=True)
    cli.home.mkdir()
    prepare(cli)
    ids = tuple(str(entry["command_id"]) for entry in cli.log())
    before = Before(directory, tree(cli.workspace), {}, ids)
    site = copy(before, "expected")
    done = site.cli(*words)
    assert done.returncode == 0, done.stderr.decode()
    new = tree(site.cli.workspace)
    site.cli.ok("-c", "true")  # takes note of edits that the operation had no reason to look at
    return before._replace(new=new, added=_added(site))


def _added(site: Site) -> tuple[tuple[str, str], ...]:
    """With a commit, oldest first; what only notes something has none."""
    fresh = [e for e in site.cli.log() if e["command_id"] not in site.before.ids]
    made = [e for e in fresh if e["substrate_git_commit"]]
    return tuple((str(e["kind"]), str(e["changed_files"])) for e in reversed(made))


def _cli(base: Path) -> Cli:
    return Cli(base / "project", base / "home")


def copy(before: Before, name: str) -> Site:
    base = before.directory / name
    if base.exists():
        shutil.rmtree(base)
    subprocess.run(["cp", "-a", str(before.directory / "template"), str(base)], check=True)
    return Site(_cli(base), before)


def points(before: Before, words: tuple[str, ...], within: str = "") -> list[Point]:
    """Every call of one good run at which it could have been killed.

    `within`: only from the first call that names this to the last that does.
    """
    site = copy(before, "traced")
    log = before.directory / "strace.log"
    argv = ["strace", "-y", "-o", str(log), "-e", "trace=" + ",".join(CALLS)]
    assert site.cli.spawn([*argv, *site.cli.argv(*words)]).returncode == 0
    found = read_points(log)
    named = [number for number, (_, line) in enumerate(found) if within in line]
    return [point for point, _ in found[named[0] : named[-1] + 1]]


def read_points(log: Path) -> list[tuple[Point, str]]:
    """The calls that change something, and the line that the log has of each."""
    seen: Counter[str] = Counter()
    found: list[tuple[Point, str]] = []
    for line in log.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None or match[1] not in CALLS:
            continue
        seen[match[1]] += 1
        if match[1] == "write" and "<pipe:" in line:
            continue  # to a program that was started, not to a disk
        if match[1] != "openat" or _WRITES.search(match[2]):
            found.append((Point(match[1], seen[match[1]]), line))
    return found


def sample(found: list[Point], count: int, seed: int = 1) -> list[Point]:
    """At most `count` points: each kind of call is met, the rest is spread over the run."""
    if len(found) <= count:
        return found
    chooser = random.Random(seed)
    kinds: dict[str, list[Point]] = {}
    for point in found:
        kinds.setdefault(point.call, []).append(point)
    chosen = {chooser.choice(points) for points in kinds.values()}
    rest = [point for point in found if point not in chosen]
    chosen |= set(chooser.sample(rest, max(0, count - len(chosen))))
    return [point for point in found if point in chosen]


def struck(site: Site, words: tuple[str, ...], point: Point, fault: str) -> tuple[int, str]:
    """Run with `fault` (``signal=KILL``, ``error=ENOSPC``) at `point`; status and stderr."""
    inject = f"inject={point.call}:{fault}:when={point.number}"
    argv = ["strace", "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject]
    done = site.cli.spawn([*argv, *site.cli.argv(*words)])
    return done.returncode, done.stderr.decode(errors="replace")


KILLED = (-9, 137)


def verdict(site: Site, status: int, kinds: Sequence[str]) -> str:
    """After the next call: "old" or "new", and everything else in order. Raises on anything less.

    `kinds`: the kinds of entry that the operation writes when it happens.
    """
    cli, before = site.cli, site.before
    following = cli("-c", "true")
    assert following.returncode == 0, f"the next call failed: {following.stderr.decode()}"
    found = tree(cli.workspace)
    state = "old" if found == before.old else "new" if found == before.new else "mixed"
    assert state != "mixed", (
        f"neither old {differences(found, before.old)} nor new {differences(found, before.new)}"
    )
    problems = store_problems(cli)
    assert problems == [], problems
    log = cli.log()
    fresh = [e for e in log if e["command_id"] not in before.ids]
    # Only what has a commit happened; the `-c true` above changed nothing and has none.
    made = [e for e in fresh if str(e["kind"]) in kinds and e["substrate_git_commit"]]
    if before.old != before.new:
        assert bool(made) == (state == "new"), f"{state}, but the log has {fresh}"
    elif kinds:
        state = "new" if made else "old"
    if status == 0:
        assert state == "new", "acknowledged, and not there"
        assert _added(site) == before.added, f"{_added(site)}, not {before.added}"
    lost = lost_contents(cli, before.old)
    assert lost == [], f"nowhere any more: {lost}"
    check_ids(cli, before.ids, {str(e["command_id"]) for e in log})
    return state


def lost_contents(cli: Cli, old: Tree) -> list[bytes]:
    """Paths whose bytes are neither at their old place nor reachable from history's refs."""
    out = cli.git("rev-list", "--objects", "--all").stdout
    reachable = {line[:40] for line in out.split(b"\n")}
    now = tree(cli.workspace)
    return [
        path
        for path, seen in old.items()
        if seen.kind in ("file", "symlink")
        and now.get(path) != seen
        and blob(seen.content) not in reachable
    ]


def blob(content: bytes) -> bytes:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest().encode()


def check_ids(cli: Cli, ids: Iterable[str], live: set[str]) -> None:
    """Every id ever printed resolves; ids in the log are known to, others are checked."""
    for one in [i for i in ids if i not in live][:3]:
        cli.ok("show", one)
