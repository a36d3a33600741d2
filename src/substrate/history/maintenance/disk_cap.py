"""The disk cap: whether a store has outgrown it, and what was given up to keep it.

The cap covers the objects and the ledger. The newest state, the newest session and snapshots that
have not expired are a floor: they always stay. If they exceed the cap, `compact` and `status` say
so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from substrate.history.maintenance import metrics
from substrate.history.maintenance.retention import Decision
from substrate.history.store import MIB, HistoryStore
from substrate.system import clock

_GIVEN_UP = "cap_given_up"
_FLOOR = "cap_floor_bytes"
#: A store over its cap is compacted again when it has grown by this part of its size.
_GROWTH = 0.25


class GivenUp(NamedTuple):
    """What the cap has cost so far."""

    #: Commands, outside edits, … that are no longer kept on their own.
    entries: int = 0
    #: When an entry was last given up.
    ts_ns: int = 0
    #: Whether the first state of the workspace was given up, too.
    baseline: bool = False


class CapState(NamedTuple):
    cap_bytes: int
    given_up: GivenUp
    #: What is left when nothing more can go, if that is more than the cap.
    floor_bytes: int | None


def is_due(store: HistoryStore) -> bool:
    """Whether the store has (by its running estimate) outgrown its cap."""
    estimate = store.ledger.meta("size_estimate")
    if not isinstance(estimate, int) or estimate <= store.config.disk_cap_bytes:
        return False
    floor = store.ledger.meta(_FLOOR)
    return not isinstance(floor, int) or estimate > floor + floor * _GROWTH


def note(store: HistoryStore, given_up: Sequence[Decision]) -> None:
    """After a compaction: record how large the store is now, and what was given up."""
    size = metrics.capped_bytes(store)
    ranges = [one for decision in given_up for one in decision.ranges if one.grain == "pressure"]
    with store.ledger.transaction():
        store.ledger.set_meta("last_compaction_ns", clock.now_ns())
        store.ledger.set_meta("size_estimate", size)
        store.ledger.set_meta(_FLOOR, size if size > store.config.disk_cap_bytes else 0)
        if ranges:
            now = GivenUp(_squashed_for_the_cap(store), clock.now_ns(), _has_no_baseline(store))
            store.ledger.set_meta(_GIVEN_UP, json.dumps(now._asdict()))


def state(store: HistoryStore) -> CapState:
    floor = store.ledger.meta(_FLOOR)
    is_over = isinstance(floor, int) and floor > store.config.disk_cap_bytes
    return CapState(
        store.config.disk_cap_bytes,
        _given_up(store),
        floor if is_over else None,  # type: ignore[arg-type]
    )


def sentences(store: HistoryStore, given_up: Sequence[Decision] = ()) -> list[str]:
    """For the answer to `compact`: what this compaction gave up, and whether it was enough."""
    found = state(store)
    out = []
    ranges = [one for decision in given_up for one in decision.ranges if one.grain == "pressure"]
    if ranges:
        out.append(f"over the disk cap: {len(ranges)} more range(s) were squashed")
    if found.floor_bytes is not None:
        out.append(over_the_cap(found))
    return out


def said(found: CapState) -> list[str]:
    """For `status`: what the cap has cost so far, and whether it is kept."""
    out = []
    lost = found.given_up
    if lost.entries:
        first = " and the first state of the workspace" if lost.baseline else ""
        out.append(
            f"to stay within {found.cap_bytes / MIB:.0f} MiB, {lost.entries} older entries{first}"
            f" are only kept squashed (last on {clock.iso(lost.ts_ns)[:10]}); their ids resolve,"
            " `blame` still names their authors"
        )
    if found.floor_bytes is not None:
        out.append(over_the_cap(found))
    return out


def over_the_cap(found: CapState) -> str:
    assert found.floor_bytes is not None
    return (
        f"the store is still over its disk cap ({found.floor_bytes / MIB:.1f} MiB of"
        f" {found.cap_bytes / MIB:.0f} MiB): the newest state, the newest session and snapshots for"
        " `recover` are always kept; raise retention.disk_cap_mib, exclude large files in"
        " .substrateignore, or begin a new session (`substrate session start`) and compact"
    )


def _given_up(store: HistoryStore) -> GivenUp:
    text = store.ledger.meta(_GIVEN_UP)
    return GivenUp(**json.loads(text)) if isinstance(text, str) else GivenUp()


def _squashed_for_the_cap(store: HistoryStore) -> int:
    """Entries inside squashes that only the cap made."""
    rows = store.ledger.db.execute(
        "WITH RECURSIVE held(id) AS ("
        " SELECT command_id FROM entries WHERE kind = 'squash' AND squashed_into IS NULL"
        "  AND detail LIKE '%over its disk cap%'"
        " UNION ALL SELECT command_id FROM entries JOIN held ON squashed_into = held.id)"
        " SELECT count(*) AS n FROM entries JOIN held ON squashed_into = held.id"
        " WHERE kind != 'squash'"
    ).fetchone()
    return int(rows["n"])


def _has_no_baseline(store: HistoryStore) -> bool:
    first = store.ledger.live_after(-1, 1)
    return bool(first) and first[0].kind != "baseline"
