"""Commands in a tree of 50,000 files: walks of it, and the first command there."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.side_by_side import Bench, Figure, in_turns, timed
from bench.trees import make_tree
from bench.workloads import GIT, quiet

#: For the daemon to do what it does between two calls.
_SETTLES_S = 1.5
#: After so many walks a view must have been used again, or it never is.
_MOST_CALLS = 12


def commit_all(root: Path) -> None:
    """A repository with one commit, packed, as after a clone or a `git gc`: tens of thousands of
    loose objects are not realistic."""
    quiet([*GIT, "init", "-q"], root)
    quiet([*GIT, "add", "-A"], root)
    quiet([*GIT, "commit", "-q", "-m", "tree"], root)
    quiet([*GIT, "repack", "-a", "-d", "-q"], root)


def walk(bench: Bench) -> None:
    """Tree walks: the first after a change, and those that follow, each a call of its own."""
    files = 10_000 if bench.quick else 50_000
    root = bench.workspace("walk")
    make_tree(root, files, size_bytes=400)
    for path in root.rglob("*"):
        os.utime(path, (1, 1))  # git looks at what is as young as its index again and again
    commit_all(root)
    with plain_overlay(bench, root) as plain:
        for command in ("git status", "grep -r --exclude-dir=.substrate-git never-there . || true"):
            _walk_with(bench, root, plain, command, files)


@contextmanager
def plain_overlay(bench: Bench, root: Path) -> Iterator[Path | None]:
    """The kernel's own overlay of the tree with nothing of ours: what any world over one costs."""
    upper, work, at = (bench.workspace(f"plain-{name}") for name in ("upper", "work", "at"))
    options = f"lowerdir={root},upperdir={upper},workdir={work},volatile"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(at)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        yield None
        return
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def _walk_with(bench: Bench, root: Path, plain: Path | None, command: str, files: int) -> None:
    bench.world(f"echo {files} > note", root)  # a change: the next view is a new one
    time.sleep(_SETTLES_S)
    first = timed(lambda: bench.world(command, root))
    before = bench.warm()
    # The daemon notices that commands walk the tree, and sets up its watch.
    for calls in range(1, _MOST_CALLS):
        time.sleep(_SETTLES_S)
        bench.world(command, root)
        if bench.warm() > before:
            print(f"  the view was used again from call {calls} after the first on")
            break
    else:
        print(f"  no view is used again: {bench.why_not_warm()}")
    before = bench.warm()
    # At an agent's pace: the daemon checks the next view while no command waits for it.
    if plain is not None:
        bench.bare(command, plain)
    ours, theirs, kernels = in_turns(
        bench.rounds,
        lambda: bench.world(command, root),
        lambda: bench.bare(command, root),
        lambda: bench.bare(command, plain or root),
        pause_s=_SETTLES_S,
    )
    used = min(bench.warm() - before, bench.rounds)
    name = f"{command.partition(' ')[0]}, {files:,} files"
    bench.say(
        Figure(
            f"{name}, the first after a change",
            f"{first:.0f} ms, bare {theirs:.0f} ms, {first / theirs:.2f} ×",
        )
    )
    bench.say(
        Figure(
            f"{name}, those that follow",
            f"{ours:.0f} ms, bare {theirs:.0f} ms, {ours / theirs:.2f} ×; "
            f"{used} of {bench.rounds} with the view of the last",
            "≤ 1.5 ×",
            ours / theirs <= 1.5,
        )
    )
    if plain is not None:
        bench.say(
            Figure(
                f"{name}, in a plain overlay walked before",
                f"{kernels:.0f} ms, {kernels / theirs:.2f} × bare; "
                f"ours {ours / kernels:.2f} × that",
            )
        )


def first(bench: Bench) -> None:
    """First use of a project: how long until its first command runs, and until it is done."""
    files = 10_000 if bench.quick else 50_000
    for with_git in (True, False):
        before, whole = [], []
        for number in range(2 if bench.quick else 3):
            root = bench.workspace(f"first{with_git}{number}")
            make_tree(root, files)
            if with_git:
                commit_all(root)
            quiet(["find", ".", "-type", "f"], root)
            started = time.time_ns()
            said = bench.world("date +%s%N", root, stdout=subprocess.PIPE)
            before.append((int(said) - started) / 1e6)
            whole.append((time.time_ns() - started) / 1e6)
        until, done = statistics.median(before), statistics.median(whole)
        what = "a git repo" if with_git else "no git"
        limit = 300 if with_git else 3000
        bench.say(
            Figure(
                f"first use, {files:,} files, {what}",
                f"{until:.0f} ms before the command runs, {done:.0f} ms in all",
                "≤ 300 ms before" if with_git else "≤ 3 s in all",
                (until if with_git else done) <= limit,
            )
        )
