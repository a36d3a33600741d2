"""Work of the context graph that once grew by the square: each at n and at 4n, and its growth.

    python bench/cliffs_graph.py [--files 2500] [--chain 2000]

"next, go gone": every file has a class with a method `go` and calls `go`; five files lose it.
"next, class gone": the classes of five files get other names. "next, five emptied": so it says.
"next, new": a file `sys.py` comes, which most files import by that name, from elsewhere.
"delta" and "impact": one file with a chain of n functions, each calling the next; the last one
changes. Figures are the installed `ctx` as a process, start-up included. Growth is that of the
processor time over the time at no work ("already indexed"), which others' load does not change:
4.0 is linear, 4.6 is n log n at these sizes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from bench.graph import CTX, Took, ctx, fast_import, module, pieces, row, source  # noqa: E402

BODIES = pieces()


def text(number: int, total: int, method: str = "go", owner: str = "K") -> str:
    unit, body = f"unit_{number}", BODIES[number % len(BODIES)]
    return source(number, total, body, unit) + (
        f"\n\nclass {owner}{number}:\n    def {method}(self):\n        return self.step()\n\n"
        f"    def step(self):\n        return {unit}(1)\n\n\n"
        f"def drive(x):\n    x.go()\n    return K{number}().go()\n"
    )


def commit(root: Path, files: dict[str, str], number: int) -> None:
    when = 1_700_000_000 + number
    out = bytearray(b"commit refs/heads/main\ncommitter b <b@b> %d +0000\ndata 4\nwork\n" % when)
    if number:
        out += b"from refs/heads/main^0\n"
    for name, content in files.items():
        data = content.encode()
        out += b"M 644 inline %s\ndata %d\n%s\n" % (name.encode(), len(data), data)
    fast_import(root, bytes(out))


def repository(root: Path, files: dict[str, str]) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    (root / ".git/info/exclude").write_text(".ctx/\n")
    commit(root, files, 0)
    ctx(root, "init")
    ctx(root, "index")


def next_commits(scratch: Path, total: int) -> dict[str, Took]:
    root = scratch / f"files{total}"
    repository(root, {module(n): text(n, total) for n in range(total)})
    changes: dict[str, Callable[[int], str]] = {
        "next, a comment": lambda n: text(n, total) + "# more\n",
        "next, go gone": lambda n: text(n, total, "went"),
        "next, go back": lambda n: text(n, total),
        "next, class gone": lambda n: text(n, total, owner="J"),
        "next, five emptied": lambda n: "",
    }
    took = {"already indexed": ctx(root, "index")}
    for number, (name, change) in enumerate(changes.items(), 1):
        five = range(0, total, total // 5)
        commit(root, {module(n): change(n) for n in five}, number)
        took[name] = ctx(root, "index")
    commit(root, {"pkg/d1/sys.py": "def exit():\n    return 1\n"}, len(changes) + 1)
    took["next, new: a name all know"] = ctx(root, "index")
    return took


def chains(scratch: Path, length: int) -> dict[str, Took]:
    root = scratch / f"chain{length}"
    links = [f"def f{n}():\n    return f{n + 1}()\n" for n in range(length)]
    repository(root, {"chain.py": "\n\n".join([*links, f"def f{length}():\n    return 1\n"])})
    commit(root, {"chain.py": "\n\n".join([*links, f"def f{length}():\n    return 2\n"])}, 1)
    ctx(root, "index")
    return {
        "already indexed": ctx(root, "index"),
        "delta": ctx(root, "delta", "--base", "HEAD~1", "--head", "HEAD"),
        "impact": ctx(root, "impact", "HEAD"),
    }


def compare(what: str, measure: Callable[[Path, int], dict[str, Took]], n: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-cliffs-") as scratch:
        few, many = measure(Path(scratch), n), measure(Path(scratch), 4 * n)
    print(f"{what}: {n}, then {4 * n}")
    for name, took in many.items():
        before = few[name].cpu - few["already indexed"].cpu
        after = took.cpu - many["already indexed"].cpu
        growth = f"growth {after / before:.1f}" if before > 0.005 else ""
        row(f"{name}, {n}", few[name])
        row(f"{name}, {4 * n}", took, growth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=2500)
    parser.add_argument("--chain", type=int, default=2000)
    args = parser.parse_args()
    print(f"load before we began: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    compare("files", next_commits, args.files)
    compare("a chain of calls", chains, args.chain)


if __name__ == "__main__":
    if not CTX or not shutil.which("git"):
        sys.exit("ctx is not installed: pip install -e .")
    main()
