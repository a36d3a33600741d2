"""The only module that prints: for people by default, one JSON document with `--json`.

Everything passed to `line`, `table`, `note` and `error` is made safe for a terminal here, so a
command can pass names and messages unchanged. Colour is a `Styled` piece, never an escape
sequence in the text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from substrate.cli.frame.terminal_text import clip, is_control, safe, safe_block, width

if TYPE_CHECKING:
    from substrate.errors import SubstrateError
    from substrate.system import Environment

Style = Literal["plain", "bold", "dim", "red", "green", "yellow", "cyan"]

_SGR: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


#: The last column of a table keeps at least this width before an optional column is dropped.
_ROOM_FOR_LAST = 16
#: From this many columns on, a table shows all of its columns.
_WIDE = 110


class Styled(NamedTuple):
    """Text that is shown in a style if colour is on."""

    text: str
    style: Style


Piece = str | Styled


class Output:
    """stdout and stderr of one call. With `json`, stdout takes one document and nothing else."""

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        *,
        json: bool = False,
        no_color: bool = False,
        program: str = "substrate",
        columns: int = 0,
    ) -> None:
        """`columns`: the width of the terminal; 0: ask the terminal."""
        self._program = program
        self._given_columns = columns
        self._stdout = stdout
        self._stderr = stderr
        #: Final after the arguments are parsed; until then a guess.
        self.json = json
        #: More fields for the JSON document, whatever the verb.
        self.fields: dict[str, object] = {}
        self._document_written = False
        self._progress_shown = False
        self.is_terminal = stdout.isatty()
        self._color_out = self.is_terminal and not no_color
        self._color_err = stderr.isatty() and not no_color

    def line(self, *pieces: Piece) -> None:
        """One line for people; no piece can break it in two."""
        self._write_people("".join(_paint(piece, self._color_out) for piece in pieces) + "\n")

    def cut_line(self, *pieces: Piece) -> None:
        """One line, cut at the terminal's width; elsewhere nothing is cut."""
        self.line(*(_cut(pieces, self._columns()) if self.is_terminal else pieces))

    def table(
        self,
        rows: Sequence[Sequence[Piece]],
        *,
        header: Sequence[str] = (),
        right: Sequence[int] = (),
        whole: bool = False,
        spare: Sequence[int] = (),
    ) -> None:
        """Rows in aligned columns; the columns numbered in `right` are right-aligned.

        On a terminal the last column is cut to fit, unless `whole` is set. If the terminal is
        still too narrow, the columns in `spare` are left out, in this order. Elsewhere nothing is
        cut.
        """
        every = [header, *rows] if header else rows
        if not every:
            return
        if not self.is_terminal:
            self._write_people(_in_columns(every, right))
            return
        lines: list[list[Styled]] = [[_cell(piece) for piece in row] for row in rows]
        if header:
            lines.insert(0, [Styled(name, "dim") for name in header])
        widths = [max(width(row[i].text) for row in lines) for i in range(len(lines[0]))]
        left = _fitting(widths, spare, self._columns())
        lines = [[row[i] for i in left] for row in lines]
        widths = [widths[i] for i in left]
        right = [at for at, i in enumerate(left) if i in right]
        room = 0 if whole else self._columns() - sum(w + 2 for w in widths[:-1])
        out: list[str] = []
        for row in lines:
            for i, cell in enumerate(row):
                last = i == len(row) - 1
                shown = cell._replace(text=clip(cell.text, room)) if last and room > 8 else cell
                pad = " " * (widths[i] - width(cell.text))
                painted = _paint(shown, self._color_out)
                if i in right:
                    out.append(pad + painted)
                else:
                    out.append(painted if last else painted + pad)
                out.append("\n" if last else "  ")
        self._write_people("".join(out))

    def block(self, data: bytes) -> None:
        """Print several lines of foreign text, such as a diff.

        A file or a pipe gets the exact bytes; on a terminal, dangerous ones are escaped.
        """
        if self.is_terminal:
            self._write_people(safe_block(data.decode("utf-8", "surrogateescape")))
            return
        self._refuse_beside_json()
        self._write_bytes(data)

    def diff(self, data: bytes) -> None:
        """A diff as git writes it without colour: coloured here, after it was made safe."""
        if not self._color_out:
            self.block(data)
            return
        lines = safe_block(data.decode("utf-8", "surrogateescape")).split("\n")
        self._write_people("\n".join(_painted_diff(lines)))

    def emit_json(self, document: Mapping[str, object]) -> None:
        """The answer as a JSON document: once per call."""
        if self._document_written:
            raise RuntimeError("a second JSON document on stdout")
        self._document_written = True
        document = {**document, **self.fields}
        self._write_bytes(_json_bytes(document, indent=2 if self.is_terminal else None))

    def emit_json_line(self, document: Mapping[str, object]) -> None:
        """One of many documents, each on its own line: for an endless answer."""
        self._write_bytes(_json_bytes(document))

    def note(self, *pieces: Piece) -> None:
        """Something the user should know besides the answer: on stderr."""
        self._clear_progress()
        label = _paint(Styled("note:", "yellow"), self._color_err)
        text = "".join(_paint(piece, self._color_err) for piece in pieces)
        self._stderr.write(f"{self._program}: {label} {text}\n")

    def not_applied(self, text: str) -> None:
        """The last line of a command whose changes are not all in the tree: on stderr."""
        self._clear_progress()
        label = _paint(Styled("not applied:", "red"), self._color_err)
        self._stderr.write(f"{self._program}: {label} {safe(text)}\n")

    def aside(self, label: str, text: str) -> None:
        """An extra line on stderr with its own label, such as ``[replay] scopes: …``."""
        self._clear_progress()
        self._stderr.write(f"[{safe(label)}] {safe(text)}\n")

    def emit_error(self, error: SubstrateError) -> None:
        """What happened and what to do next, on stderr; with `--json` also there, as a document."""
        self._clear_progress()
        label = _paint(Styled("error:", "red"), self._color_err)
        lines = [f"{self._program}: {label} {_indented(error.message)}"]
        if error.hint:
            lines.append(f"hint: {_indented(error.hint)}")
        self._stderr.write("\n".join(lines) + "\n")
        if self.json:
            fields: dict[str, object] = {
                "kind": error.kind,
                "message": error.message,
                "hint": error.hint,
            }
            paths = getattr(error, "paths", ())
            if paths:
                fields["paths"] = list(paths)
            self._stderr.write(_json_bytes({"error": fields}).decode())
        self._stderr.flush()

    def progress(self, label: str, done: int, total: int | None = None) -> None:
        """Progress of long work: on stderr, on terminals only, replaced by the next output."""
        if not self._stderr.isatty():
            return
        amount = f"{done}" if total is None else f"{done}/{total}"
        self._stderr.write(f"\r{clip(safe(f'{label} {amount}'), self._columns() - 1)}\x1b[K")
        self._stderr.flush()
        self._progress_shown = True

    def flush(self) -> None:
        self._clear_progress()
        with reporting_unwritable():
            self._stdout.flush()
        self._stderr.flush()

    def _write_people(self, text: str) -> None:
        self._refuse_beside_json()
        self._clear_progress()
        with reporting_unwritable():
            self._stdout.write(text)

    def _write_bytes(self, data: bytes) -> None:
        with reporting_unwritable():
            self._stdout.flush()
            self._stdout.buffer.write(data)

    def _refuse_beside_json(self) -> None:
        # A verb that mixes the two has a bug: no program could parse its output.
        if self.json:
            raise RuntimeError("text for people beside a JSON document")

    def _clear_progress(self) -> None:
        if self._progress_shown:
            self._stderr.write("\r\x1b[K")
            self._stderr.flush()
            self._progress_shown = False

    @property
    def is_narrow(self) -> bool:
        """A terminal too small for every column of a wide table."""
        return self.is_terminal and self._columns() < _WIDE

    @property
    def columns(self) -> int:
        """The width of the terminal; 80 without one."""
        return self._columns()

    def _columns(self) -> int:
        if self._given_columns:
            return self._given_columns
        for stream in (self._stdout, self._stderr):
            try:
                return os.get_terminal_size(stream.fileno()).columns or 80
            except (OSError, ValueError):
                continue
        return 80


