"""Killed at any system call, a command's change has come out of its world or waits in it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.crash import harness
from tests.crash.harness import KILLED, Before, Point, Site
from tests.crash.oracle import Cli, differences, tree

pytestmark = [pytest.mark.needs("strace", "overlay", "root"), pytest.mark.timeout(0)]

#: In place, replaced, removed (path by path, and whole), made, exchanged whole, left out of
#: history, git's own, touched.
WORK = (
    "echo more >> in_place; sed -i s/one/two/ replaced; rm -r gone whole; mkdir -p new/deep;"
    " echo n > new/deep/n; rm -r node_modules; mkdir node_modules; echo new > node_modules/m;"
    " rm dist/o; echo p > dist/p; rm swap; mkdir swap; echo s > swap/s; chmod 700 mode; touch -d"
    " @1 touched; git commit -q --allow-empty -m two"
)
WORDS = ("--session", "s", "--world", "-c", WORK)
_DEFAULT_POINTS = 20


def prepare(cli: Cli) -> None:
    root = cli.workspace
    for directory in ("gone/deep", "whole/deep", "node_modules", "dist"):
        (root / directory).mkdir(parents=True)
    names = ("in_place", "replaced", "gone/deep/g", "swap", "mode", "touched")
    whole = [f"whole/deep/{number}" for number in range(9)]
    for file in (*names, *whole, "node_modules/m", "dist/o"):
        (root / file).write_text("one\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        assert cli.spawn(["git", *words]).returncode == 0
    cli.ok("--session", "s", "checkpoint")


@pytest.fixture
def before(tmp_path: Path) -> Before:
    return harness.make(tmp_path, prepare, WORDS)


def checked(site: Site, status: int, point: Point) -> str:
    try:
        waiting = decided(site.cli)
        state = harness.verdict(site, status, ("command",))
        assert repository(site.cli) == ("two" if state == "new" else "one")
    except AssertionError as error:
        raise AssertionError(f"killed at {point}: {error}") from error
    return f"{state}, {waiting}"


def decided(cli: Cli) -> str:
    """A world that a kill left with something in it is listed, and can be applied."""
    worlds = cli.json("world", "list")["worlds"]
    assert isinstance(worlds, list)
    for world in worlds:
        assert world["state"] == "crashed", world
        cli.ok("world", "diff", str(world["world_id"]))
        cli.ok("world", "apply", str(world["world_id"]))
    return "applied by hand" if worlds else "by itself"


def repository(cli: Cli) -> str:
    checked = cli.spawn(["git", "fsck", "--strict"])
    assert checked.returncode == 0, checked.stderr
    assert not os.path.lexists(cli.workspace / ".git/index.lock")
    return cli.spawn(["git", "log", "-1", "--format=%s"]).stdout.decode().strip()


def test_killed_at_a_system_call(before: Before, request: pytest.FixtureRequest) -> None:
    found = harness.points(before, WORDS)
    if not request.config.getoption("--long"):
        found = harness.sample(found, _DEFAULT_POINTS)
    ended: Counter[str] = Counter()
    for point in found:
        site = harness.copy(before, "struck")
        status, said = harness.struck(site, WORDS, point, "signal=KILL")
        assert status in KILLED or status == 0, f"{point}: {status} {said}"
        ended[checked(site, status, point)] += 1
    print(f"\n{len(found)} kill points, {dict(ended)}")
    assert len(ended) > 1, "every point ended alike: nothing was met in the middle"


def test_killed_again_while_finishing(before: Before, request: pytest.FixtureRequest) -> None:
    found = harness.points(before, WORDS)
    step = 1 if request.config.getoption("--long") else 9
    rounds = 0
    for point in found[len(found) // 2 :: step]:
        site = harness.copy(before, "struck")
        status, _ = harness.struck(site, WORDS, point, "signal=KILL")
        if status == 0:
            continue
        again = Point(("rename", "renameat2", "fdatasync", "pwrite64")[rounds % 4], 1 + rounds % 5)
        harness.struck(site, ("world", "list"), again, "signal=KILL")
        checked(site, status, point)
        rounds += 1
        if rounds == 5 and step > 1:
            break
    assert rounds


def listed(cli: Cli, name: str, *words: str) -> list[dict[str, object]]:
    found = cli.json(*words)[name]
    assert isinstance(found, list)
    return found


def test_killed_while_a_part_arrives(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The part has arrived or it has not; what did not arrive is still held."""
    words = ("--session", "s", "world", "apply", "@", "new", "swap", "node_modules", "in_place")

    def hold(cli: Cli) -> None:
        prepare(cli)
        cli.ok(*WORDS[:3], "--hold", "-c", WORK.rpartition(";")[0])

    before = harness.make(tmp_path, hold, words)
    whole = harness.copy(before, "whole").cli
    whole.ok("--session", "s", "world", "apply", "@")
    found = harness.points(before, words)
    if not request.config.getoption("--long"):  # the ledger's and the tree's own steps
        steps = [point for point in found if point.call in ("renameat2", "fdatasync")]
        found = steps[:: -(-len(steps) // 4)]
    ended = set()
    for point in found:
        cli = (site := harness.copy(before, "struck")).cli
        status, said = harness.struck(site, words, point, "signal=KILL")
        assert status in KILLED or status == 0, f"{point}: {status} {said}"
        cli.ok("status", "--accept")  # finishes what was announced
        [world] = listed(cli, "worlds", "world", "list")
        world_id = str(world["world_id"])
        left = {one["path"] for one in listed(cli, "files", "world", "diff", world_id)}
        state = tree(cli.workspace)
        assert differences(state, before.old if "in_place" in left else before.new) == [], point
        ended.add("in_place" in left)
        cli.ok("world", "apply", world_id)
        assert differences(tree(cli.workspace), tree(whole.workspace)) == [], point
        assert listed(cli, "worlds", "world", "list") == []
    assert ended == {True, False}, "every point ended alike: nothing was met in the middle"
