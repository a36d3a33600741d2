"""The speed layer: everything in the daemon that exists only for speed, behind one switch.

    imports       every module, before the first call                   `imports_preload.py`
    spares        the next process is forked before its call            `prefork_parent.py`
    its pages     it has its own copy of the memory that calls use      `system/linux/memory.py`
    its world     made before the command is known, perhaps with
                  the view of the last command                          `world/prewarm`
    its history   opened before the call                                `history/store/preopen.py`
    the answer    comes before work that no caller waits for            `system/process`

`daemon.speed = false` switches all of it off: then `PlainPath` is used, and each call is forked
when it comes, makes its own world, and is answered when everything is done.
docs/decisions/0042-one-speed-layer.md says why there is one switch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from substrate.daemon.prefork import prefork_child
from substrate.daemon.prefork.child_reports import ChildReports
from substrate.daemon.prefork.prefork_parent import Handed, Spares
from substrate.system.process import Channel, deferred_work
from substrate.world.prewarm import Warm, WorldsAhead, no_prewarm
from substrate.world.process import Recipe


class PlainPath:
    """What the fork server and its children ask for, and the plain answer: nothing is prepared."""

    is_on = False

    def __init__(self) -> None:
        self.spares = Spares()
        #: Children report here after they have answered: one message, one datagram.
        self.reports = ChildReports()

    def preload(self, work: Callable[[], None]) -> None:
        """In the fork server, before the first call."""

    def missing(self) -> list[tuple[bytes, Recipe | None]]:
        """The spares that must be forked, by workspace; the most likely first."""
        return []

    def waiting(
        self, channel: Channel, recipe: Recipe | None, warm: Warm | None, *, alone: bool
    ) -> Callable[[], Handed | None]:
        """What a spare does until it has its call."""
        raise NotImplementedError("the plain path has no spares")

    def answer_first(self) -> None:
        """In a child: postpone what the caller need not wait for."""

    def drop_world(self) -> None:
        """In a child: the call cannot use the world that was made ahead."""

    def after_answer(self) -> None:
        """In a child, when the caller no longer waits."""


class SpeedLayer(PlainPath):
    is_on = True

    def __init__(self) -> None:
        super().__init__()
        self._worlds = WorldsAhead()
        self._prepared = prefork_child.Prepared(self._worlds)
        no_prewarm.current.worlds = self._worlds

    def preload(self, work: Callable[[], None]) -> None:
        work()

    def missing(self) -> list[tuple[bytes, Recipe | None]]:
        return self.spares.missing()

    def waiting(
        self, channel: Channel, recipe: Recipe | None, warm: Warm | None, *, alone: bool
    ) -> Callable[[], Handed | None]:
        pages = self.spares.pages
        return partial(
            prefork_child.wait, self._prepared, channel, recipe, warm, pages, alone=alone
        )

    def answer_first(self) -> None:
        deferred_work.postpone()

    def drop_world(self) -> None:
        self._worlds.drop()

    def after_answer(self) -> None:
        view = self._worlds.settle()
        self.reports.tell_news(self._worlds.news, view)
        self._worlds.drop()  # the call did not need it
        deferred_work.run()
        missed = self._prepared.missed_pages()
        if missed is not None:
            self.reports.tell_pages(missed)
        self._worlds.see_off()
        deferred_work.run_clearing()
