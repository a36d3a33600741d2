"""A working copy to be rewritten, copied for every fault; looked at by plain git and plain `os`.

Nothing here imports the product.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import CALLS, Point, blob, read_points
from tests.crash.oracle import Cli, Tree, differences, tree


class State(NamedTuple):
    """All that a rewrite may change, and the snapshots that prove where the rest is."""

    tree: Tree
    entries: bytes
    head: bytes
    refs: bytes


class Fault(NamedTuple):
    """A template and what the operation makes of it when nothing goes wrong."""

    directory: Path
    words: tuple[str, ...]
    status: int
    old: State
    new: State


def git(root: Path, *words: str, check: bool = True) -> bytes:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    assert not check or done.returncode == 0, (words, done.stderr.decode())
    return done.stdout


def state(root: Path) -> State:
    seen = {p: s for p, s in tree(root).items() if not p.startswith(b".manifold")}
    refs = git(root, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    head = (root / ".git" / "HEAD").read_bytes()
    return State(seen, git(root, "ls-files", "--stage", "-z"), head, refs)


def cli_at(base: Path) -> Cli:
    return Cli(base / "project", base / "home")


def make(
    directory: Path, prepare: Callable[[Cli], None], words: tuple[str, ...], status: int = 0
) -> Fault:
    cli = cli_at(directory / "template")
    cli.workspace.mkdir(parents=True)
    cli.home.mkdir()
    prepare(cli)
    old = state(cli.workspace)
    fault = Fault(directory, words, status, old, old)
    done = copy(fault, "expected")
    ended = done(*words)
    assert ended.returncode == status, (ended.returncode, ended.stderr.decode())
    return fault._replace(new=state(done.workspace))


def copy(fault: Fault, name: str) -> Cli:
    base = fault.directory / name
    shutil.rmtree(base, ignore_errors=True)
    subprocess.run(["cp", "-a", str(fault.directory / "template"), str(base)], check=True)
    return cli_at(base)


def points(fault: Fault, within: str, first: str = "") -> list[Point]:
    """The program's own calls from the first that names `within` to the last that does.

    `first`: only from the writing of the file of this name, under its temporary one.
    """
    cli = copy(fault, "traced")
    log = fault.directory / "strace.log"
    argv = ["strace", "-y", "-s", "300", "-o", str(log), "-e", "trace=" + ",".join(CALLS)]
    assert cli.spawn([*argv, *cli.argv(*fault.words)]).returncode == fault.status
    found = read_points(log)
    named = [number for number, (_, line) in enumerate(found) if within in line]
    start = named[0]
    if first:
        renamed = next(line for _, line in found if f'{first}")' in line)
        temporary = renamed.partition('"')[2].partition('"')[0]
        start = next(number for number, (_, line) in enumerate(found) if temporary in line)
    return [point for point, _ in found[start : named[-1] + 1]]


def announced(cli: Cli) -> bool:
    """Whether the kill left something begun."""
    return any((cli.workspace / ".manifold" / "journal").glob("*/intent.json"))


def verdict(fault: Fault, cli: Cli) -> str:
    """After the next call: "old" or "new", nothing in between, nothing lost, nothing left over."""
    looked = cli("recover", "list")
    assert looked.returncode == 0, f"the next call failed: {looked.stderr.decode()}"
    if b"interrupted: " in looked.stderr:  # looking finishes nothing, and names what does
        assert b"finish it: `substrate fsck --repair`" in looked.stderr
        following = cli("fsck", "--repair")
        assert following.returncode == 0, f"not finished: {following.stderr.decode()}"
    found = state(cli.workspace)
    which = "old" if found == fault.old else "new" if found == fault.new else "mixed"
    assert which != "mixed", (
        f"neither old {_difference(found, fault.old)} nor new {_difference(found, fault.new)}"
    )
    if which == "new":
        lost = lost_contents(cli.workspace, fault.old.tree)
        assert lost == [], f"nowhere any more: {lost}"
    root = cli.workspace
    left = [p.name for p in (root / ".manifold" / "journal").glob("*")]
    left += [p.name for p in (root / ".git").glob("index.*")]
    assert left == [], f"left over: {left}"
    assert git(root, "fsck", "--strict", "--no-dangling") == b""
    return which


def _difference(found: State, wanted: State) -> list[str]:
    out = differences(found.tree, wanted.tree)
    names = [n for n in ("entries", "head", "refs") if getattr(found, n) != getattr(wanted, n)]
    return out + names


def lost_contents(root: Path, before: Tree) -> list[bytes]:
    """Paths whose bytes are neither at their old place nor reachable from a ref."""
    reachable = {line[:40] for line in git(root, "rev-list", "--objects", "--all").split(b"\n")}
    now = tree(root)
    return [
        path
        for path, seen in before.items()
        if seen.kind in ("file", "symlink")
        and now.get(path) != seen
        and blob(seen.content) not in reachable
    ]


def write(root: Path, name: str | bytes, text: str) -> None:
    path = os.path.join(os.fsencode(root), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
