"""The context graph: cold, the next commit, already indexed, delta, memory, disk over many commits.

    python bench/graph.py [--files 1000,10000,100000] [--rounds 5] [--commits 100]

The files are pieces of the standard library's own source, cut between top-level statements to
about 2.5 KB, each with a header of its own (so that no two blobs are equal) that imports and calls
functions of other files: groups of twenty, whose hubs form a tree. Every figure is the installed
`ctx` as a process, start-up included; figures are medians. Memory is the largest sum over all
processes of their proportional set sizes. On a machine that others use, too, the processor time
over the number of cores says what a quiet one would take.
"next, renamed" also renames a function that twenty other files import and call.

For comparison with the cold index, tree-sitter alone reads the same files on as many cores: it
makes their trees and the matches of the patterns, and discards them. The ratio says what an index
costs on any machine; seconds say how fast this one is today.
"""

from __future__ import annotations

import argparse
import ast
import os
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TARGET_BYTES = 2500
PER_DIRECTORY = 50
CHANGED = 5


def pieces() -> list[str]:
    """Runs of top-level statements of the standard library, each near the target size."""
    found = []
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = file.read_text("utf-8", "replace")
        try:
            body = ast.parse(text).body
        except SyntaxError:
            continue
        lines = text.split("\n")
        start = 0
        for node in body:
            end = node.end_lineno or 0
            piece = "\n".join(lines[start:end])
            if len(piece) >= TARGET_BYTES * 0.8:
                if len(piece) <= TARGET_BYTES * 1.25:
                    found.append(piece)
                start = end
    return found


def module(number: int) -> str:
    return f"pkg/d{number // PER_DIRECTORY}/m{number}.py"


def source(number: int, total: int, body: str, unit: str, edition: int = 0) -> str:
    hub = number // 20 * 20
    # Groups of twenty that use each other; their hubs form a tree, as layers of a project do.
    near = hub + (number + 1) % 20 if number != hub else hub // 40 * 20
    near = min(near, total - 1)
    imports = [
        f"from {module(other)[:-3].replace('/', '.')} import {name}"
        for other, name in ((near, f"unit_{near}"), (hub, f"unit_{hub}"))
    ]
    return (
        "\n".join(imports)
        + f"\n\n\ndef {unit}(value):\n    # edition {edition}\n"
        + f"    return unit_{near}(unit_{hub}(value))\n\n\n{body}\n"
    )


def make_repository(root: Path, total: int, bodies: list[str]) -> int:
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    (root / ".git/info/exclude").write_text(".ctx/\n")
    out = bytearray(b"commit refs/heads/main\ncommitter b <b@b> 1700000000 +0000\ndata 5\nfirst\n")
    size = 0
    for number in range(total):
        text = source(number, total, bodies[number % len(bodies)], f"unit_{number}").encode()
        size += len(text)
        out += b"M 644 inline %s\ndata %d\n%s\n" % (module(number).encode(), len(text), text)
    fast_import(root, bytes(out))
    return size


def fast_import(root: Path, stream: bytes) -> None:
    argv = ["git", "-C", str(root), "fast-import", "--quiet", "--force"]
    subprocess.run(argv, input=stream, check=True)


def next_commit(
    root: Path, total: int, bodies: list[str], edition: int, renamed: bool = False
) -> None:
    """A commit that changes five files somewhere."""
    out = b"commit refs/heads/main\ncommitter b <b@b> %d +0000\ndata 4\nnext\n" % (
        1_700_000_000 + edition
    )
    out += b"from refs/heads/main^0\n"
    for step in range(CHANGED):
        number = (edition * 977 + step * 7919) % total // 20 * 20
        name = f"unit_{number}" + ("_renamed" if renamed and step == 0 else "")
        body = bodies[number % len(bodies)]
        text = source(number, total, body, name, edition).encode()
        out += b"M 644 inline %s\ndata %d\n%s\n" % (module(number).encode(), len(text), text)
    fast_import(root, out)


def parser_alone(total: int, bodies: list[str]) -> Took:
    """Parse and query what `make_repository` wrote, in as many processes as there are cores."""
    from substrate.graph.parse.parsers import tools

    texts = [
        source(number, total, bodies[number % len(bodies)], f"unit_{number}").encode()
        for number in range(total)
    ]
    python, count = tools("Python"), os.cpu_count() or 1
    started, worked = time.perf_counter(), children_cpu_s()
    children = []
    for first in range(count):
        child = os.fork()
        if child == 0:
            for text in texts[first::count]:
                python.found(python.parser.parse(text).root_node)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return Took(time.perf_counter() - started, children_cpu_s() - worked)


