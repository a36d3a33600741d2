"""Commands in a world beside the same commands bare: the tables in docs/performance.md.

    python bench/world.py [--quick] [--only spawn,size,changed,bulk,output,work,walk,first]
                          [--program substrate] [--without-daemon] [--rounds N] [--dir DIRECTORY]

Every figure is a median over rounds in which the two take turns, so that a busy machine weighs on
both. What really applied to the commands (strategy, tier) is read from their spans and printed
first: figures without a world say so. Each workload ends with a check that the tree is the one
that a bare run leaves.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from bench.bulk import bulk_work, prepare  # noqa: E402
from bench.large_trees import first, walk  # noqa: E402
from bench.side_by_side import Bench, Figure, all_in_turns, in_turns, timed  # noqa: E402
from bench.trees import file_path, make_tree  # noqa: E402
from bench.workloads import all_work, difference, fingerprint, quiet  # noqa: E402

#: Between two calls of an agent there is at least as much.
_PAUSE_S = 0.05

_APPEND = """
import glob
for path in sorted(glob.glob("part*/*/*.py"))[:1000]:
    open(path, "ab").write(b"y")
"""
_MAKE_FILES = """
import os
os.mkdir("TARGET")
for n in range(10000):
    open("TARGET/%d" % n, "w").write("%d" % n)
