"""How often a project cannot be removed right after a command, and which file was in the way.

    python bench/removal.py [--rounds N] [--way rm,rmtree] [--pauses 0,5,20,60]
                            [--program substrate] [--dir DIRECTORY] [--home DIRECTORY]

Each round makes a project, runs one to three commands there, with and without changes, waits for
some milliseconds, and removes it: with ``rm -rf`` or like a Python program. Work that the daemon is
still doing there can make this fail. The report lists each failed removal with its message and the
files that were left, and whether the project reappeared afterwards. With `--dir` on another file
system than `--home`, worlds wait in the project itself: see docs/decisions/0030-a-world-ahead.md.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_COMMANDS = (
    "true",
    "echo {n} > made",
    "mkdir -p d/{n} && echo {n} > d/{n}/file",
    "ls",
    "rm -f made",
)
#: After this nothing of a command is under way any more.
_SETTLED_S = 0.15
_OWN = re.compile(r"(ahead-\d+-)?wld_\w+|[0-9a-f]{38,40}|(?<=objects/)[0-9a-f]{2}|\.tmp-[\w-]+")


def _rm(project: Path) -> str:
    done = subprocess.run(["rm", "-rf", str(project)], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def _rmtree(project: Path) -> str:
    try:
        shutil.rmtree(project)
    except OSError as error:
        return str(error)
    return ""


_WAYS: dict[str, Callable[[Path], str]] = {"rm": _rm, "rmtree": _rmtree}


class Tally:
    def __init__(self) -> None:
        self.rounds = 0
        self.failed: collections.Counter[tuple[str, int]] = collections.Counter()
        self.left: collections.Counter[str] = collections.Counter()
        self.said: collections.Counter[str] = collections.Counter()
        self.came_back = 0


def _round(
    tally: Tally, project: Path, number: int, way: str, pause_ms: int, run: list[str]
) -> None:
    project.mkdir()
    for name in ("a", "b/c"):
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    if number % 2:
        subprocess.run(["git", "init", "-q", str(project)], check=True)
    for n in range(1 + number % 3):
        command = _COMMANDS[(number + n) % len(_COMMANDS)].format(n=n)
        subprocess.run([*run, command], cwd=project, check=True, stdout=subprocess.DEVNULL)
    time.sleep(pause_ms / 1000)
    said = _WAYS[way](project)
    tally.rounds += 1
    left = sorted(str(path.relative_to(project)) for path in project.rglob("*"))
    if said or project.exists():
        tally.failed[way, pause_ms] += 1
        tally.said.update(_plain(line.replace(f"{project}/", "")) for line in said.splitlines())
        tally.left.update(_plain(path) for path in left)
        _rmtree_quietly(project)
    time.sleep(_SETTLED_S)
    if project.exists():
        tally.came_back += 1
        tally.left.update(
            f"came back: {_plain(str(p.relative_to(project)))}" for p in project.rglob("*")
        )
        _rmtree_quietly(project)


def _rmtree_quietly(project: Path) -> None:
    time.sleep(_SETTLED_S)
    shutil.rmtree(project, ignore_errors=True)


def _plain(text: str) -> str:
    return _OWN.sub(lambda found: "<ahead>" if found[1] else "<id>", text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether a project goes, right after a command.")
    parser.add_argument("--rounds", type=int, default=240)
    parser.add_argument("--way", default="rm")
    parser.add_argument("--pauses", default="0,5,20,60")
    parser.add_argument("--program", default="substrate")
    parser.add_argument("--dir", default=None)
    parser.add_argument("--home", default=None)
    args = parser.parse_args()
    run = [args.program, "-c"]
    with (
        tempfile.TemporaryDirectory(dir=args.dir) as where,
        tempfile.TemporaryDirectory(dir=args.home or args.dir) as home,
    ):
        os.environ |= {"SUBSTRATE_HOME": home, "SUBSTRATE_SOCKET": f"{home}/s.sock"}
        first = Path(where, "first")
        first.mkdir()
        subprocess.run([*run, "true"], cwd=first, check=True)  # it starts a daemon
        time.sleep(2)
        tally = Tally()
        try:
            pauses_ms = [int(each) for each in args.pauses.split(",")]
            turns = itertools.cycle(itertools.product(args.way.split(","), pauses_ms))
            for turn, (way, pause_ms) in zip(range(args.rounds), turns, strict=False):
                # Each pause meets each number of commands, and a git repository as often as none.
                number = turn + turn // 8
                _round(tally, Path(where, f"p{number}"), number, way, pause_ms, run)
        finally:
            subprocess.run([args.program, "daemon", "stop"], check=False, stdout=subprocess.DEVNULL)
            time.sleep(0.5)
    print(f"{sum(tally.failed.values())} of {tally.rounds} failed, {tally.came_back} came back")
    for (way, pause_ms), count in sorted(tally.failed.items()):
        print(f"  {way}, after {pause_ms} ms: {count}")
    for title, counted in (("said", tally.said), ("left", tally.left)):
        for text, count in counted.most_common(25):
            print(f"  {title} {count:4} × {text}")
    return 1 if tally.failed or tally.came_back else 0


if __name__ == "__main__":
    sys.exit(main())