class Memory(threading.Thread):
    """Samples what a process and everything below it hold."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak_kb, self.ended = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.peak_kb = max(self.peak_kb, sum(map(pss_kb, family(self.pid))))


def family(pid: int) -> list[int]:
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(found for child in below for found in family(int(child)))]


def pss_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


class Took(NamedTuple):
    """Seconds by the clock, and of processor time of all processes."""

    wall: float
    cpu: float


def median(values: Iterable[Took]) -> Took:
    listed = list(values)
    return Took(
        statistics.median(one.wall for one in listed), statistics.median(one.cpu for one in listed)
    )


def ctx(root: Path, *words: str) -> Took:
    started, worked = time.perf_counter(), children_cpu_s()
    argv = [CTX, "-C", str(root), *words]
    done = subprocess.run(argv, capture_output=True, check=False, env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(done.stderr.decode())
    return Took(time.perf_counter() - started, children_cpu_s() - worked)


def ctx_peak_kb(root: Path, *words: str) -> int:
    """The memory it takes, all its processes together."""
    argv = [CTX, "-C", str(root), *words]
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    memory = Memory(child.pid)
    memory.start()
    status = child.wait()
    memory.ended.set()
    memory.join()
    if status != 0:
        sys.exit(f"ctx ended with status {status}")
    return memory.peak_kb


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tree_bytes(root: Path) -> int:
    return sum(f.stat().st_blocks * 512 for f in root.rglob("*") if f.is_file())


def row(name: str, took: Took, note: str = "") -> None:
    cpu = f"{took.cpu * 1000:.0f} ms of processor time"
    print(f"  {name:<30} {took.wall * 1000:8.0f} ms, {cpu:<32} {note}", flush=True)


def measure(total: int, rounds: int, commits: int, bodies: list[str], scratch: Path) -> Took:
    root = scratch / f"files{total}"
    size = make_repository(root, total, bodies)
    print(f"{total} files, {size / 1e6:.1f} MB")
    ctx(root, "init")
    cold, alone = [], []
    for _ in range(min(rounds, 3) if total < 100_000 else 1):
        shutil.rmtree(root / ".ctx/graph")
        cold.append(ctx(root, "index"))
        alone.append(parser_alone(total, bodies))
    # Once more for the memory: to ask for it takes 3 % of two cores, which the others keep.
    shutil.rmtree(root / ".ctx/graph")
    peak = ctx_peak_kb(root, "index")
    took = median(cold)
    rate = size / 1e6 / took.wall
    quiet = size / 1e6 / (took.cpu / min(2, os.cpu_count() or 1))
    note = f"{rate:.1f} MB/s ({quiet:.1f} by processor time), {peak / 1024:.0f} MB memory"
    row("cold", took, note)
    parsed = median(alone)
    rate = size / 1e6 / parsed.wall
    note = f"{rate:.1f} MB/s; cold takes {took.wall / parsed.wall:.2f} × that"
    row("tree-sitter's part alone", parsed, note)
    row("already indexed", median(ctx(root, "index") for _ in range(rounds)))
    edition = 0
    times: dict[str, list[Took]] = {"next, 5 changed": [], "next, renamed": []}
    for _ in range(rounds):
        for name, values in times.items():
            edition += 1
            next_commit(root, total, bodies, edition, renamed=name == "next, renamed")
            values.append(ctx(root, "index"))
    for name, values in times.items():
        row(name, median(values))
    deltas = [ctx(root, "delta", "--base", "HEAD~1", "--head", "HEAD") for _ in range(rounds)]
    row("delta of neighbours", median(deltas))
    if commits:
        disk(root, total, commits, bodies, edition)
    return median(times["next, 5 changed"])


def disk(root: Path, total: int, commits: int, bodies: list[str], edition: int) -> None:
    graph = root / ".ctx/graph"
    before = tree_bytes(graph)
    times = []
    for _ in range(commits):
        edition += 1
        next_commit(root, total, bodies, edition)
        times.append(ctx(root, "index"))
    grown = (tree_bytes(graph) - before) / commits
    newest = max((graph / "snapshots").iterdir(), key=lambda d: d.stat().st_mtime)
    plain = tree_bytes(newest)
    row(
        f"each of {commits} commits", median(times),
        f"{grown / 1024:.0f} KB of disk each; a plain snapshot is {plain / 1e6:.1f} MB",
    )  # fmt: skip
    row("the oldest of them, unfolded", ctx(root, "index", "--commit", f"HEAD~{commits}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=100, help="for disk per commit; at 10000")
    args = parser.parse_args()
    bodies = pieces()
    average = statistics.mean(map(len, bodies))
    print(f"{len(bodies)} pieces of the standard library, {average:.0f} characters on average")
    print(f"load before we began: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    after: dict[int, Took] = {}
    with tempfile.TemporaryDirectory(prefix="bench-graph-") as scratch:
        for total in map(int, args.files.split(",")):
            commits = args.commits if total == 10_000 else 0
            after[total] = measure(total, args.rounds, commits, bodies, Path(scratch))
            shutil.rmtree(Path(scratch) / f"files{total}")
    if {10_000, 100_000} <= after.keys():
        few, many = after[10_000], after[100_000]
        print(
            f"next commit, 100,000 files over 10,000: {many.wall / few.wall:.1f} ×,"
            f" {many.cpu / few.cpu:.1f} × the processor time"
        )


_BESIDE_US = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
#: As installed: byte code is kept, even if this shell disables that.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
CTX = shutil.which("ctx", path=_BESIDE_US) or ""
if __name__ == "__main__":
    if not CTX:
        sys.exit("ctx is not installed: pip install -e .")
    main()
