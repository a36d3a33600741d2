"""Killed at each system call between the journal's first write and its last: none lost, none torn.

    python -m pytest --long -s tests/crash/test_sweep.py

takes about an hour on one core. What a point is, and what is checked after it, is in `harness` and
`rewrite_site`; the same with a sample of the points is in `test_kill` and `test_rewrite_kill`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash import harness, rewrite_site, test_kill, test_rewrite_kill
from tests.crash.harness import Point

pytestmark = [pytest.mark.long, pytest.mark.needs("strace"), pytest.mark.timeout(0)]

WANTED = 2_000
#: The journal of history: what its database writes ahead.
AHEAD = "history.db-wal"


class Sweep(NamedTuple):
    name: str
    points: list[Point]
    #: "old", "new" or "recovered"; raises on anything else.
    kill: Callable[[Point], str]


def sweeps(directory: Path) -> Iterator[Sweep]:
    for name in (*test_rewrite_kill.OPERATIONS, *test_rewrite_kill.LARGE):
        made = test_rewrite_kill.fault(name, directory / name)
        points = rewrite_site.points(made, test_rewrite_kill.JOURNAL, test_rewrite_kill.INTENT)
        yield Sweep(name, points, lambda p, made=made: test_rewrite_kill.killed(made, p))  # type: ignore[misc]
    made = test_rewrite_kill.prunable(directory / "prune")
    points = rewrite_site.points(made, ".manifold/tombstones")
    yield Sweep("prune", points, lambda p: test_rewrite_kill.prune_killed(made, p))
    for name, operation in test_kill.OPERATIONS.items():
        before = harness.make(
            directory / name, lambda cli, name=name: test_kill.prepare(cli, name), operation.words  # type: ignore[misc]
        )  # fmt: skip
        points = harness.points(before, operation.words, AHEAD)
        yield Sweep(
            name, points, lambda p, b=before, o=operation: test_kill.killed(b, o, p)  # type: ignore[misc]
        )  # fmt: skip


def test_two_thousand_kill_points(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    wrong = []
    for sweep in sweeps(tmp_path):
        ended: Counter[str] = Counter()
        for point in sweep.points:
            try:
                ended[sweep.kill(point)] += 1
            except AssertionError as error:
                ended["wrong"] += 1
                wrong.append(f"{sweep.name} {point}: {error}")
        print(f"\n{sweep.name}: {dict(ended)}", flush=True)
        for line in wrong:
            print(line, flush=True)
        total += ended
    points = total.total() - total["survived"]
    print(f"\n{points} kill points: {dict(total)}; {len(wrong)} lost or torn")
    assert not wrong
    assert points >= WANTED
    assert total["old"] and total["new"] and total["recovered"]
