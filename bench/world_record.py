"""Record a one-file edit in a world, whole command, in small and large projects.

    python bench/world_record.py [--files 1000,100000] [--rounds 15]

Each round runs `substrate -c 'echo … >> file'` once in every project, in turn, so that a noisy
machine disturbs all of them alike. Prints medians, processor time, and the ratio.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PER_DIRECTORY = 20


def make(root: Path, files: int) -> None:
    for number in range(files // _PER_DIRECTORY):
        directory = root / f"p{number // 100:03d}" / f"d{number:05d}"
        directory.mkdir(parents=True)
        for name in range(_PER_DIRECTORY):
            (directory / f"f{name:02d}.txt").write_text(f"{number} {name}\n" * 5)


def once(root: Path, home: Path, line: str) -> tuple[float, float]:
    env = {**os.environ, "SUBSTRATE_HOME": str(home), "SUBSTRATE_DAEMON": "off"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "substrate", "-c", line], cwd=root, env=env, check=True)
    taken = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return taken * 1000, used * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", default="1000,100000")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    sizes = [int(size) for size in args.files.split(",")]
    top = Path(tempfile.mkdtemp(prefix="substrate-bench-"))
    try:
        for size in sizes:
            make(top / str(size), size)
            once(top / str(size), top / "home", "true")
        os.sync()
        figures: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
        for number in range(args.rounds):
            for size in sizes:
                line = f"echo {number} >> p000/d00003/f01.txt"
                figures[size].append(once(top / str(size), top / "home", line))
        report(figures)
    finally:
        shutil.rmtree(top)


def report(figures: dict[int, list[tuple[float, float]]]) -> None:
    walls = {size: statistics.median(one[0] for one in found) for size, found in figures.items()}
    used = {size: statistics.median(one[1] for one in found) for size, found in figures.items()}
    for size in figures:
        print(f"{size:>8} files: {walls[size]:7.1f} ms, {used[size]:6.1f} ms of processor time")
    sizes = sorted(figures)
    if len(sizes) > 1:
        small, large = sizes[0], sizes[-1]
        print(
            f"{large} against {small}: {walls[large] / walls[small]:.2f} x,"
            f" processor {used[large] / used[small]:.2f} x (reach: 1.3)"
        )


if __name__ == "__main__":
    main()
