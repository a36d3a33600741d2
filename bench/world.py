"""Commands in a world beside the same commands bare: DESIGN's table, row by row.

    python bench/world.py [--quick] [--only spawn,size,changed,bulk,output,work,walk,first]
                          [--program substrate] [--without-agent] [--rounds N] [--dir DIRECTORY]

Every figure is a median over rounds in which the two take turns, so that a busy machine weighs on
both. What really applied to the commands (strategy, tier) is read from their spans and printed
first: figures without a world say so. Each workload ends with a check that the tree is the one
that a bare run leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from bench.bulk import bulk_work, prepare  # noqa: E402
from bench.trees import file_path, make_tree  # noqa: E402
from bench.workloads import GIT, all_work, difference, fingerprint, quiet  # noqa: E402

SECTIONS = ("spawn", "size", "changed", "bulk", "output", "work", "walk", "first")


#: For the agent to do what it does between two calls.
_SETTLES_S = 1.5
#: After so many walks a view must have been used again, or it never is.
_MOST_CALLS = 12

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


class Figure(NamedTuple):
    """One row of the table at the end."""

    what: str
    measured: str
    #: What DESIGN asks for, and whether it is met; None: nothing was promised.
    reach: str = ""
    met: bool | None = None


class Bench:
    """The program under test, with a home of its own, and what was measured so far."""

    def __init__(self, args: argparse.Namespace, base: Path) -> None:
        self.base = base
        self.quick: bool = args.quick
        self.rounds: int = args.rounds or (5 if args.quick else 15)
        self.program: str = args.program
        self.agent = not args.without_agent
        home = base / "home"
        self.env = {
            **{name: value for name, value in os.environ.items() if "SUBSTRATE" not in name},
            "SUBSTRATE_HOME": str(home),
            "SUBSTRATE_SOCKET": str(home / "run" / "substrate.sock"),
        }
        if not self.agent:
            self.env["SUBSTRATE_AGENT"] = "off"
        self.figures: list[Figure] = []

    def workspace(self, name: str) -> Path:
        root = self.base / name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        return root

    def world(self, command: str, cwd: Path, *, stdout: int = subprocess.DEVNULL) -> bytes:
        done = subprocess.run(
            [self.program, "-c", command], cwd=cwd, env=self.env, stdin=subprocess.DEVNULL,
            stdout=stdout, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(
                f"{command!r} failed in a world: {done.stderr.decode(errors='replace')[-800:]}"
            )
        return done.stdout or b""

    def bare(self, command: str, cwd: Path) -> None:
        subprocess.run(
            ["bash", "-c", command], cwd=cwd, check=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def isolation(self, cwd: Path) -> dict[str, str]:
        """What applied to the last command, by its span."""
        self.world("true", cwd)
        lines = (self.base / "home" / "trace.jsonl").read_text().splitlines()
        return dict(json.loads(lines[-1])["isolation"])

    def warm(self) -> int:
        """How many commands have got the view of an earlier one."""
        return int(self._status().get("warm", 0))

    def why_not_warm(self) -> str:
        """In the words of the agent's watcher."""
        watched = self._status().get("watching", [{}])
        return "; ".join(one["still_why_not"] for one in watched if "still_why_not" in one)

    def _status(self) -> dict[str, Any]:
        if not self.agent:
            return {}
        # From elsewhere: who asks in the workspace is served by the process that waits there.
        said = subprocess.run(
            [self.program, "agent", "status", "--json"], cwd=self.base, env=self.env,
            capture_output=True, check=False,
        )  # fmt: skip
        return dict(json.loads(said.stdout)) if said.returncode == 0 else {}

    def say(self, figure: Figure) -> None:
        self.figures.append(figure)
        mark = {True: "  ok", False: "  MISSED", None: ""}[figure.met]
        reach = f"   (reach: {figure.reach}){mark}" if figure.reach else ""
        print(f"  {figure.what}: {figure.measured}{reach}", flush=True)

    def stop(self) -> None:
        if self.agent:
            subprocess.run(
                [self.program, "agent", "stop"], env=self.env, capture_output=True, check=False
            )


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def all_in_turns(
    rounds: int, *works: Callable[[], object], pause_s: float = 0
) -> list[list[float]]:
    """All times of each, in milliseconds; one round first that does not count."""
    taken: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        time.sleep(pause_s)
        for times, work in zip(taken, works, strict=True):
            took = timed(work)
            if number:
                times.append(took)
    return taken


def in_turns(rounds: int, *works: Callable[[], object], pause_s: float = 0) -> list[float]:
    """The median of each; with a pause before each round."""
    taken = all_in_turns(rounds, *works, pause_s=pause_s)
    return [statistics.median(times) for times in taken]


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
            "≤ 20 ms added, agent warm",
            added <= 20 if bench.agent else None,
        )
    )


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
            rounds, lambda c=append: bench.world(c, root), lambda c=append: bench.bare(c, twin)
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
        ours, theirs = (iter(range(rounds + 1)), iter(range(rounds + 1)))
        took = in_turns(
            rounds,
            lambda w=work, n=ours: bench.world(w.command(next(n)), root),
            lambda w=work, n=theirs: bench.bare(w.command(next(n)), twin),
        )
        differs = difference(fingerprint(twin), fingerprint(root))
        bench.say(
            Figure(work.name, f"{took[0]:.0f} ms, bare {took[1]:.0f} ms; "
                   + (differs or "the same tree"))
        )  # fmt: skip


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
    """The largest of our processes, in MB: the client's tree, and the agent if there is one."""
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
                shutil.rmtree(root, ignore_errors=True)
                shutil.copytree(pristine, root, symlinks=True)
                if how == "world":
                    bench.world("true", root)  # first use is a row of its own
                times[how].append(timed(lambda r=run, c=each.command, w=root: r(c, w)))
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


def commit_all(root: Path) -> None:
    """A repository with one commit, packed, as after a clone or git's own tidying: tens of
    thousands of loose objects are nobody's everyday."""
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
    for command in ("git status", "grep -r --exclude-dir=.substrate-git never-there . || true"):
        bench.world(f"echo {files} > note", root)  # a change: the next view is a new one
        time.sleep(_SETTLES_S)
        first = timed(lambda c=command: bench.world(c, root))
        before = bench.warm()
        # The agent sees that somebody walks, and sets up its watch.
        for calls in range(1, _MOST_CALLS):
            time.sleep(_SETTLES_S)
            bench.world(command, root)
            if bench.warm() > before:
                print(f"  the view was used again from call {calls} after the first on")
                break
        else:
            print(f"  no view is used again: {bench.why_not_warm()}")
        before = bench.warm()
        # At an agent's pace: the next view is looked over while nobody waits for it.
        ours, theirs = in_turns(
            bench.rounds,
            lambda c=command: bench.world(c, root),
            lambda c=command: bench.bare(c, root),
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
    parser.add_argument("--without-agent", action="store_true")
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
                f"{'agent' if bench.agent else 'no agent'}: {applied['reason']}"
            )
            for name in args.only.split(","):
                print(f"\n{name}: {globals()[name].__doc__}")
                globals()[name](bench)
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
