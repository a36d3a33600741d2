"""What reaches stdout and stderr, and what does not."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys

import pytest

from substrate.cli.frame.output import Output, Styled
from substrate.model import name_fields


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, "when        id   files  what\n2026-11-16  c-1      3  make all the things at once\n"),
        (40, "when        id   files  what\n2026-11-16  c-1      3  make all the th…\n"),
        (39, "id   files  what\nc-1      3  make all the things at once\n"),
        (28, "id   files  what\nc-1      3  make all the th…\n"),
        (27, "id   what\nc-1  make all the things a…\n"),
        (12, "id   what\nc-1  make all the things at once\n"),
    ],
)
def test_on_a_narrow_terminal_some_columns_are_left_out(columns: int, shown: str) -> None:
    buffer = io.BytesIO()
    out = Terminal(buffer, "utf-8")
    output = Output(out, out, no_color=True, columns=columns)
    row = ["2026-11-16", "c-1", "3", "make all the things at once"]
    output.table([row], header=["when", "id", "files", "what"], right=(2,), spare=(0, 2))
    output.flush()
    assert buffer.getvalue().decode() == shown


def test_a_pipe_gets_all_columns() -> None:
    captured = Captured()
    captured.output.table([["a", "x" * 200]], spare=(0,))
    assert captured.out == "a  " + "x" * 200 + "\n"


class Captured:
    """An `Output` on two byte buffers."""

    def __init__(self, *, json: bool = False) -> None:
        self._out, self._err = io.BytesIO(), io.BytesIO()
        self.output = Output(
            io.TextIOWrapper(self._out, "utf-8"), io.TextIOWrapper(self._err, "utf-8"), json=json
        )

    @property
    def out(self) -> str:
        self.output.flush()
        return self._out.getvalue().decode("utf-8", "surrogateescape")

    @property
    def err(self) -> str:
        self.output.flush()
        return self._err.getvalue().decode()


def test_columns_line_up_by_display_width() -> None:
    captured = Captured()
    captured.output.table(
        [["日本", "7", "first"], ["abc", Styled("1234", "red"), "second"]],
        header=["name", "size", "note"],
        right=[1],
    )
    assert captured.out == (
        "name  size  note\n"
        "日本     7  first\n"
        "abc   1234  second\n"
    )  # fmt: skip


def test_a_name_cannot_break_its_line_nor_send_escapes() -> None:
    captured = Captured()
    captured.output.line("file: ", Styled("a\n\x1b[2Jb", "bold"))
    captured.output.table([["x\ny", "\x1b]0;t\x07"]])
    assert captured.out == "file: a\\n\\x1b[2Jb\nx\\ny  \\x1b]0;t\\x07\n"


def test_a_block_reaches_a_pipe_byte_for_byte() -> None:
    captured = Captured()
    captured.output.line("before")
    captured.output.block(b"+\x1b[31m\xff\r\n")
    captured.output.line("after")
    assert captured.out.encode("utf-8", "surrogateescape") == b"before\n+\x1b[31m\xff\r\nafter\n"


def test_json_is_one_document_in_utf8() -> None:
    captured = Captured(json=True)
    captured.output.emit_json({"files": [name_fields(b"gr\xc3\xb6\n"), name_fields(b"%\xff")]})
    assert json.loads(captured.out) == {
        "files": [{"path": "grö\n"}, {"path": "%25%FF", "encoded": True}]
    }
    assert captured.out.count("\n") == 1


def test_json_holds_nothing_a_terminal_acts_on() -> None:
    captured = Captured(json=True)
    text = "\x1b[31m\x7f\x9b2J\u202egrö\n"
    captured.output.emit_json({"text": text})
    assert json.loads(captured.out) == {"text": text}
    assert [c for c in captured.out.strip() if c in "\x1b\x7f\x9b\u202e"] == []
    assert "grö" in captured.out


def test_a_lone_surrogate_is_still_json() -> None:
    captured = Captured(json=True)
    captured.output.emit_json({"text": "\udcff"})
    assert json.loads(captured.out) == {"text": "\udcff"}


def test_tables_of_unusual_shape() -> None:
    captured = Captured()
    captured.output.table([])
    captured.output.table([["a", "1"], ["bcd", "22"]], right=(1,))
    captured.output.table([], header=["name", "note"])
    assert captured.out == "a     1\nbcd  22\nname  note\n"


@pytest.mark.parametrize("text", ["line", "table", "block"])
def test_text_beside_json_is_a_bug(text: str) -> None:
    output = Captured(json=True).output
    with pytest.raises(RuntimeError, match="beside a JSON document"):
        if text == "line":
            output.line("x")
        elif text == "table":
            output.table([["x"]])
        else:
            output.block(b"x")


def test_a_second_document_is_a_bug() -> None:
    output = Captured(json=True).output
    output.emit_json({})
    with pytest.raises(RuntimeError, match="second JSON document"):
        output.emit_json({})


def test_notes_go_to_stderr_and_progress_nowhere_without_a_terminal() -> None:
    captured = Captured(json=True)
    captured.output.progress("reading", 1, 10)
    captured.output.note("a\nb")
    assert captured.err == "substrate: note: a\\nb\n"
    assert captured.out == ""


_ON_A_TERMINAL = """
from substrate.cli.frame.output import Styled, open_output
from substrate.system import environment
output = open_output(environment.current(), json=False)
output.progress("reading", 1, 2)
output.line(Styled("red", "red"), " ", Styled("a\\x1bb", "plain"))
output.table([["x", "long " * 40]])
output.table([["x", "long " * 40]], whole=True)
output.cut_line("x" * 70, Styled("y" * 10, "red"))
output.cut_line("x" * 70, Styled("y" * 10, "red"), "z")
output.block(b"+\\x1b[31m\\tend\\n")
output.diff(b"diff --git a/x b/x\\n--- a/x\\n@@ -1,2 +1,2 @@\\n--- old\\n+\\x1b[1m\\n same\\n")
output.flush()
"""


def on_a_terminal(**variables: str) -> str:
    """What a terminal of 80 columns would receive."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_A_TERMINAL],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", **variables},
    )
    os.close(terminal)
    received = b""
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # Linux's way to say that the other side has closed
            break
        if not data:
            break
        received += data
    os.close(controller)
    assert process.wait() == 0
    return received.decode().replace("\r\n", "\n")


