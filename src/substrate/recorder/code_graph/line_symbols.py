"""Which function or class each line of a recorded file belongs to."""

from __future__ import annotations

from substrate.history.store import HistoryStore
from substrate.model import Kind, RelPath
from substrate.objects.snapshots import snapshot as snapshots


def symbols_by_line(store: HistoryStore, path: RelPath) -> dict[int, str]:
    """Line number -> the innermost definition around it, as of history's tip.

    Empty for a language without symbol support, and if the parsers are not installed: blame works
    without them.
    """
    try:
        from substrate.graph.parse import extract, name_key
    except ImportError:
        return {}
    node = snapshots.lookup(store.objects, store.tip(), path)
    if node.kind is not Kind.FILE:
        return {}
    facts = extract(name_key(path), store.objects.read_blob(node.oid))
    found: dict[int, str] = {}
    # Outer definitions come first, so that inner ones overwrite them.
    for symbol, detail in list(zip(facts.symbols, facts.details, strict=True))[1:]:
        for line in range(detail.span.start_line, detail.span.end_line + 1):
            found[line] = symbol.local
    return found
