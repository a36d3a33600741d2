"""Short marks in `log` for what an entry's exit status does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from substrate.model import display
from substrate.recorder import queries

if TYPE_CHECKING:
    from substrate.recorder import Entry, HistoryStore

#: Outcomes that a reader of the list should see.
_UNUSUAL = ("interrupted", "killed", "not_started", "timed_out")
_WAITING = {
    queries.RUNNING_ON: "still running in the background",
    queries.ENDED_SINCE: "ended in the background, its last change is not applied yet",
}
_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_SHOWN_REFS = 3
_ABBREVIATED = 10


def marks_of(store: HistoryStore, entry: Entry, waiting: Mapping[str, str]) -> list[str]:
    """`waiting`: see `ask.waiting_commands`."""
    detail = entry.detail
    marks = []
    if "part" in detail:
        marks.append(f"part {detail['part']} of {detail['of']}")
    outcome = str(detail.get("outcome", ""))
    if outcome in _UNUSUAL:
        marks.append(outcome.replace("_", " "))
    if entry.command_id in waiting:
        marks.append(_WAITING.get(waiting[entry.command_id], "not applied"))
    if detail.get("discarded"):
        marks.append("rest discarded" if entry.commit else "discarded")
    if detail.get("uncertain"):
        marks.append("uncertain")
    if "conflicts" in detail:
        marks.append("conflict")
    marks += _moved(detail.get("git"))
    if b"" in store.ledger.reversed_paths(entry.seq):
        marks.append("undone")
    beyond = queries.excluded_files(entry)
    if beyond and not entry.commit:
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        marks.append(f"only excluded: {display(beyond[0])}{more}")
    return marks


def moved_refs(effect: object) -> list[str]:
    """The refs that a command moved, made or removed; `effect` is the entry's `git`."""
    refs = effect.get("refs") if isinstance(effect, dict) else None
    return sorted(refs) if isinstance(refs, dict) else []


def ref_rows(effect: object) -> list[tuple[str, str]]:
    """Rows for `show`: each ref that a command moved, with its old and new commit, and HEAD."""
    refs = effect.get("refs") if isinstance(effect, dict) else None
    pairs = refs if isinstance(refs, dict) else {}
    rows = [("moved", f"{_named(name)}: {_move(*pairs[name])}") for name in moved_refs(effect)]
    switched = _switched_to(effect)
    return [*rows, ("switched to", switched)] if switched else rows


def _move(old: str | None, new: str | None) -> str:
    if not old:
        return f"created at {str(new)[:_ABBREVIATED]}"
    if not new:
        return f"removed, was at {old[:_ABBREVIATED]}"
    return f"{old[:_ABBREVIATED]} → {new[:_ABBREVIATED]}"


def _moved(effect: object) -> list[str]:
    names = moved_refs(effect)
    shown = [_named(name) for name in names[:_SHOWN_REFS]]
    if len(names) > _SHOWN_REFS:
        shown.append(f"{len(names) - _SHOWN_REFS} more refs")
    marks = ["moved " + ", ".join(shown)] if shown else []
    switched = _switched_to(effect)
    return [*marks, f"switched to {switched}"] if switched else marks


def _switched_to(effect: object) -> str:
    """The branch or commit that HEAD names now; empty if HEAD did not change."""
    head = effect.get("head") if isinstance(effect, dict) else None
    if not isinstance(head, list) or len(head) != 2:
        return ""
    return str(head[1] or "").removeprefix("ref: ").strip().removeprefix(_HEADS)[:40]


def _named(ref: str) -> str:
    if ref.startswith(_HEADS):
        return f"branch {ref.removeprefix(_HEADS)}"
    return f"tag {ref.removeprefix(_TAGS)}" if ref.startswith(_TAGS) else ref