@pytest.mark.needs("posix")
def test_on_a_terminal_there_is_colour_progress_and_a_cut_last_column() -> None:
    progress, _, rest = on_a_terminal().partition("\r\x1b[K")
    assert progress == "\rreading 1/2\x1b[K"
    red, row, whole, fits, cut, block, *diff, end = rest.split("\n")
    assert red == "\x1b[31mred\x1b[0m a\\x1bb"
    assert row.startswith("x  long long")
    assert row.endswith("…")
    assert len(row) <= 80
    assert whole == "x  " + "long " * 40
    assert fits == "x" * 70 + "\x1b[31m" + "y" * 10 + "\x1b[0m"
    assert cut == "x" * 70 + "\x1b[31m" + "y" * 9 + "…\x1b[0m"
    assert block == "+\\x1b[31m\tend".replace("\t", block[9:-3])
    assert diff == [
        "\x1b[1mdiff --git a/x b/x\x1b[0m",
        "\x1b[1m--- a/x\x1b[0m",
        "\x1b[36m@@ -1,2 +1,2 @@\x1b[0m",
        "\x1b[31m--- old\x1b[0m",
        "\x1b[32m+\\x1b[1m\x1b[0m",
        " same",
    ]
    assert end == ""


@pytest.mark.needs("posix")
def test_columns_may_be_given() -> None:
    assert "x  long long long long long long long l…\n" in on_a_terminal(COLUMNS="40")


@pytest.mark.needs("posix")
def test_no_color_and_dumb_terminals_are_respected() -> None:
    assert "\x1b[31m" not in on_a_terminal(NO_COLOR="1")
    assert "\x1b[31m" not in on_a_terminal(TERM="dumb")
    assert "\x1b[31m" in on_a_terminal(NO_COLOR="")
