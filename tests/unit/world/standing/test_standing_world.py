"""A world that persists while its views change: what is shown, what is kept, what is removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.system import environment
from substrate.system.linux import mounts
from substrate.system.process import spawn
from substrate.system.process.process import Stdio
from substrate.world.interface import RunRequest, Wanted
from substrate.world.layer import layer_dirs
from substrate.world.select_strategy import choose_world
from substrate.world.standing.standing_world import StandingWorld, open_standing_world
from substrate.world.strategies.layer_strategy import LayeredWorld
from tests.contract.as_user import NOBODY, as_user
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

pytestmark = pytest.mark.needs("linux")
OWN = os.geteuid() if hasattr(os, "geteuid") else 0


class Talker:
    """A shell in the world that answers line by line."""

    def __init__(self, standing: StandingWorld, cwd: Path) -> None:
        self._orders, give = os.pipe()
        told, self._out = os.pipe()
        argv = (b"/bin/sh", b"-c", b'while read -r line; do eval "$line"; echo .; done')
        variables = dict(environment.current().variables)
        stdio = Stdio(self._orders, self._out, 2)
        standing.start(spawn.Program(argv, cwd, variables, stdio))
        os.close(self._orders)
        os.close(self._out)
        self._give, self._told = os.fdopen(give, "w"), os.fdopen(told)

    def __call__(self, line: str) -> list[str]:
        self._give.write(line + "\n")
        self._give.flush()
        said = []
        while (got := self._told.readline()) not in (".\n", ""):
            said.append(got.rstrip("\n"))
        return said

    def end(self) -> None:
        self._give.close()


def swap(site: Site, beneath: int) -> None:
    mounts._MOVE_MOUNT_BENEATH = beneath  # in a child: see `as_user`
    world = choose_world(Wanted(site.root, site.store, required=True, strategy="overlay"))
    assert isinstance(world, LayeredWorld)
    one, two, three = (world.make_layer(f"wld_{n}") for n in range(3))
    room = site.base / "home" / "room"
    room.mkdir()
    standing = open_standing_world(world, RunRequest(site.root), one)
    first = standing.show(one)
    ask = Talker(standing, site.root)
    ask("echo x > new; exec 3> held")
    assert standing.gone() == []

    # It is in the first view, which goes to the room; the path leads to the second.
    second = standing.show(two, stow=room)
    assert ask("ls; env pwd -P") == ["dir", "gone", "held", "kept", "new", str(room)]
    assert ask(f"ls {site.root}") == ["dir", "gone", "kept"]
    ask(f"cd {site.root}")
    assert standing.gone() == [], "a file of it is open"
    ask("exec 3>&-")
    assert standing.gone() == [first]
    assert ask("ls") == ["dir", "gone", "kept"]
    assert sorted(os.listdir(one.upper)) == [".substrate-git", "held", "new"]

    # A file is replaced outside, after the view has looked at it.
    assert ask("cat kept") == ["kept"]
    (site.root / "fresh").write_text("fresh\n")
    (site.root / "fresh").rename(site.root / "kept")
    standing.refresh()
    assert ask("cat kept") == ["fresh"]

    # Create a lock that was searched for before it existed, and another one.
    standing.seek((b"dir/lock",))
    (site.root / "dir" / "lock").touch()
    (site.root / "dir" / "other.lock").touch()
    assert ask("test -e dir/lock || echo none; test -e dir/other.lock && echo one") == (
        ["none", "one"]
    )

    # No process is in the second view when it is removed.
    ask("cd /")
    third = standing.show(three)
    assert standing.gone() == [second]
    assert ask(f"cd {site.root}; ls -a | grep -c substrate-git") == ["0"]
    ask.end()
    assert standing.news() == (0, 0)
    standing.hide()
    assert standing.gone() == [third]
    standing.close()
    for layer in (one, two, three):
        layer_dirs.remove(layer)


@pytest.mark.parametrize("uid", [OWN, NOBODY])
@pytest.mark.parametrize("kernel", ["this", "before 6.5"])
def test_views_change(uid: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("overlay", uid)
    skip_unless_possible(case)
    # A flag that no kernel knows is refused as an unknown one is by an older kernel.
    beneath = mounts._MOVE_MOUNT_BENEATH if kernel == "this" else 1 << 30
    with make_site(case, monkeypatch) as site:
        work: Callable[[], None] = lambda: swap(site, beneath)  # noqa: E731
        as_user(uid, work)
        assert str(site.base) not in Path("/proc/self/mountinfo").read_text()
