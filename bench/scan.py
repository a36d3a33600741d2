"""The scan beside ``git status`` on the same trees: ratios, and how cost grows with the tree.

    python bench/scan.py [--files 1000,10000,100000] [--rounds 7] [--dir DIRECTORY]

Every figure is a median over rounds in which the two take turns, so that a busy machine weighs
on both. "scan" includes loading the cache; both run with a warm page cache.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.trees import edit, make_tree  # noqa: E402
from substrate.workspace.exclude import Exclusions  # noqa: E402
from substrate.workspace.scan.tree_scan import StatCache, scan  # noqa: E402

GIT = ["git", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"]


class Hashes:
    """Hashes what it is given and keeps nothing: the scan's cost without a store's."""

    def add_blob(self, data: bytes) -> bytes:
        return hashlib.sha1(b"blob %d\0" % len(data) + data).digest()


def run_git(root: Path, *words: str) -> None:
    subprocess.run([*GIT, *words], cwd=root, check=True, stdout=subprocess.DEVNULL)


def run_scan(
    root: Path, cache_path: Path, *, save: bool = False, workers: int | None = None
) -> int:
    cache = StatCache.load(cache_path)
    result = scan(root, cache, Exclusions.load(root), Hashes(), workers=workers)
    if save:
        cache.save(cache_path, describes=b"bench")
    return len(result.seen)


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def in_turns(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The median of each, in milliseconds."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for times, work in zip(taken, works, strict=True):
            times.append(timed(work))
    return [statistics.median(times) for times in taken]


def measure(base: Path, files: int, rounds: int) -> list[tuple[str, float, float]]:
    """(what, scan ms, git status ms) for one size of tree."""
    root, cache_path = base / "tree", base / "cache"
    make_tree(root, files)
    run_git(root, "init", "-q")
    run_git(root, "add", "-A")
    user = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    subprocess.run([*GIT, *user, "commit", "-q", "-m", "tree"], cwd=root, check=True)
    first = timed(lambda: run_scan(root, cache_path, save=True))
    # Both mistrust files that were written a moment ago: let them grow old, look once more.
    time.sleep(2.1)
    run_scan(root, cache_path, save=True)
    run_git(root, "status")

    def status() -> None:
        run_git(root, "status", "--porcelain")

    rows = [("first scan, everything read", first, float("nan"))]
    ours, theirs = in_turns(rounds, lambda: run_scan(root, cache_path), status)
    rows.append(("unchanged", ours, theirs))
    alone, _ = in_turns(rounds, lambda: run_scan(root, cache_path, workers=1), status)
    rows.append(("unchanged, one process", alone, theirs))
    for changed in (1, 100):
        edit(root, files, changed)
        time.sleep(0.3)
        ours, theirs = in_turns(rounds, lambda: run_scan(root, cache_path), status)
        rows.append((f"{changed} changed", ours, theirs))
        run_scan(root, cache_path, save=True)
    shutil.rmtree(base)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", type=Path, default=None, help="where to make the trees")
    options = parser.parse_args()
    sizes = [int(text) for text in options.files.split(",")]
    before: dict[str, float] = {}
    print(f"{'files':>8}  {'what':<28} {'scan ms':>9} {'git ms':>9} {'ratio':>6} {'growth':>7}")
    for files in sizes:
        base = Path(tempfile.mkdtemp(prefix="substrate-bench-", dir=options.dir))
        for what, ours, theirs in measure(base, files, options.rounds):
            ratio = f"{ours / theirs:.2f}" if not math.isnan(theirs) else "-"
            grown = f"{ours / before[what]:.1f} x" if what in before else "-"
            shown = f"{theirs:9.1f}" if not math.isnan(theirs) else f"{'-':>9}"
            print(f"{files:>8}  {what:<28} {ours:>9.1f} {shown} {ratio:>6} {grown:>7}", flush=True)
            before[what] = ours
    print(f"\n{os.cpu_count()} processors, Python {sys.version.split()[0]}; medians of turns")


if __name__ == "__main__":
    main()
