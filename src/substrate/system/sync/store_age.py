"""The age of things by the time that a store has seen pass, not by one reading of the clock.

The wall clock can be wrong by years and be corrected again. Within one boot the elapsed time is
exact (`clock.elapsed_ns`), whatever the wall clock says. Between two boots only the wall clock is
available: it then counts for at most a day.

    wall      day 1   day 2   year 2050   day 2
    own age   0       1       1           1         a jump makes nothing older

Things carry the wall-clock time of their creation. Marks, one a day and one at each jump, map
wall-clock times to own ages.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.system import clock
from substrate.system.files import files
from substrate.system.process import process_identity

DAY_NS = 86_400 * 10**9
_HOUR_NS = 3_600 * 10**9
_MOST_MARKS = 64
#: The file name to use where there is no ledger.
FILE = "own-days"


class OwnDays(NamedTuple):
    boot_id: str
    elapsed_ns: int
    wall_ns: int
    age_ns: int
    #: (wall clock, own age), in the order in which they were seen.
    marks: tuple[tuple[int, int], ...]
    #: The wall clock before and after the last jump; (0, 0): no jump.
    jump: tuple[int, int] = (0, 0)

    def to_text(self) -> str:
        return json.dumps(self)

    def age_of(self, made_ns: int) -> int:
        """How long ago, in ns of own time, the wall clock showed `made_ns`."""
        now_ns = clock.now_ns()
        before = [n for n, (wall, _) in enumerate(self.marks) if wall <= made_ns]
        if not before:
            return max(self._now(now_ns) - self.marks[0][1], 0)
        at = before[-1]
        if made_ns > now_ns + _HOUR_NS:  # made while the clock was ahead
            at = max(before, key=lambda n: (self.marks[n][0], n))
        wall, age = self.marks[at]
        until = self.marks[at + 1][1] if at + 1 < len(self.marks) else self._now(now_ns)
        return max(self._now(now_ns) - min(age + made_ns - wall, until), 0)

    def _now(self, now_ns: int) -> int:
        return self.age_ns + _passed(self, now_ns)[0]


def seen_now(text: object) -> tuple[OwnDays, bool]:
    """The state in `text`, brought up to date, and whether it has changed enough to be saved."""
    boot, elapsed, now = process_identity.boot_id(), clock.elapsed_ns(), clock.now_ns()
    known = _parsed(text)
    if known is None:
        return OwnDays(boot, elapsed, now, 0, ((now, 0),)), True
    passed, is_jump = _passed(known, now)
    if known.boot_id == boot and passed < DAY_NS and not is_jump:
        return known, False
    age = known.age_ns + passed
    marks = known.marks
    if is_jump or now - marks[-1][0] >= DAY_NS:
        marks = (*marks, (now, age))
    if len(marks) > _MOST_MARKS:
        marks = (*marks[: _MOST_MARKS // 2 : 2], *marks[_MOST_MARKS // 2 :])
    jump = (known.wall_ns, now) if is_jump else known.jump
    return OwnDays(boot, elapsed, now, age, marks, jump), True


def of_file(path: Path) -> OwnDays:
    """The state in a file; saves it if it has changed enough and the file can be written."""
    try:
        text = (files.read_bytes_or_none(path) or b"").decode("ascii", "replace")
    except OSError:
        text = ""
    days, is_news = seen_now(text)
    if is_news:
        with suppress(OSError):
            files.write_atomic(path, days.to_text().encode("ascii"), durable=False)
    return days


def _passed(known: OwnDays, now_ns: int) -> tuple[int, bool]:
    """The time since `known` was saved, and whether the wall clock disagrees."""
    said = now_ns - known.wall_ns
    if known.boot_id == process_identity.boot_id():
        passed = max(clock.elapsed_ns() - known.elapsed_ns, 0)
        return passed, abs(said - passed) > _HOUR_NS
    return min(max(said, 0), DAY_NS), not -_HOUR_NS < said < 30 * DAY_NS


def _parsed(text: object) -> OwnDays | None:
    """None for nothing, and for anything that is not a valid state: then counting starts again."""
    try:
        boot, elapsed, wall, age, marks, jump = json.loads(str(text))
        pairs = tuple((int(at), int(own)) for at, own in marks)
        known = OwnDays(str(boot), int(elapsed), int(wall), int(age), pairs, (jump[0], jump[1]))
    except (ValueError, TypeError, IndexError):
        return None
    return known if known.marks else None
