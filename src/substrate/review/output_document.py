"""What a command printed, as far as it is still kept."""

from __future__ import annotations

from substrate.errors import UsageError
from substrate.recorder import Place, resolve
from substrate.recorder.command import captured_output
from substrate.review.change_documents import line_text

Document = dict[str, object]
STREAMS = ("stdout", "stderr")
MOST_LINES = 2_000


def output_document(place: Place, entry_id: str, stream: str, start: int) -> Document:
    """Up to 2,000 lines from line `start` on; `kept` is false if there is nothing to show."""
    if stream not in STREAMS:
        raise UsageError(f"no stream {stream[:20]!r}", hint="stream is stdout or stderr")
    with place.existing_history() as store:
        span_id = resolve(store, entry_id, place.session).present.span_id
    data = None
    if span_id:
        home = place.environment.substrate_home
        data = captured_output.read(home, span_id, stream)
    if data is None:
        return {"id": entry_id, "stream": stream, "kept": False, "lines": [], "total": 0}
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    part = [line_text(line) for line in lines[start : start + MOST_LINES]]
    return {
        "id": entry_id, "stream": stream, "kept": True, "from": start, "lines": part,
        "total": len(lines), "bytes": len(data),
    }  # fmt: skip
