"""Changes of files as JSON: each file with its hunks, each hunk with the lines around it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from substrate.model import Node, RelPath, name_fields
from substrate.recorder import FileChange, HistoryStore, Place, ShownHunk, queries, shown_hunks
from substrate.recorder.command import outside_edits
from substrate.review.scope_words import scope_meant

Document = dict[str, object]

#: A longer line is cut; a file with more changed lines is shown on request only.
MOST_LINE = 2_000
MOST_LINES = 5_000
_BINARY_PROBE_BYTES = 8_000


def diff_document(
    place: Place, scope: str, paths: tuple[RelPath, ...] = (), *, whole: bool = False
) -> Document:
    """The net change of a scope. `whole`: also the lines of very large changes."""
    meant = scope_meant(scope, place)
    with place.existing_history() as store, store.rehearsing("diff"):
        last = store.ledger.last_pos()
        if scope.startswith("external"):
            outside_edits.agree(place, store, records=False)
        found_scope = meant.find(store)
        found = queries.scope_diff(store, found_scope, paths, hunks=True)
        ids: dict[RelPath, list[str]] = {}
        for hunk in found.hunks if found else ():
            ids.setdefault(hunk.path, []).append(hunk.hunk_id)
        return {
            "scope": scope,
            "name": found_scope.name,
            "commands": [one.command_id for one in found_scope.entries if one.pos <= last],
            "files": [
                _file(store, change, ids.get(change.path, []), whole=whole)
                for change in (found.files if found else ())
            ],
        }


def _file(store: HistoryStore, change: FileChange, ids: list[str], *, whole: bool) -> Document:
    contents = content_of(store, change.old), content_of(store, change.new)
    return {
        **name_fields(change.path),
        "change": change.change,
        "binary": change.binary,
        "additions": change.additions,
        "deletions": change.deletions,
        "old_bytes": len(contents[0]),
        "new_bytes": len(contents[1]),
        **hunk_fields(*contents, ids, whole=whole),
    }


def content_of(store: HistoryStore, node: Node) -> bytes:
    return store.objects.read_blob(node.oid) if node.has_content else b""


def hunk_fields(old: bytes, new: bytes, ids: Sequence[str] = (), *, whole: bool) -> Document:
    """`hunks`; for a large change `too_many_lines` instead, for a binary one their ids only."""
    if is_binary(old) or is_binary(new):
        return {"hunks": [{"id": one, "lines": []} for one in ids]}
    found = shown_hunks(old, new)
    count = sum(len(hunk.lines) for hunk in found)
    if count > MOST_LINES and not whole:
        return {"hunks": [], "too_many_lines": count}
    # A whole file that is new or gone is one hunk for `undo`, and one here; a mode comes on top.
    named = list(ids[: len(found)]) if len(ids) >= len(found) else [None] * len(found)
    out = [_hunk(hunk, one) for hunk, one in zip(found, named, strict=True)]
    return {"hunks": [*out, *({"id": one, "lines": []} for one in ids[len(found) :])]}


def _hunk(hunk: ShownHunk, hunk_id: str | None) -> Document:
    return {
        "id": hunk_id,
        "old_start": hunk.old_start,
        "new_start": hunk.new_start,
        "lines": [[one.sign, one.old, one.new, line_text(one.text)] for one in hunk.lines],
    }


def line_text(line: bytes) -> str:
    """For JSON; bytes that are not UTF-8 are escaped, and a very long line is cut."""
    text = line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
    if len(text) <= MOST_LINE:
        return text
    return f"{text[:MOST_LINE]}… ({len(text) - MOST_LINE} more characters)"


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def names(paths: Iterable[RelPath]) -> list[Document]:
    return [name_fields(path) for path in paths]
