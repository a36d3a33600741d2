"""The intent of an arrival: what the next call needs to finish an arrival after a crash."""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from substrate.history.arrival import user_git_backup
from substrate.history.arrival.apply_times import give_touches
from substrate.history.arrival.arrival_plan import IN_GIT, Arrival, Touch
from substrate.history.record import excluded_paths, late_entry, sessions
from substrate.history.reversal import recovery_refs
from substrate.history.store import (
    Detail,
    Entry,
    HistoryStore,
    Intent,
    Ledger,
    NewEntry,
    commit_chain,
)
from substrate.model import RelPath
from substrate.system import clock
from substrate.system.files import files
from substrate.workspace.apply import Applier, LayerSource, Plan, Report, Trash

ARRIVE = "arrive"
#: A file beside a world's upper.
DECIDED = "decided"


class Announced(NamedTuple):
    arrival: Arrival
    entry: NewEntry
    #: None: nothing that history keeps has changed.
    commit: bytes | None
    attrs_commit: bytes | None
    upper: Path
    world_id: str
    may_rename: bool
    started_ns: int
    #: The command's own intent: dropped when the whole change has arrived, kept otherwise.
    running_intent: str
    #: The previous state of the refs and the index of the user's repository that this replaces.
    stood: user_git_backup.Stood = ()
    #: The kind and payload of the intent for what stays in the world, or None.
    rest: tuple[str, Detail] | None = None


def to_payload(one: Announced) -> Detail:
    touches = ",".join([_touch_to_json(touch) for touch in one.arrival.touches])
    marks = [[_b64(path), mode] for path, mode in one.arrival.marks]
    return {
        "plan": one.arrival.plan.to_json(),
        "touches": f"[{touches}]",
        "marks": json.dumps(marks),
        "entry": one.entry.to_json(),
        "commit": (one.commit or b"").hex(),
        "attrs_commit": (one.attrs_commit or b"").hex(),
        "upper": str(one.upper),
        "world_id": one.world_id,
        "may_rename": one.may_rename,
        "started_ns": one.started_ns,
        "running_intent": one.running_intent,
        "stood": json.dumps([[_b64(path), stamp] for path, stamp in one.stood]),
        **({"rest": list(one.rest)} if one.rest else {}),
    }


def _touch_to_json(touch: Touch) -> str:
    path, times, owner, only = touch
    said = f"[{times[0]},{times[1]}],[{owner[0]},{owner[1]}],{'true' if only else 'false'}"
    return f'["{_b64(path)}",{said}]'


def from_payload(payload: Detail) -> Announced:
    def path(text: str) -> RelPath:
        return RelPath(base64.b64decode(text))

    touches = [
        Touch(path(where), (times[0], times[1]), (owner[0], owner[1]), bool(only))
        for where, times, owner, only in json.loads(str(payload["touches"]))
    ]
    marks = [(path(where), int(mode)) for where, mode in json.loads(str(payload["marks"]))]
    return Announced(
        Arrival(Plan.from_json(str(payload["plan"])), tuple(touches), tuple(marks)),
        NewEntry.from_json(str(payload["entry"])),
        bytes.fromhex(str(payload["commit"])) or None,
        bytes.fromhex(str(payload["attrs_commit"])) or None,
        Path(str(payload["upper"])),
        str(payload["world_id"]),
        bool(payload["may_rename"]),
        int(str(payload["started_ns"])),
        str(payload["running_intent"]),
        tuple(
            (path(where), None if stamp is None else tuple(stamp))
            for where, stamp in json.loads(str(payload.get("stood", "[]")))
        ),
        tuple(rest) if isinstance(rest := payload.get("rest"), list) else None,
    )


def applier_for(store: HistoryStore, intent: Intent, source: LayerSource | None) -> Applier:
    command_id = NewEntry.from_json(str(intent.payload["entry"])).command_id
    return Applier(
        store.root, store.scratch(intent.intent_id), store.objects, Trash(store.trash_dir),
        exclusions=store.exclusions, under=command_id, layer=source, top=store.anchor.top,
    )  # fmt: skip


def complete(store: HistoryStore, intent: Intent, one: Announced, *, is_all: bool = True) -> Entry:
    """The second commit point: the change that was announced as `one` has happened.

    Unless `is_all`, the command's own intent stays, and with it the world and its content. If only
    a part of a held world was announced, the intent of the rest takes its place.
    """
    new = one.entry
    if excluded_paths.KEY in new.detail or IN_GIT in new.detail:
        new = new._replace(detail={**new.detail, excluded_paths.ARRIVED: clock.now_ns()})
    if is_all and one.rest is None:
        mark_decided(one.upper.parent)
    with store.commit_point() as ledger:
        entry = late_entry.add(ledger, new, one.commit)
        if one.commit is not None:
            commit_chain.advance(ledger, one.commit, one.attrs_commit)
        ledger.drop_intent(intent.intent_id)
        if is_all:
            ledger.drop_intent(one.running_intent)
            add_rest(store, ledger, one.rest)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
        if new.added_bytes:
            estimate = ledger.meta("size_estimate")
            known = estimate if isinstance(estimate, int) else 0
            ledger.set_meta("size_estimate", known + new.added_bytes)
    files.remove_tree(store.scratch(intent.intent_id))
    return entry


def add_rest(store: HistoryStore, ledger: Ledger, rest: tuple[str, Detail] | None) -> None:
    if rest is not None:
        kind, payload = rest
        ledger.add_intent(store.new_intent(kind, payload))


def mark_decided(world: Path) -> None:
    """Nothing in this world is needed any more: remove it even if no intent names it."""
    with contextlib.suppress(OSError):  # without the mark the world only stays longer
        (world / DECIDED).touch(mode=0o600)


def abandon(store: HistoryStore, intent: Intent) -> None:
    """Apply put everything back: the change did not happen and is still in its world."""
    one = from_payload(intent.payload)
    with store.commit_point() as ledger:
        ledger.drop_intent(intent.intent_id)
        recovery_refs.forget(ledger, one.entry.command_id)


def finish(store: HistoryStore, intent: Intent) -> str:
    """After a crash between the commit points: finish the arrival from the step it reached."""
    one = from_payload(intent.payload)
    one = one._replace(upper=store.world_place(one.upper))
    report = _resume(store, intent, one)
    give_touches(store.anchor.top, touches_of(one.arrival, report), one.started_ns)
    entry = complete(store, intent, one, is_all=not report.conflicts)
    left = f", {len(report.conflicts)} path(s) left as they are" if report.conflicts else ""
    return f"finished bringing in what {entry.command_id} changed{left}"


def touches_of(arrival: Arrival, report: Report) -> list[Touch]:
    """The touches still to set: not on paths in conflict, which another process wrote, and not
    on paths that already have their times."""
    left = {conflict.path for conflict in report.conflicts} | report.timed
    return [touch for touch in arrival.touches if touch.path not in left]


def _resume(store: HistoryStore, intent: Intent, one: Announced) -> Report:
    if not one.upper.is_dir():  # removed by hand: apply what history has of it
        return applier_for(store, intent, None).resume(one.arrival.plan)
    others = user_git_backup.by_others(store.root, one.upper, one.stood)
    with LayerSource(one.upper, copy_only=not one.may_rename) as source:
        for path, mode in one.arrival.marks:
            source.clean(path, mode)
        return applier_for(store, intent, source).resume(one.arrival.plan, others)


def _b64(path: bytes) -> str:
    return base64.b64encode(path).decode("ascii")
