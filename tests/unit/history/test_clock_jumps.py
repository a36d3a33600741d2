"""A clock that is wrong once makes nothing older: trash and snapshots stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.system import clock
from substrate.system.sync.store_age import DAY_NS, OwnDays, seen_now
from tests.crash.oracle import Cli

YEAR_NS = 365 * DAY_NS


class Hands:
    """A wall clock that can be set, and the time that really passes."""

    def __init__(self) -> None:
        self.wall = 50 * YEAR_NS
        self.elapsed = 10**12

    def passes(self, ns: int) -> None:
        self.wall += ns
        self.elapsed += ns


@pytest.fixture
def hands() -> Iterator[Hands]:
    hands = Hands()
    clock.set_clock(lambda: hands.wall, lambda: hands.elapsed)
    yield hands
    clock.set_clock(None)


def noted(days: OwnDays | None) -> OwnDays:
    return seen_now(days.to_text() if days else None)[0]


def test_time_that_passes_makes_things_older(hands: Hands) -> None:
    days = noted(None)
    made = hands.wall
    for _ in range(100):
        hands.passes(DAY_NS)
        days = noted(days)
    assert abs(days.age_of(made) - 100 * DAY_NS) < DAY_NS
    later = hands.wall
    hands.passes(DAY_NS // 3)
    assert days.age_of(later) == DAY_NS // 3


@pytest.mark.parametrize("jump", [YEAR_NS, -YEAR_NS, 20 * DAY_NS, -20 * DAY_NS])
def test_a_jump_makes_nothing_older(hands: Hands, jump: int) -> None:
    days = noted(None)
    hands.passes(40 * DAY_NS)
    days = noted(days)
    before = hands.wall
    hands.wall += jump
    days = noted(days)
    assert days.jump == (before, hands.wall)
    during = hands.wall
    assert days.age_of(before) < DAY_NS and days.age_of(during) == 0
    hands.passes(DAY_NS // 2)
    hands.wall -= jump
    days = noted(days)
    assert days.age_of(during) <= DAY_NS // 2 and days.age_of(before) <= DAY_NS // 2
    hands.passes(30 * DAY_NS)
    days = noted(days)
    assert days.age_of(before) > 29 * DAY_NS, "what is really old still goes"


def test_what_is_no_state_begins_again(hands: Hands) -> None:
    for text in ("", "[]", "{}", '["b", 1, 2, 3, [], [0, 0]]', "[1"):
        days, is_news = seen_now(text)
        assert is_news and days.age_ns == 0 and days.age_of(0) == 0


#: The installed program with a wall clock that is wrong by so many days.
PROGRAM = """
import sys, time
from substrate.system import clock
clock.set_clock(lambda: time.time_ns() + {days} * 86_400 * 10**9, clock.real_elapsed_ns)
from substrate.cli.startup import substrate
sys.exit(substrate())
"""


def at(cli: Cli, days: int) -> Cli:
    return cli._replace(launcher=("-c", PROGRAM.format(days=days)))


@pytest.mark.needs("world-overlay")
@pytest.mark.parametrize(("made", "compacted"), [(0, 400), (-400, 0), (400, 0), (0, -400)])
def test_compact_with_a_wrong_clock_keeps_everything(
    tmp_path: Path, made: int, compacted: int
) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    (root / "node_modules").mkdir(parents=True)
    (root / "node_modules/lib").write_text("lib\n")
    (root / "file").write_text("1\n")
    home.mkdir()
    cli = Cli(root, home)
    cli.ok("-c", "true")
    at(cli, made).ok("-c", "rm -rf node_modules; echo 2 > file")
    at(cli, made).ok("undo", "--path", "file")
    report = at(cli, compacted).ok("compact", "--json")
    assert '"expired_trash": []' in report and '"expired_recovery_refs": []' in report
    assert at(cli, compacted).ok("recover", "prune") == "0 snapshot(s) pruned\n"
    cli.ok("compact")
    assert len(list(root.glob(".substrate-git/trash/*/*/item"))) == 1
    cli.ok("undo", "@", "--path", "node_modules")
    assert (root / "node_modules/lib").read_text() == "lib\n"
