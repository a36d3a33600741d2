"""Edits that a coding agent makes with its own tools."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from substrate.coding_agents import HookEvent
from substrate.history.record import Recorded, agent_edits, tool_calls
from substrate.history.store import HistoryStore
from substrate.model import (
    ABSENT,
    CannotEditError,
    Content,
    FileBefore,
    Kind,
    RelPath,
    ReportedEdit,
    display,
    is_within,
    rel_path,
)
from substrate.objects.snapshots import snapshot as snapshots
from substrate.recorder.agent_events import hook_time, observed_span
from substrate.recorder.agent_events.acting_session import Acting
from substrate.recorder.session_context import Place
from substrate.system import ids

_SHOWN_NAMES = 5
#: In the detail of an edit whose call has no id.
REPORT_ID = "report_id"
T = TypeVar("T")


def absolute(event: HookEvent, name: str) -> str:
    """Where the tool writes: a link is followed, as the tool does."""
    return os.path.realpath(os.path.join(event.cwd, name))


def reported(place: Place, event: HookEvent) -> dict[RelPath, ReportedEdit]:
    """The event's files in this workspace."""
    return _in_workspace(place, event, {edit.path: edit.reported for edit in event.edits})


def files_before(place: Place, event: HookEvent) -> dict[RelPath, FileBefore]:
    """The files of this workspace that the client read when the hook began."""
    return _in_workspace(place, event, event.before)


def _in_workspace(place: Place, event: HookEvent, named: Mapping[str, T]) -> dict[RelPath, T]:
    root = os.path.realpath(place.workspace.root).rstrip("/") + "/"
    own = rel_path(os.fsencode(os.path.basename(place.workspace.store)))
    out: dict[RelPath, T] = {}
    for name, value in named.items():
        path = absolute(event, name)
        if not path.startswith(root):
            continue
        found = rel_path(os.fsencode(path[len(root) :]))
        is_git = b".git" in found.split(b"/")
        if not is_git and not is_within(found, own):
            out[found] = value
    return out


def before_edit(place: Place, store: HistoryStore, event: HookEvent, who: Acting) -> None:
    """Record what others have changed in these files so far, and expect the tool's own change."""
    paths = list(reported(place, event))
    began_ns = hook_time.began_ns(place.environment)
    agent_edits.record_outside_of(store, paths, began_ns, files_before(place, event))
    if event.call_id and _is_recorded(store, who.session_id, event):
        return  # the report after the tool was faster
    with store.commit_point(durable=False) as ledger:
        call_id = event.call_id or event.report_id or ids.new_id("c")
        tool_calls.announce(ledger, who.session_id, call_id, event.tool, paths, started_ns=began_ns)


def after_edit(place: Place, store: HistoryStore, event: HookEvent, who: Acting) -> None:
    if _is_recorded(store, who.session_id, event):
        return
    with store.commit_point(durable=False) as ledger:
        announced = tool_calls.take(ledger, who.session_id, event.call_id, event.tool)
    files = reported(place, event)
    if event.failed or not files:
        return
    call_id = event.call_id or (announced.call_id if announced else "")
    detail = who.detail(event, call_id)
    if event.report_id:
        detail[REPORT_ID] = event.report_id
    editor = agent_edits.Editor(
        who.session_id, event.agent, f"{event.tool} {_names(files)}", detail
    )
    recorded = agent_edits.record(store, editor, _with_moved(place, store, event, files))
    _trace(place, event, recorded)


def _is_recorded(store: HistoryStore, session_id: str, event: HookEvent) -> bool:
    """Whether the same report came before: user and project settings may both have the hook."""
    wanted = event.call_id or event.report_id
    for entry in store.ledger.live(session_id=session_id, limit=50) if wanted else ():
        tool = entry.detail.get("tool")
        known = entry.detail.get(REPORT_ID)
        if event.call_id and isinstance(tool, dict):
            known = tool.get("call_id")
        if entry.kind == "edit" and known == wanted:
            return True
    return False


def _with_moved(
    place: Place, store: HistoryStore, event: HookEvent, files: dict[RelPath, ReportedEdit]
) -> dict[RelPath, ReportedEdit]:
    """A file that was moved here begins with what the tool found at its old path."""
    named = {edit.path: edit.moved_from for edit in event.edits if edit.moved_from}
    out = dict(files)
    for path, source in _in_workspace(place, event, named).items():
        old = next(iter(_in_workspace(place, event, {source: ""})), None)
        node = ABSENT if old is None else snapshots.lookup(store.objects, store.tip(), old)
        rewrite = files[path].rewrite
        out[path] = ReportedEdit()  # what is there now is the tool's
        if node.kind is Kind.FILE and rewrite is not None:
            with suppress(CannotEditError):
                out[path] = ReportedEdit(after=Content(rewrite(store.objects.read_blob(node.oid))))
    return out


def _names(files: dict[RelPath, ReportedEdit]) -> str:
    shown = " ".join(display(path) for path in list(files)[:_SHOWN_NAMES])
    more = len(files) - _SHOWN_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _trace(place: Place, event: HookEvent, recorded: Recorded) -> None:
    observed_span.write(place, event, recorded)
