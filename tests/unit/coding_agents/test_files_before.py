"""The files that the compiled client appends to a report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.coding_agents.files_before import split
from substrate.model import FileBefore

REPORT = b'{"hook_event_name": "PreToolUse"}'


def record(path: bytes, mode: bytes, data: bytes) -> bytes:
    return b"\0".join([path, mode, b"%d" % len(data), data])


def test_a_report_and_its_files() -> None:
    data = REPORT + b"\0" + record(b"a b", b"100755", b"x\0y") + record(b"c", b"-", b"")
    assert split(data) == (REPORT, {"a b": FileBefore(0o755, b"x\0y"), "c": FileBefore(0, None)})


def test_a_report_alone() -> None:
    assert split(REPORT) == (REPORT, {})


@pytest.mark.parametrize(
    "rest", [b"a", b"a\x000644", b"a\x000644\x009\0short", b"a\0rw\x001\0x", b"a\x000\0-1\0x"]
)
def test_what_is_cut_or_malformed_is_ignored(rest: bytes) -> None:
    whole = record(b"first", b"644", b"1")
    assert split(REPORT + b"\0" + whole + rest) == (REPORT, {"first": FileBefore(0o644, b"1")})


@given(st.binary(max_size=200))
def test_nothing_raises(data: bytes) -> None:
    split(data)
