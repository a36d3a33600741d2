"""A command that is recorded while it runs: part by part, and at the end as a whole.

    c1 part 1 of c9 ── c2 part 2 of c9 ── e (others) ── c9, which says how it ended

Each part is an entry of its own, so that it stays whatever happens to the command. The command's
own entry comes last and holds the rest: the command's change is all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from substrate.errors import RefusedError
from substrate.history.arrival import Suspects, compared
from substrate.history.record import sessions
from substrate.history.record.scan_against_tip import count_files, edited
from substrate.history.store import Entry, Extension, HistoryStore, NewEntry, pack_small_objects
from substrate.model import Change, RelPath
from substrate.objects.snapshots import snapshot as snapshots
from substrate.system import clock, ids

if TYPE_CHECKING:
    from substrate.history.record.record_entry import Running

#: In the detail of a part: which command it belongs to, and its number.
OF, PART = "of", "part"
#: In the detail of the command's own entry: how many parts came before it.
PARTS = "parts"


def record_part(
    store: HistoryStore, running: Running, number: int, suspects: Suspects
) -> list[Change]:
    """Record what a running command has changed of these paths as an entry. Inside the lock."""
    store.forget_exclusions()
    with store.new_batch() as batch:
        changes = compared(store, batch, batch, suspects)
        if not changes:
            return []
        new = NewEntry(
            ids.new_id("c"), "command", clock.now_ns(), running.command,
            session_id=running.session_id, agent_id=running.agent_id,
            changed_files=count_files(changes), added_bytes=batch.added_bytes,
            detail={**running.about, OF: running.command_id, PART: number, "outcome": "running"},
        )  # fmt: skip
        extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
            sessions.touch(ledger, running.session_id)
            ledger.grew_by(new.added_bytes)
    pack_small_objects.flush_if_due(store)
    return changes


def parts_of(store: HistoryStore, command_id: str, session_id: str | None) -> list[Entry]:
    """The parts that are not squashed, newest first."""
    return [
        entry
        for entry in store.ledger.live(session_id=session_id, committed=True)
        if entry.detail.get(OF) == command_id and PART in entry.detail
    ]


def whole(store: HistoryStore, entry: Entry) -> list[Entry]:
    """The entry and its parts, if any; only those that changed something, newest first.

    Raises `RefusedError` if compaction has squashed some of them with other commands.
    """
    own = [entry] if entry.commit is not None else []
    if not entry.detail.get(PARTS):
        return own
    found = parts_of(store, entry.command_id, entry.session_id)
    if len(found) != entry.detail[PARTS]:
        raise RefusedError(
            f"some parts of {entry.command_id} are no longer kept on their own",
            hint="`substrate log` shows what holds them; each can be undone by its own id",
        )
    return [*own, *found]


def changes_of_all(store: HistoryStore, entries: Iterable[Entry]) -> list[Change]:
    """What these entries (newest first) changed together, whatever others did in between."""
    steps = []
    for entry in entries:
        assert entry.commit is not None
        before = store.parent_snapshot(entry.commit)
        assert before is not None, "a command is never the baseline"
        steps.append(snapshots.diff(store.objects, before, store.snapshot_of(entry.commit)))
    return together(reversed(steps))


def together(steps: Iterable[Iterable[Change]]) -> list[Change]:
    """Combine consecutive changes into one list."""
    found: dict[RelPath, Change] = {}
    for step in steps:
        for change in step:
            first = found.get(change.path, change)
            found[change.path] = Change(change.path, first.old, change.new)
    return [found[path] for path in sorted(found) if found[path].old != found[path].new]