"""


def spawn(bench: Bench) -> None:
    """``substrate -c true`` beside what else starts a command."""
    root = bench.workspace("spawn")
    make_tree(root, 1000)
    others: dict[str, Callable[[], object]] = {
        "bash -c true": lambda: bench.bare("true", root),
        "python -I -S -c pass": lambda: quiet([sys.executable, "-I", "-S", "-c", "pass"], root),
    }
    if shutil.which("bwrap"):
        wrapped = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "bash", "-c", "true"]
        others["bwrap … bash -c true"] = lambda: quiet(wrapped, root)
    rounds = 20 if bench.quick else 100
    taken = all_in_turns(rounds, lambda: bench.world("true", root), *others.values())
    for name, times in zip(others, taken[1:], strict=True):
        bench.say(Figure(name, f"{statistics.median(times):.1f} ms (best {min(times):.1f})"))
    ours, bash, python = (statistics.median(times) for times in taken[:3])
    added = ours - bash
    best = min(taken[0]) - min(taken[1])
    bench.say(
        Figure(
            "substrate -c true, over bare bash -c true",
            f"{ours:.1f} ms, {added:+.1f} ms, {ours / python:.1f} × python -I -S -c pass "
            f"(best of all: {best:+.1f} ms)",
            "≤ 20 ms added, daemon warm",
            added <= 20 if bench.daemon else None,
        )
    )
    ours, bash = in_turns(
        rounds, lambda: bench.world("true", root), lambda: bench.bare("true", root),
        pause_s=_PAUSE_S,
    )  # fmt: skip
    bench.say(Figure("the same, with 50 ms between calls", f"{ours:.1f} ms, {ours - bash:+.1f} ms"))


def size(bench: Bench) -> None:
    """A one-file edit, whole command, at several sizes of project."""
    sizes = (1000, 10_000) if bench.quick else (1000, 10_000, 100_000)
    roots = {}
    for files in sizes:
        roots[files] = bench.workspace(f"size{files}")
        make_tree(roots[files], files)
        bench.world("true", roots[files])

    def edit(files: int) -> Callable[[], object]:
        target = file_path(7, max(1, files // 100))
        return lambda: bench.world(f"echo edit >> {target}", roots[files])

    took = in_turns(bench.rounds, *(edit(files) for files in sizes))
    for files, each in zip(sizes, took, strict=True):
        bench.say(Figure(f"one-file edit, whole command, {files:,} files", f"{each:.1f} ms"))
    ratio = took[-1] / took[0]
    bench.say(
        Figure(
            f"record a one-file edit, {sizes[-1]:,} files vs {sizes[0]:,}", f"{ratio:.2f} ×",
            "≤ 1.3 ×", ratio <= 1.3,
        )
    )  # fmt: skip


def changed(bench: Bench) -> None:
    """1, 100 and 10,000 changed files; 10,000 new ones; 1,000 appended to."""
    files = 12_000
    root, twin = bench.workspace("changed"), bench.workspace("changed-bare")
    for each in (root, twin):
        make_tree(each, files)
    bench.world("true", root)
    find = "find part* -name '*.py' | sort | head -n"
    for count in (1, 100, 10_000):
        append = f"{find} {count} | xargs sh -c 'for f; do echo x >> $f; done' sh"
        rounds = max(3, bench.rounds // 3) if count == 10_000 else bench.rounds
        ours, theirs = in_turns(
            rounds, partial(bench.world, append, root), partial(bench.bare, append, twin)
        )
        bench.say(Figure(f"{count:,} changed files", f"{ours:.0f} ms, bare {theirs:.0f} ms"))
    append = f"python3 -I -S -c '{_APPEND}'"
    ours, theirs = in_turns(
        bench.rounds, lambda: bench.world(append, root), lambda: bench.bare(append, twin)
    )
    bench.say(
        Figure("appending to 1,000 files", f"{ours:.0f} ms, bare {theirs:.0f} ms", "≤ 300 ms",
               ours <= 300)
    )  # fmt: skip
    _new_files(bench, root, twin)


def _new_files(bench: Bench, root: Path, twin: Path) -> None:
    numbers = iter(range(1000))

    def make(where: Path, run: Callable[[str, Path], object]) -> None:
        # Never in place of files just deleted: ext4 is slow there for a while, and that only.
        target = f"new{next(numbers)}"
        code = _MAKE_FILES.replace("TARGET", target)
        run(f"python3 -I -S -c '{code}'", where)

    ours, theirs = in_turns(
        3 if bench.quick else 5, lambda: make(root, bench.world), lambda: make(twin, bench.bare)
    )
    bench.say(
        Figure("10,000 new files", f"{ours:.0f} ms, bare {theirs:.0f} ms, {ours / theirs:.2f} ×",
               "≤ 2.2 × bare", ours / theirs <= 2.2)
    )  # fmt: skip


def bulk(bench: Bench) -> None:
    """Modes, times, a rename and a removal of 10,000 files."""
    rounds = 2 if bench.quick else 4
    root, twin = bench.workspace("bulk"), bench.workspace("bulk-bare")
    for each in (root, twin):
        make_tree(each, 10_000)
        bench.bare(prepare(rounds + 1), each)
    bench.world("true", root)
    for work in bulk_work():
        ours, theirs = (map(work.command, range(rounds + 1)) for _ in range(2))
        took = in_turns(
            rounds,
            partial(_run_next, bench.world, ours, root),
            partial(_run_next, bench.bare, theirs, twin),
        )
        differs = difference(fingerprint(twin), fingerprint(root))
        bench.say(
            Figure(work.name, f"{took[0]:.0f} ms, bare {took[1]:.0f} ms; "
                   + (differs or "the same tree"))
        )  # fmt: skip


def _run_next(run: Callable[[str, Path], object], commands: Iterator[str], root: Path) -> None:
    run(next(commands), root)


def output(bench: Bench) -> None:
    """A gigabyte through the capture, beside tee."""
    root = bench.workspace("output")
    amount = 256 if bench.quick else 1024
    command = f"head -c {amount}M /dev/zero"
    kept = bench.base / "tee"
    # What this process's children took at most, so far, is not told apart: measured in a child.
    ours, tee = in_turns(
        3, lambda: bench.world(command, root), lambda: bench.bare(f"{command} | tee {kept}", root)
    )
    kept.unlink()
    peak = _peak_memory(bench, command, root)
    seconds = ours / 1000 * 1024 / amount
    bench.say(
        Figure("1 GB of captured output", f"{seconds:.2f} s, {peak:.0f} MB; "
               f"tee {tee / 1000 * 1024 / amount:.2f} s",
               "≤ 1.5 s, ≤ 64 MB", seconds <= 1.5 and peak <= 64)
    )  # fmt: skip


def _peak_memory(bench: Bench, command: str, root: Path) -> float:
    """The largest of our processes, in MB: the client's tree, and the daemon if there is one."""
    pid = os.fork()
    if pid == 0:
        try:
            bench.world(command, root)
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            (bench.base / "peak").write_text(str(peak))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    peaks = [int((bench.base / "peak").read_text())]
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(bench.base).encode() in (
                (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            ):
                lines = (entry / "status").read_text().splitlines()
                peaks += [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
        except OSError:
            continue
    return max(peaks) / 1024


def work(bench: Bench) -> None:
    """Builds, tests and unpacking: bare and in a world, from the same start, at the same path."""
    for each in all_work(1 if bench.quick else 4):
        pristine, root = bench.workspace("pristine"), bench.base / "work"
        try:
            each.make(pristine)
        except (OSError, subprocess.CalledProcessError) as error:
            bench.say(Figure(each.name, f"not measured here: {error}"))
            continue
        times: dict[str, list[float]] = {"bare": [], "world": []}
        prints = {}
        for _ in range(2 if bench.quick else 5):
            for how, run in (("bare", bench.bare), ("world", bench.world)):
                while root.exists():  # the daemon may just be making the next world there
                    shutil.rmtree(root, ignore_errors=True)
                shutil.copytree(pristine, root, symlinks=True)
                if how == "world":
                    bench.world("true", root)  # first use is a row of its own
                times[how].append(timed(partial(run, each.command, root)))
                prints[how] = fingerprint(root)
        differs = difference(prints["bare"], prints["world"])
        ours, theirs = (statistics.median(times[how]) for how in ("world", "bare"))
        limit = 1.15 if each.kind == "build" else 2.2
        bench.say(
            Figure(
                each.name,
                f"{ours:.0f} ms, bare {theirs:.0f} ms, {ours / theirs:.2f} ×; "
                + (differs or "the same tree"),
                f"≤ {limit} × bare, the same tree",
                ours / theirs <= limit and not differs,
            )
        )


SECTIONS = {one.__name__: one for one in (spawn, size, changed, bulk, output, work, walk, first)}
ELSEWHERE = (
    ("store write for an edit; made durable", "bench/history.py --only store"),
    ("rescan of 100,000 files", "bench/scan.py"),
    ("ctx index", "bench/graph.py"),
    ("rollback torture", "tests/e2e/test_torture.py"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small trees, few rounds")
    parser.add_argument("--only", default=",".join(SECTIONS))
    beside = Path(sys.executable).parent / "substrate"
    parser.add_argument("--program", default=str(beside if beside.exists() else "substrate"))
    parser.add_argument("--without-daemon", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--dir", type=Path, default=None, help="where to work; a file system counts"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="bench-world-") as directory:
        bench = Bench(args, Path(directory))
        try:
            applied = bench.isolation(bench.workspace("probe"))
            load = os.getloadavg()[0]
            print(f"{platform.platform()}, {os.cpu_count()} cores, load {load:.1f}")
            print(
                f"{applied['strategy']}, tier {applied['tier']}, network {applied['network']}, "
                f"{'daemon' if bench.daemon else 'no daemon'}: {applied['reason']}"
            )
            for name in args.only.split(","):
                print(f"\n{name}: {SECTIONS[name].__doc__}")
                SECTIONS[name](bench)
        finally:
            bench.stop()
        print("\n| Work | Measured | Reach | |\n|---|---|---|---|")
        for figure in bench.figures:
            mark = {True: "yes", False: "**no**", None: ""}[figure.met]
            print(f"| {figure.what} | {figure.measured} | {figure.reach} | {mark} |")
        for what, where in ELSEWHERE:
            print(f"| {what} | `{where}` | | |")


if __name__ == "__main__":
    main()