@contextmanager
def reporting_unwritable() -> Iterator[None]:
    """A full disk behind stdout is not the project's: the error must name stdout."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has seen enough: `substrate log | head`
    except OSError as error:
        from substrate.errors import OutputError

        raise OutputError(
            f"the answer could not be written to stdout: {error.strerror}",
            hint="send the output to a place that can take it; what this call did stays done"
            " (`substrate log` shows it)",
        ) from error


def open_output(environment: Environment, *, json: bool, program: str = "substrate") -> Output:
    """The process's own streams. A name that the locale cannot encode is escaped."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: `>&-`
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as we live
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    no_color = environment.no_color or environment.get("TERM") == "dumb"
    return Output(
        sys.stdout, sys.stderr, json=json, no_color=no_color, program=program,
        columns=environment.columns,
    )  # fmt: skip


def _fitting(widths: Sequence[int], spare: Sequence[int], columns: int) -> list[int]:
    """The columns of a table that are shown."""
    left = list(range(len(widths)))
    for i in spare:
        last = min(widths[left[-1]], _ROOM_FOR_LAST)
        if sum(widths[at] + 2 for at in left[:-1]) + last <= columns:
            break
        left.remove(i)
    return left


def _in_columns(rows: Sequence[Sequence[Piece]], right: Sequence[int]) -> str:
    """The rows without colour or cuts; built by column, because there may be thousands."""
    columns: list[list[str]] = []
    for i, column in enumerate(zip(*rows, strict=True)):
        texts = [safe(piece if isinstance(piece, str) else piece.text) for piece in column]
        if i in right or i < len(rows[0]) - 1:
            widths = list(map(width, texts))
            widest = max(widths)
            pads = [" " * (widest - one) for one in widths]
            pairs = zip(pads, texts, strict=True) if i in right else zip(texts, pads, strict=True)
            texts = [first + second for first, second in pairs]
        columns.append(texts)
    return "".join("  ".join(row) + "\n" for row in zip(*columns, strict=True))


