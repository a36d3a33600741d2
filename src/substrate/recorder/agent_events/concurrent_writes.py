"""Which files others wrote while an observed command ran, as far as that shows.

No process is visible here: only times, the record and the tree. Others wrote a file if

- another entry of that time changed it, or another open call may have;
- it was written after the command was reported as finished;
- it was edited outside shortly before the command, or an editor has it open, and the command's text
  does not name it.

A first edit by hand that is made while the command runs, without a mark of an editor, looks like
the command's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from substrate.history.arrival import written_by
from substrate.history.record import ToolCall, tool_calls
from substrate.history.store import Entry, HistoryStore
from substrate.model import ABSENT, Change, RelPath, split
from substrate.objects.snapshots import snapshot as snapshots

#: A file that was edited outside so recently is being edited.
_RECENT_NS = 10 * 60 * 10**9
#: How many entries back such an edit is looked for.
_LOOK_BACK = 50
#: What Vim and Emacs put beside a file that they have open.
_EDITOR_MARKS = (b".%s.swp", b".#%s")
_BETWEEN_WORDS = re.compile(r"[\s;&|<>()\"'`=]+")


def written_by_others(
    store: HistoryStore, call: ToolCall, command: str, ended_ns: int, changes: list[Change]
) -> set[RelPath]:
    """Those of the changed files. `ended_ns`: when the hook after the command began."""
    if not changes:
        return set()
    others = tool_calls.Expected(tool_calls.running(store.ledger))
    since = _paths(store, _entries_of_others(store, call))
    lately = _paths(store, _recent_outside_edits(store, call))
    in_time = {change.path for change in written_by(store, changes, ended_ns)}
    words = [word.rstrip("/") for word in _BETWEEN_WORDS.split(command)]
    return {
        change.path
        for change in changes
        if change.path in since
        or change.path in others
        or (change.new != ABSENT and change.path not in in_time)
        or (
            (change.path in lately or _is_in_editor(store, change.path))
            and not _is_named(words, change.path)
        )
    }


def _entries_of_others(store: HistoryStore, call: ToolCall) -> list[Entry]:
    return [
        entry
        for entry in store.ledger.live_after(call.after_seq)
        if entry.session_id != call.session_id or entry.kind == "external"
    ]


def _recent_outside_edits(store: HistoryStore, call: ToolCall) -> list[Entry]:
    """Without corrections of the record, and without what may be another command's."""
    return [
        entry
        for entry in store.ledger.live(committed=True, limit=_LOOK_BACK)
        if entry.kind == "external"
        and entry.ts_ns >= call.started_ns - _RECENT_NS
        and not entry.detail.keys() & {"cause", "uncertain"}
    ]


def _paths(store: HistoryStore, entries: Iterable[Entry]) -> set[RelPath]:
    touched: set[RelPath] = set()
    for entry in entries:
        assert entry.commit is not None
        before = store.parent_snapshot(entry.commit)
        if before is not None:
            after = store.snapshot_of(entry.commit)
            touched.update(c.path for c in snapshots.diff(store.objects, before, after))
    return touched


def _is_in_editor(store: HistoryStore, path: RelPath) -> bool:
    above, name = split(path)
    directory = os.path.join(os.fsencode(store.root), above)
    return any(os.path.lexists(os.path.join(directory, mark % name)) for mark in _EDITOR_MARKS)


def _is_named(words: Iterable[str], path: RelPath) -> bool:
    """Whether a word of the command is the file, a pattern of it, or a directory above it."""
    text = os.fsdecode(path)
    name = text.rpartition("/")[2]
    for word in words:
        if word in ("", "/"):
            continue
        last = word.rpartition("/")[2]
        if word == "." or fnmatchcase(name, last) or text == word:
            return True
        if word.lstrip("./") and f"/{text}".find(f"/{word.lstrip('./')}/") >= 0:
            return True
    return False
