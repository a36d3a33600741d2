"""Random work in two sets of namespaces at once, the host's and a container's, with kills.

Each command writes a file of its own and tells, outside the project, that it did. Whatever is
killed, that content is in the tree or in a world that waits; a command that ended well is in the
tree and in the log; and the next command always runs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contract.program import Program
from tests.daemons import until

pytestmark = pytest.mark.needs("overlay", "root")

ROUNDS, LONG_ROUNDS = 12, 500
CONTAINER = ("unshare", "-pf", "--mount-proc", "--kill-child")
_LONGEST_PAUSE_S = 0.4


class Started(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    is_killed: bool


class Site:
    def __init__(self, base: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.project, self.signs = base / "project", base / "signs"
        self.home = base / "home"
        self.project.mkdir()
        self.signs.mkdir()
        env = {"HOME": str(base), "SUBSTRATE_HOME": str(self.home)}
        self.host = Program(self.project, env)
        self.env = {**os.environ, "SUBSTRATE_DAEMON": "off", **env}
        self.edits: dict[str, str] = {}
        self.done: set[str] = set()
        self.host.sh("true")

    def start(self, name: str, *, inside: bool) -> Started:
        """A command that writes `name`, waits a little, and writes more."""
        pause_s = self.chance.uniform(0, _LONGEST_PAUSE_S)
        more = "" if self.chance.random() < 0.7 else " & sleep 0.1; true"
        line = f"echo {name} > {name}; touch {self.signs}/{name}; sleep {pause_s:.2f}{more}"
        where = CONTAINER if inside else ()
        process = subprocess.Popen(
            [*where, sys.executable, "-m", "substrate", "-c", line], cwd=self.project,
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        return Started(name, process, self.chance.random() < 0.4)

    def round(self, number: int) -> None:
        both = [True, False] * self.chance.randint(1, 2)
        names = [f"{number}-{at}-{'in' if inside else 'out'}" for at, inside in enumerate(both)]
        started = [
            self.start(name, inside=inside) for name, inside in zip(names, both, strict=True)
        ]
        edit = f"edit-{number}"
        self.edits[edit] = f"mine {number}\n"
        (self.project / edit).write_text(self.edits[edit])
        for one in started:
            if one.is_killed:
                time.sleep(self.chance.uniform(0, 2 * _LONGEST_PAUSE_S))
                one.process.send_signal(signal.SIGKILL)
        for one in started:
            said, _ = one.process.communicate(timeout=120)
            assert one.is_killed or one.process.returncode == 0, (one.name, said.decode())
            if one.process.returncode == 0:
                self.done.add(one.name)
        self.check(number)

    def check(self, number: int) -> None:
        """The next command runs in either place, and nothing is lost."""
        self.host.sh("true")
        after = subprocess.run(
            [*CONTAINER, sys.executable, "-m", "substrate", "-c", "true"], cwd=self.project,
            env=self.env, capture_output=True, check=False,
        )  # fmt: skip
        assert after.returncode == 0, after.stderr.decode()
        for name in self.done:
            assert (self.project / name).read_text() == f"{name}\n"
        for name, content in self.edits.items():
            assert (self.project / name).read_text() == content
        for sign in self.signs.glob(f"{number}-*"):
            until(lambda sign=sign: self.is_kept(sign.name), f"{sign.name} is lost")  # type: ignore[misc]

    def is_kept(self, name: str) -> bool:
        if (self.project / name).exists():
            return (self.project / name).read_text() == f"{name}\n"
        listed = {one["world_id"] for one in self.host.json("world", "list")["worlds"]}
        places = (self.project / ".substrate-git/worlds", self.home / "worlds")
        found = [one for place in places for one in place.glob(f"*/upper/{name}")]
        return any(one.parts[-3] in listed and one.read_text() == f"{name}\n" for one in found)

    def finish(self) -> None:
        """What waits can be applied, the log knows what ended well, and the history is sound."""
        for world in self.host.json("world", "list")["worlds"]:
            until(lambda: not self.is_busy(), "the end of what was left running")
            self.host("world", "apply", world["world_id"])
        self.host.sh("true")
        for sign in self.signs.iterdir():
            assert (self.project / sign.name).read_text() == f"{sign.name}\n"
        log = self.host.json("log", "--limit", "100000")["commands"]
        ended = {
            one["command"].split()[1]
            for one in log
            if one["exit"] == 0 and "touch" in one["command"]
        }
        assert self.done <= ended
        self.host("fsck").went_well()

    def is_busy(self) -> bool:
        states = [one["state"] for one in self.host.json("world", "list")["worlds"]]
        return "running" in states


def work(base: Path, rounds: int, seed: int) -> None:
    site = Site(base, seed)
    for number in range(rounds):
        site.round(number)
    site.finish()


def test_random_work_in_two_sets_of_namespaces(tmp_path: Path) -> None:
    work(tmp_path, ROUNDS, seed=1)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_random_work_in_two_sets_of_namespaces_long(tmp_path: Path) -> None:
    work(tmp_path, LONG_ROUNDS, seed=random.randrange(1 << 30))
