"""Which content a tool found and left, from its report, the tip and the disk."""

from __future__ import annotations

from functools import partial

import pytest

from substrate.history.record.edit_versions import Versions, versions
from substrate.model import Content, ReportedEdit, replaced


def edit(old: str, new: str, before: bytes | None = None) -> ReportedEdit:
    rewrite = partial(_replaced, old, new)
    return ReportedEdit(Content(before) if before is not None else None, rewrite=rewrite)


def _replaced(old: str, new: str, data: bytes | None) -> bytes | None:
    return replaced(data, old, new, everywhere=False)


def test_only_the_tool_changed_it() -> None:
    assert versions(edit("b", "B", b"ab"), b"ab", b"aB") == Versions(b"ab", b"aB")
    assert versions(edit("b", "B"), b"ab", b"aB") == Versions(b"ab", b"aB")


def test_others_changed_it_before() -> None:
    assert versions(edit("b", "B", b"xab"), b"ab", b"xaB") == Versions(b"xab", b"xaB")


def test_others_changed_it_after() -> None:
    assert versions(edit("b", "B", b"ab"), b"ab", b"aBx") == Versions(b"ab", b"aB")
    assert versions(edit("b", "B"), b"ab", b"aBx") == Versions(b"ab", b"aB")


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_a_mark_that_the_report_leaves_out(mark: bytes) -> None:
    tip, disk = mark + b"a\r\nb\r\n", mark + b"a\r\nB\r\n"
    assert versions(edit("b", "B", b"a\nb\n"), tip, disk) == Versions(tip, disk)
    assert versions(edit("b", "B"), tip, disk) == Versions(tip, disk)
    later = disk + b"x\r\n"
    assert versions(edit("b", "B", b"a\nb\n"), tip, later) == Versions(tip, disk)


def test_a_report_that_does_not_fit_is_not_certain() -> None:
    assert versions(edit("zzz", "B"), b"ab", b"aB") == Versions(b"ab", b"aB", is_certain=False)


def test_without_any_report_the_disk_is_what_the_tool_left() -> None:
    assert versions(ReportedEdit(), b"ab", b"aB") == Versions(b"ab", b"aB")
    assert versions(ReportedEdit(Content(None)), None, b"aB") == Versions(None, b"aB")


@pytest.mark.parametrize(
    ("tip", "reported"),
    [
        (b"caf\xe9 b\n", "caf\ufffd b\n".encode()),
        (b"a\r\nb\nc\r\n", b"a\nb\nc\n"),
        (b"a\r\nb\nc\r\n", b"a\r\nb\r\nc\r\n"),
    ],
)
def test_a_report_that_cannot_show_the_bytes_means_the_recorded_ones(
    tip: bytes, reported: bytes
) -> None:
    """Otherwise an undo would write a content that was never there."""
    left = reported.replace(b"b", b"B")
    assert versions(edit("b", "B", reported), tip, left) == Versions(tip, left)


def test_a_tool_that_changed_nothing_has_changed_nothing() -> None:
    assert versions(edit("b", "b\nc"), b"ab\n", b"ab\n") == Versions(b"ab\n", b"ab\n")


def test_a_file_that_the_report_calls_empty_and_history_does_not_know_is_new() -> None:
    assert versions(edit("", "new", b""), None, b"new") == Versions(None, b"new")
