"""The streaming reader against `json`, with windows so small that everything is taken apart."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.packs.format.json_stream import JsonStream, JsonSyntaxError
from substrate.packs.format.spill_file import Scratch, Spilled

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["\\" * 9, '"' * 9, "😀" * 20, "\\ud83d" * 5, "\x00\x1f\n" * 6]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=25,
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    made = Scratch(tmp_path_factory.mktemp("scratch"))
    return made.__enter__()


def whole(value: object) -> object:
    """Spilled texts back in their places."""
    if isinstance(value, Spilled):
        return value.text()
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return value


def read(scratch: Scratch, data: bytes, window: int = 64) -> list[object]:
    stream = JsonStream(io.BytesIO(data), scratch.spill, window)
    return [whole(value) for _, value in stream.documents()]


@given(
    st.lists(VALUES, max_size=4), st.integers(20, 200), st.booleans(), st.sampled_from([None, 2])
)
@settings(max_examples=150)
def test_reads_what_json_reads(
    scratch: Scratch, values: list[object], window: int, ascii_only: bool, indent: int | None
) -> None:
    data = "\n".join(json.dumps(v, ensure_ascii=ascii_only, indent=indent) for v in values)
    try:
        assert read(scratch, data.encode(), window) == values
    except JsonSyntaxError as error:
        # Only a name longer than the window is refused.
        assert "name" in error.problem


def test_a_long_text_is_spilled_with_its_address(scratch: Scratch) -> None:
    text = 'line\n"quoted" \\ é 😀\n' * 2000
    (value,) = JsonStream(io.BytesIO(json.dumps(text).encode()), scratch.spill, 4096).documents()
    assert isinstance(value[1], Spilled)
    assert value[1].text() == text
    assert value[1].size == len(text.encode())


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b'{"a": 1\n "b": 2}', 2, "comma"),
        (b'{"a": 1,\n\n}', 3, "a name in double quotes"),
        (b"[1,\n2", 2, "comma or ]"),
        (b'{"a":\n\n', 3, "the text ends"),
        (b'{"a": 1,\n "a": 2}', 2, '"a" is there twice'),
        (b'{"x": {"a": 1,\n "a": 2}}', 2, '"a" is there twice'),
        (b"[NaN]", 1, "NaN is not JSON"),
        (b"[\n1e999]", 2, "too large"),
        (b"[" + b"9" * 5000 + b"]", 1, "more than 4,300 digits"),
        (b"[tru]", 1, "not JSON: tru"),
        (b'["\\q"]', 1, "escape"),
        (b'["a\nb"]', 1, "control character"),
        (b'\n["\xff"]', 2, "not UTF-8"),
        (b"[" * 300, 1, "deep"),
        (b"\n\n}", 3, "no value begins so"),
        (b'["' + b"x" * 300 + b"\\ud800 is half" + b"y" * 300 + b'"]', 1, "half a character"),
        (b'["' + b"x" * 300 + b"\\udc00" + b"y" * 300 + b'"]', 1, "half a character"),
        (b'["' + b"x" * 300, 1, "does not end"),
        (b'["' + b"x" * 300 + b"\\", 1, " "),
    ],
)
def test_what_is_wrong_and_in_which_line(
    scratch: Scratch, data: bytes, line: int, problem: str
) -> None:
    for window in (64, 1 << 20) if b"half" not in problem.encode() else (64,):
        with pytest.raises(JsonSyntaxError) as caught:
            read(scratch, data, window)
        if b"\xff" in data:
            continue  # the decoder works ahead of the line
        assert (caught.value.line, problem in caught.value.problem) == (line, True), (
            caught.value.problem
        )


def test_scratch_is_gone_afterwards(tmp_path: Path) -> None:
    with Scratch(tmp_path) as scratch:
        scratch.spill(["x"])
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
