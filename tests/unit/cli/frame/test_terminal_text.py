"""No foreign name may control the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.cli.frame.terminal_text import clip, folded, safe, safe_block, width


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain name.txt", "plain name.txt"),
        ("größe 日本 🎉", "größe 日本 🎉"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f\0", "\\x7f\\x00"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("line\u2028sep", "line\\u2028sep"),
        ("bad\udcff", "bad\\xff"),
        ("lone\ud800", "lone\\ud800"),
    ],
)
def test_controls_are_spelt_out(raw: str, shown: str) -> None:
    assert safe(raw) == shown


@given(st.text(st.characters()))
def test_safe_text_has_no_controls_left(raw: str) -> None:
    shown = safe(raw)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert safe(shown) == shown
    shown.encode("utf-8")


def test_a_block_keeps_lines_and_tabs() -> None:
    assert safe_block("a\tb\n\x1b[1mc\r\n") == "a\tb\n\\x1b[1mc\\r\n"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("🎉", 2), ("", 0)]
)
def test_width_counts_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_clipped_text_fits(text: str, columns: int) -> None:
    assert width(clip(text, columns)) <= columns


def test_a_page_is_folded_where_its_columns_meet() -> None:
    page = (
        "usage: it                 runs what you say\n"
        "  short  fits\n"
        "  name   a line that is too long for it\n"
        "  substrate run -- an example to be copied\n"
        "Words without a margin are broken, too.\n"
    )
    assert folded(page, 24) == (
        "usage: it\n    runs what you say\n"
        "  short  fits\n"
        "  name\n      a line that is too\n      long for it\n"
        "  substrate run -- an example to be copied\n"
        "Words without a margin\nare broken, too.\n"
    )
    assert folded(page, 80) == page


@given(st.text("ab \n", max_size=200), st.integers(1, 60))
def test_folding_loses_no_word(page: str, columns: int) -> None:
    assert folded(page, columns).split() == page.split()
