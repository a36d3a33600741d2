"""A view that its command left as it was is used for the next command, and shows what stands there
then: whatever somebody did to the tree in between, nothing of before is seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from substrate.system.watch_talk import StillTree
from substrate.workspace.still import StillWatch
from substrate.world import ahead
from substrate.world.ahead import Warm
from substrate.world.choose import choose_world
from substrate.world.network.choose import network_for
from substrate.world.protocol import RunRequest, Wanted
from tests.contract.as_user import NOBODY, as_user
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture(params=[os.geteuid(), NOBODY], ids=lambda uid: f"uid{uid}")
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    case = Case("overlay", request.param)
    skip_unless_possible(case)
    with make_site(case, monkeypatch) as made:
        yield made


class Here(StillTree):
    """Asks a watch of this process, where the agent's next process asks the agent's watcher."""

    def __init__(self, watch: StillWatch) -> None:
        self._watch = watch

    def token(self, *, in_passing: bool = False) -> bytes:
        token = self._watch.token(in_passing=in_passing)
        return b"" if self._watch.lost else token

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class Commands:
    """One command after the other, each with the view of the last if it may have it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.watch = StillWatch(site.root)
        self.watch.set_up()
        self.was_warm = False
        self._view = -1
        self._world = choose_world(Wanted(site.root, site.store, strategy="overlay", required=True))
        self.run("true")

    def run(self, line: str, between: Callable[[], object] = lambda: None) -> str:
        """What `line` prints; `between` happens when its world is there already."""
        news = ahead.news
        if news.recipe is not None:
            ahead.prepare(news.recipe, Warm(lambda _: Here(self.watch), news.kept, self._view))
        ahead.see_off()
        between()
        reader, writer = os.pipe()
        request = RunRequest(self.site.root, shell=line, network=network_for("open"))
        outcome = self._world.run(request._replace(stdout=writer))
        os.close(writer)
        assert outcome.layer is not None
        self._view = ahead.settle()
        self._world.discard(outcome.layer)
        self.was_warm = ahead.news.was_warm
        with os.fdopen(reader, "rb") as pipe:
            return pipe.read().decode(errors="surrogateescape")


def _is_used_again(site: Site) -> list[bool]:
    commands = Commands(site)
    found = []
    for _ in range(4):
        assert "inner" in commands.run("ls -lR")
        found.append(commands.was_warm)
    return found


def test_it_is_used_again(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _is_used_again(site)) == [False, True, True, True]
