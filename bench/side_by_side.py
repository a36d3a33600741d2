"""The program under test beside what it is compared with: figures, rounds taken in turns."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One row of the table at the end."""

    what: str
    measured: str
    #: The aim in docs/performance.md, and whether it is met; None: there is no aim.
    reach: str = ""
    met: bool | None = None


class Bench:
    """The program under test, with a home of its own, and what was measured so far."""

    def __init__(self, args: argparse.Namespace, base: Path) -> None:
        self.base = base
        self.quick: bool = args.quick
        self.rounds: int = args.rounds or (5 if args.quick else 15)
        self.program: str = args.program
        self.daemon = not args.without_daemon
        home = base / "home"
        self.env = {
            **{name: value for name, value in os.environ.items() if "SUBSTRATE" not in name},
            "SUBSTRATE_HOME": str(home),
            "SUBSTRATE_SOCKET": str(home / "run" / "substrate.sock"),
        }
        if not self.daemon:
            self.env["SUBSTRATE_AGENT"] = "off"  # the former name: old versions know it, too
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
        """In the words of the daemon's watcher."""
        watched = self._status().get("watching", [{}])
        return "; ".join(one["still_why_not"] for one in watched if "still_why_not" in one)

    def _status(self) -> dict[str, Any]:
        if not self.daemon:
            return {}
        # From elsewhere: a call in the workspace would be served by the process that waits there.
        said = subprocess.run(
            [self.program, "daemon", "status", "--json"], cwd=self.base, env=self.env,
            capture_output=True, check=False,
        )  # fmt: skip
        return dict(json.loads(said.stdout)) if said.returncode == 0 else {}

    def say(self, figure: Figure) -> None:
        self.figures.append(figure)
        mark = {True: "  ok", False: "  MISSED", None: ""}[figure.met]
        reach = f"   (reach: {figure.reach}){mark}" if figure.reach else ""
        print(f"  {figure.what}: {figure.measured}{reach}", flush=True)

    def stop(self) -> None:
        if self.daemon:
            subprocess.run(
                [self.program, "daemon", "stop"], env=self.env, capture_output=True, check=False
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
