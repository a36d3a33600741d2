from __future__ import annotations

from pathlib import Path

import pytest

from substrate.system import clock
from substrate.trace.reader import TraceReader
from substrate.trace.writer import TraceWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def numbers(reader: TraceReader, **wanted: object) -> list[object]:
    return [span["n"] for span in reader.spans(**wanted)]  # type: ignore[arg-type]


def test_no_trace_is_an_empty_one(path: Path) -> None:
    assert list(TraceReader(path).spans()) == []


def test_spans_come_oldest_first_across_files(path: Path) -> None:
    writer = TraceWriter(path, rotate_bytes=30)
    for n in range(10):
        writer.append({"n": n})
    assert path.with_name("trace.jsonl.3").exists()
    assert numbers(TraceReader(path)) == list(range(10))


@pytest.mark.parametrize(
    "garbage",
    [b"{", b'{"n":', b"\xff\xfe", b"[1,2]", b"7", b"null", b"[" * 100_000, b"\0\0", b'"text"'],
)
def test_garbage_is_skipped_and_counted(path: Path, garbage: bytes) -> None:
    path.write_bytes(b'{"n":1}\n' + garbage + b'\n{"n":2}\n')
    reader = TraceReader(path)
    assert numbers(reader) == [1, 2]
    assert reader.skipped == 1


def test_empty_lines_and_a_torn_end(path: Path) -> None:
    path.write_bytes(b'\n{"n":1}\n\n{"n":2}\n{"n":3')
    reader = TraceReader(path)
    assert numbers(reader) == [1, 2]
    assert reader.skipped == 1


def test_unknown_fields_are_kept(path: Path) -> None:
    path.write_text('{"n": 1, "from the future": {"x": []}}\n')
    assert list(TraceReader(path).spans()) == [{"n": 1, "from the future": {"x": []}}]


def test_one_session(path: Path) -> None:
    writer = TraceWriter(path)
    for n, session in enumerate(["s-1", "s-2", "s-1"]):
        writer.append({"n": n, "session_id": session})
    assert numbers(TraceReader(path), session="s-1") == [0, 2]


def test_since_a_time(path: Path) -> None:
    writer = TraceWriter(path)
    for n in range(4):
        writer.append({"n": n, "ts": clock.iso(10**18 + n * 10**9)})
    assert numbers(TraceReader(path), since_ns=10**18 + 2 * 10**9) == [2, 3]


def test_both_lines_of_a_span(path: Path) -> None:
    writer = TraceWriter(path)
    for n, span in enumerate(["spn_a", "spn_b", "spn_a"]):
        writer.append({"n": n, "span_id": span})
    assert [span["n"] for span in TraceReader(path).find("spn_a")] == [0, 2]
    assert TraceReader(path).find("spn_c") == []


def test_a_rotation_while_reading_hides_and_repeats_nothing(path: Path) -> None:
    writer = TraceWriter(path, rotate_bytes=30)
    for n in range(4):
        writer.append({"n": n})
    spans = TraceReader(path).spans()
    seen = [next(spans)["n"]]
    for n in range(4, 12):
        writer.append({"n": n})
    seen += [span["n"] for span in spans]
    assert seen == list(range(len(seen)))
    assert len(seen) >= 4
