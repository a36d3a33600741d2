from __future__ import annotations

from substrate.model.paths import RelPath
from substrate.recorder.command.rate_limit import Pace
from substrate.system import clock

LOG, OTHER = RelPath(b"server.log"), RelPath(b"src/a")


def test_what_comes_again_waits_ever_longer_and_news_never() -> None:
    pace = Pace(longest_s=12)
    assert pace.not_before_ns([LOG]) == 0
    assert pace.recorded([LOG, OTHER])
    pauses = []
    for _ in range(4):
        assert not pace.recorded([LOG])
        pauses.append(round((pace.not_before_ns([LOG]) - clock.monotonic_ns()) / 1e9))
    assert pauses == [5, 10, 12, 12]
    assert pace.not_before_ns([LOG, RelPath(b"new")]) == 0
    assert pace.recorded([RelPath(b"new")])
    assert pace.not_before_ns([LOG]) == 0


def test_a_great_many_are_always_news() -> None:
    pace = Pace(longest_s=12)
    many = [RelPath(b"%d" % n) for n in range(2000)]
    assert pace.recorded(many)
    assert pace.recorded(many)
    assert pace.not_before_ns(many) == 0
