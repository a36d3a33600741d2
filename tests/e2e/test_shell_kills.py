"""kill -9 of each process of a shell, at any moment: nothing is lost, nothing is left."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemons import until
from tests.e2e.test_shell_world import Site, site_of
from tests.shell_terminal import Terminal

pytestmark = pytest.mark.needs("world-overlay")
LEADER = ("sh", "-c", '"$@"; printf "ended\\n"; exec sleep 60', "sh")


@pytest.fixture
def site(private_environment: Path) -> Iterator[Site]:
    yield from site_of(None)


def take_part(leader: int) -> list[int]:
    """The recorder, and what it has forked: changer, stower, init, and bash below that."""
    found = [int(pid) for pid in children(leader)]
    for pid in found[:]:
        found += map(int, children(pid))
    for pid in found[1:]:
        found += map(int, children(pid))
    return found


def children(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return []


def written(site: Site) -> dict[str, str]:
    """Every file that a line has made, wherever it is."""
    found = {}
    for place in (site.project, *(world / "upper" for world in site.worlds)):
        for path in place.glob("f*"):
            if path.is_file():
                found[path.name] = path.read_text()
    return found


def one_round(site: Site, seed: int) -> None:
    dice = random.Random(seed)
    terminal = site.open(before=LEADER)
    victims = take_part(terminal.process.pid)
    assert len(victims) >= 5
    for number in range(6):
        job = " & " if dice.random() < 0.2 else "; "
        line = f"sleep {dice.choice((0, 0.05))}{job}echo {seed} > f{seed}-{number}\r"
        terminal.type(line.encode())
    time.sleep(dice.random())
    os.kill(dice.choice(victims), signal.SIGKILL)
    time.sleep(0.3)
    with suppress(OSError):
        os.kill(victims[0], signal.SIGKILL)
    terminal.until(b"ended")
    until(lambda: site.processes() == [f"{terminal.process.pid} sleep"], "the end of all of it")
    check(site, terminal, written(site))
    terminal.close()


def check(site: Site, terminal: Terminal, before: dict[str, str]) -> None:
    assert terminal.substrate("-c", "true").returncode == 0
    for world in terminal.json("world", "list")["worlds"]:
        assert terminal.substrate("world", "apply", world["world_id"]).returncode == 0, world
    assert written(site) == before
    assert site.worlds == []
    assert terminal.substrate("fsck").returncode == 0


def test_a_few_kills(site: Site) -> None:
    for seed in range(3):
        one_round(site, seed)


@pytest.mark.long
def test_many_kills(site: Site) -> None:
    for seed in range(100, 150):
        one_round(site, seed)
