"""What a rewrite and a search cost, beside git in the same run.

    python bench/rewrite.py [--files 100000] [--rounds 5]

A rewrite where 10 files differ is to stay within twice of `git checkout` of the same two commits;
a search over 100 snapshots is to beat `git grep` run on each. Ratios count, not durations.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ENV = {
    # An installed program has its bytecode: without it, most of the time would be the compiler's.
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "bench@example.invalid" for who in ("AUTHOR", "COMMITTER")
       for what in ("NAME", "EMAIL")},
}  # fmt: skip


def run(root: Path, *argv: str) -> bytes:
    return subprocess.run(argv, cwd=root, env=ENV, check=True, capture_output=True).stdout


def substrate(root: Path, *words: str) -> bytes:
    return run(root, sys.executable, "-m", "substrate", *words)


def timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000


def repository(root: Path, files: int) -> None:
    root.mkdir()
    run(root, "git", "init", "-q", "-b", "main")
    run(root, "git", "config", "gc.auto", "0")  # it would run beside what is measured
    for number in range(files):
        directory = root / f"d{number // 5000}" / f"s{number // 100}"
        if number % 100 == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number % 100}.txt").write_text(f"file {number}\n" * 10)
    run(root, "git", "add", ".")
    run(root, "git", "commit", "-qm", "one")
    run(root, "git", "branch", "one")
    for number in range(0, files, max(1, files // 10)):
        file = root / f"d{number // 5000}" / f"s{number // 100}" / f"f{number % 100}.txt"
        file.write_text(file.read_text() + "changed\n")
    run(root, "git", "commit", "-qam", "two")
    run(root, "git", "branch", "two")
    run(root, "git", "gc", "-q")


def rewrites(root: Path, rounds: int) -> None:
    """In turn, so that whatever else the machine does meets all of them alike."""
    git, ours, work = [], [], []
    steps = (("two", "one"), ("one", "two"))

    def move(old: str, new: str) -> float:
        return timed(lambda: substrate(root, "rewrite", "--base", old, "--target", new))

    move("two", "two")  # compiles what is not compiled yet
    for _ in range(rounds):
        for old, new in steps:
            git.append(timed(lambda new=new: run(root, "git", "checkout", "-q", new)))  # type: ignore[misc]
            ours += [move(new, old), move(old, new)]
        (root / "mine.txt").write_text("untracked work\n")
        work += [move(old, new) for old, new in steps]
        (root / "mine.txt").unlink()
    base = statistics.median(git)
    for name, figures in (("git checkout", git), ("rewrite", ours), ("rewrite, with work", work)):
        middle = statistics.median(figures)
        print(f"{name:<22}{middle:8.0f} ms   {middle / base:5.2f} x")


def searches(root: Path, snapshots: int) -> None:
    for number in range(snapshots):
        (root / "note.txt").write_text(f"needle {number}\n")
        (root / "d0" / "s0" / "f1.txt").write_text(f"edit {number}\n" * 10)
        old, new = ("two", "one") if number % 2 == 0 else ("one", "two")
        substrate(root, "rewrite", "--base", old, "--target", new)
    refs = run(root, "git", "for-each-ref", "--format=%(refname)", "refs/manifold").decode().split()
    git = timed(lambda: [run(root, "git", "grep", "-F", "needle", ref) for ref in refs])
    ours = timed(lambda: substrate(root, "recover", "search", "needle"))
    print(f"{len(refs)} snapshots: git grep on each {git:.0f} ms, recover search {ours:.0f} ms,"
          f" {git / ours:.1f} x faster")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--search-files", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository(Path(scratch, "big"), args.files)
        rewrites(Path(scratch, "big"), args.rounds)
        repository(Path(scratch, "small"), args.search_files)
        searches(Path(scratch, "small"), args.snapshots)


if __name__ == "__main__":
    main()