def _cut(pieces: Sequence[Piece], columns: int) -> Iterator[Styled]:
    cells = [_cell(piece) for piece in pieces]
    if sum(width(cell.text) for cell in cells) <= columns:
        yield from cells
        return
    room = columns - 1  # the last column is the ellipsis
    for cell in cells:
        if width(cell.text) > room:
            yield cell._replace(text=clip(f"{cell.text}…", room + 1))
            return
        room -= width(cell.text)
        yield cell


def _cell(piece: Piece) -> Styled:
    if isinstance(piece, Styled):
        return piece._replace(text=safe(piece.text))
    return Styled(safe(piece), "plain")


def _paint(piece: Piece, color: bool) -> str:
    if isinstance(piece, str):
        return safe(piece)
    text = safe(piece.text)
    if not color or piece.style == "plain":
        return text
    return f"\x1b[{_SGR[piece.style]}m{text}\x1b[0m"


def _painted_diff(lines: Sequence[str]) -> Iterator[str]:
    """In a hunk the first character selects the colour; lines before it are the file header."""
    in_hunk = False
    for line in lines:
        if line.startswith("@@"):
            in_hunk = True
            style = "cyan"
        elif line.startswith("diff --git "):
            in_hunk = False
            style = "bold"
        else:
            style = {"+": "green", "-": "red"}.get(line[:1], "") if in_hunk else "bold"
        yield f"\x1b[{_SGR[style]}m{line}\x1b[0m" if style and line else line


def _indented(message: str) -> str:
    """Indent further lines of a message, so that none can look like our own hint."""
    return "\n  ".join(safe(line) for line in message.split("\n"))


def _json_bytes(document: Mapping[str, object], indent: int | None = None) -> bytes:
    import json

    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    # JSON leaves some control characters unescaped, and U+009B starts a sequence like ESC [.
    if not text.isascii() or "\x7f" in text:
        text = "".join(f"\\u{ord(c):04x}" if is_control(c) else c for c in text)
    # A lone surrogate has no UTF-8 form; its escape `\udcff` is valid JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"
