"""Work on the tree that once grew by more than the change: each at n and at 8n, and its growth.

    python bench/cliffs_tree.py [--files 1000] [--depth 75] [--only removal,depth,watched,copy,disk]

"removal": n files are removed by a command, brought back by undo, removed again by redo; undo and
redo are also a multiple of the removal's own record. "depth": one edit, n directories down.
"watched": checkpoint and undo of one file in a project of n files that the daemon watches.
"copy": first use, the whole call, in a fresh copy of a git project (its index is stale).
"disk": what the store takes after 100 one-line edits of a git project, in MiB of blocks; packs that
are hard links to the project's own are not counted.

Figures are processor time of the installed `substrate` without a daemon, its children included;
of "watched", the shortest of five calls by the clock. 8.0 is linear, 1.0 is flat.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SUBSTRATE = str(Path(sys.executable).with_name("substrate"))
Took = dict[str, float]


def call(root: Path, *words: str) -> str:
    done = subprocess.run([SUBSTRATE, *words], cwd=root, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def processor_s(root: Path, *words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(root, *words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tree(root: Path, files: int) -> Path:
    for number in range(files):
        path = root / "d" / str(number // 100) / f"f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 3)
    return root


def removal(root: Path, files: int) -> Took:
    tree(root, files)
    call(root, "-c", "true")
    took = {"removed": processor_s(root, "-c", "rm -rf d")}
    took |= {word: processor_s(root, word) for word in ("undo", "redo")}
    for word in ("undo", "redo"):
        print(f"  {word} of {files:,} files: {took[word] / took['removed']:.2f} x the removal")
    return took


def depth(root: Path, levels: int) -> Took:
    below = root / "/".join(["d"] * levels)
    below.mkdir(parents=True)
    (below / "f.txt").write_text("x\n")
    call(root, "-c", "true")
    words = f"echo y >> {below.relative_to(root)}/f.txt"
    return {"edit, deep down": min(processor_s(root, "-c", words) for _ in range(3))}


def watched(root: Path, files: int) -> Took:
    tree(root, files)
    call(root, "-c", "true")
    took: Took = {}
    for _ in range(5):
        call(root, "-c", "echo y >> d/0/f1.txt")
        for words in (["checkpoint", "--json"], ["undo", "--json"]):
            known, start = "", 0.0
            while known != "watched":
                if words[0] == "undo" and known:
                    call(root, "redo")
                start = time.perf_counter()
                known = json.loads(call(root, *words))["base_known"]
            took[words[0]] = min(took.get(words[0], 1e9), time.perf_counter() - start)
    return took


def committed(root: Path) -> None:
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"], ["repack", "-adq"]):
        subprocess.run([*git, *words], cwd=root, check=True)


def copy(root: Path, files: int) -> Took:
    committed(tree(root, files))
    fresh = root.with_name(root.name + "-copy")
    shutil.copytree(root, fresh)
    time.sleep(3)  # a file that is younger than that is read again by the scan
    return {"first use of a copy": processor_s(fresh, "-c", "true")}


def disk(root: Path, files: int) -> Took:
    committed(tree(root, files))
    call(root, "-c", "true")
    took = {"disk, first use": disk_mib(root)}
    for number in range(100):
        place = f"d/{number % (files // 100)}"
        call(root, "-c", f"echo edit >> {place}/f{number % (files // 100) * 100}.txt")
    return took | {"disk, 100 edits": disk_mib(root)}


def disk_mib(root: Path) -> float:
    found = [path.lstat() for path in (root / ".substrate-git").rglob("*")]
    return sum(one.st_blocks for one in found if one.st_nlink == 1) / 2048


WORK: dict[str, Callable[[Path, int], Took]] = {
    "removal": removal, "depth": depth, "watched": watched, "copy": copy, "disk": disk,
}  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    words.add_argument("--files", type=int, default=1000)
    words.add_argument("--depth", type=int, default=75)
    words.add_argument("--only", default=",".join(WORK))
    args = words.parse_args()
    print(f"load before we began: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="bench-cliffs-") as scratch:
        os.environ["SUBSTRATE_HOME"] = f"{scratch}/home"
        os.environ["SUBSTRATE_SOCKET"] = f"{scratch}/run/s.sock"
        for name in args.only.split(","):
            os.environ["SUBSTRATE_DAEMON"] = "" if name == "watched" else "off"
            few = args.depth if name == "depth" else args.files
            small, large = (WORK[name](_fresh(scratch, name, n), n) for n in (few, 8 * few))
            for row in small:
                growth = large[row] / small[row]
                unit = "MiB" if name == "disk" else "s"
                print(
                    f"{row:24}{few:>8,}{small[row]:>8.2f} {unit}"
                    f"{8 * few:>8,}{large[row]:>8.2f} {unit}   growth {growth:.1f}"
                )
        os.environ["SUBSTRATE_DAEMON"] = ""
        subprocess.run([SUBSTRATE, "daemon", "stop"], check=False, capture_output=True)


def _fresh(scratch: str, name: str, n: int) -> Path:
    root = Path(scratch, f"{name}{n}")
    root.mkdir()
    return root


if __name__ == "__main__":
    main()
