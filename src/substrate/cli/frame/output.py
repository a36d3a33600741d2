"""The one place that prints: for people by default, one JSON document with `--json`.

Everything handed to `line`, `table`, `note` and `error` is made safe for a terminal here, so
a command can pass names and messages as they are. Colour is a `Styled` piece, never an escape
sequence in the text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from substrate.cli.text import clip, is_control, safe, safe_block, width
from substrate.model.paths import to_text

if TYPE_CHECKING:
    from substrate.errors import SubstrateError
    from substrate.system.environment import Environment

Style = Literal["plain", "bold", "dim", "red", "green", "yellow", "cyan"]

_SGR: Mapping[str, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


#: The last column of a table is cut, but not to less than this for the sake of another one.
_ROOM_FOR_LAST = 16
#: From this many columns on, a table may be generous.
_WIDE = 110


class Styled(NamedTuple):
    """Text that is shown in a style where colour is on."""

    text: str
    style: Style


Piece = str | Styled


def name_fields(path: bytes, key: str = "path") -> dict[str, object]:
    """A file name as JSON holds it: `{"path": …}`, with `"encoded": true` where it had to be."""
    text, encoded = to_text(path)
    return {key: text, "encoded": True} if encoded else {key: text}


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
        """`columns`: how wide the terminal is; 0: ask it."""
        self._program = program
        self._given_columns = columns
        self._stdout = stdout
        self._stderr = stderr
        #: Settled once the words are parsed; until then a good guess.
        self.json = json
        self._document_written = False
        self._progress_shown = False
        self.is_terminal = stdout.isatty()
        self._color_out = self.is_terminal and not no_color
        self._color_err = stderr.isatty() and not no_color

    def line(self, *pieces: Piece) -> None:
        """One line for people; no piece can break it in two."""
        self._write_people("".join(_paint(piece, self._color_out) for piece in pieces) + "\n")

    def table(
        self,
        rows: Sequence[Sequence[Piece]],
        *,
        header: Sequence[str] = (),
        right: Sequence[int] = (),
        whole: bool = False,
        spare: Sequence[int] = (),
    ) -> None:
        """Rows in columns that line up; the columns numbered in `right` lean right.

        On a terminal the last column is cut to fit, unless it is to be read `whole`; elsewhere
        nothing is. Where it is too narrow even so, those in `spare` are left out, in this order.
        """
        lines: list[list[Styled]] = [[_cell(piece) for piece in row] for row in rows]
        if header:
            lines.insert(0, [Styled(name, "dim") for name in header])
        if not lines:
            return
        widths = [max(width(row[i].text) for row in lines) for i in range(len(lines[0]))]
        if self.is_terminal:
            left = _fitting(widths, spare, self._columns())
            lines = [[row[i] for i in left] for row in lines]
            widths = [widths[i] for i in left]
            right = [at for at, i in enumerate(left) if i in right]
        room = (
            self._columns() - sum(w + 2 for w in widths[:-1])
            if self.is_terminal and not whole
            else 0
        )
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
        """Several lines of somebody else's text, such as a diff.

        To a file or a pipe the exact bytes; on a terminal with the dangerous ones spelt out.
        """
        if self.is_terminal:
            self._write_people(safe_block(data.decode("utf-8", "surrogateescape")))
            return
        self._refuse_beside_json()
        self._stdout.flush()
        self._stdout.buffer.write(data)

    def diff(self, data: bytes) -> None:
        """A diff as git writes it (without colour): painted here, after it has been made safe."""
        if not self._color_out:
            self.block(data)
            return
        lines = safe_block(data.decode("utf-8", "surrogateescape")).split("\n")
        self._write_people("\n".join(_painted_diff(lines)))

    def emit_json(self, document: Mapping[str, object]) -> None:
        """The answer for a program: once per call."""
        if self._document_written:
            raise RuntimeError("a second JSON document on stdout")
        self._document_written = True
        self._stdout.flush()
        self._stdout.buffer.write(_json_bytes(document, indent=2 if self.is_terminal else None))

    def emit_json_line(self, document: Mapping[str, object]) -> None:
        """One of many documents, each on a line of its own: for an answer without an end."""
        self._stdout.flush()
        self._stdout.buffer.write(_json_bytes(document))

    def note(self, *pieces: Piece) -> None:
        """Something the user should know besides the answer: on stderr."""
        self._clear_progress()
        label = _paint(Styled("note:", "yellow"), self._color_err)
        text = "".join(_paint(piece, self._color_err) for piece in pieces)
        self._stderr.write(f"{self._program}: {label} {text}\n")

    def aside(self, label: str, text: str) -> None:
        """A line beside the answer under its own label, such as ``[replay] scopes: …``: stderr."""
        self._clear_progress()
        self._stderr.write(f"[{safe(label)}] {safe(text)}\n")

    def emit_error(self, error: SubstrateError) -> None:
        """What happened and what to do next, on stderr; with `--json` as a document there too."""
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
        """How far long work has come: on stderr, on terminals only, replaced by what follows."""
        if not self._stderr.isatty():
            return
        amount = f"{done}" if total is None else f"{done}/{total}"
        self._stderr.write(f"\r{clip(safe(f'{label} {amount}'), self._columns() - 1)}\x1b[K")
        self._stderr.flush()
        self._progress_shown = True

    def flush(self) -> None:
        self._clear_progress()
        self._stdout.flush()
        self._stderr.flush()

    def _write_people(self, text: str) -> None:
        self._refuse_beside_json()
        self._clear_progress()
        self._stdout.write(text)

    def _refuse_beside_json(self) -> None:
        # A verb that mixes the two has a bug that would break every program reading it.
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
        """How wide the terminal is; 80 where there is none."""
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


def open_output(environment: Environment, *, json: bool, program: str = "substrate") -> Output:
    """The process's own streams. A name that the locale cannot spell is escaped, not an error."""
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
    """In a hunk the first character tells; what comes before it is the file's heading."""
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
    """Further lines of a message are set in, so that none can pose as a hint of ours."""
    return "\n  ".join(safe(line) for line in message.split("\n"))


def _json_bytes(document: Mapping[str, object], indent: int | None = None) -> bytes:
    import json

    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent)
    # JSON leaves some controls as they are, and U+009B begins a sequence as ESC [ does.
    if not text.isascii() or "\x7f" in text:
        text = "".join(f"\\u{ord(c):04x}" if is_control(c) else c for c in text)
    # A lone surrogate cannot be UTF-8; spelt `\udcff` it is still JSON.
    return text.encode("utf-8", "backslashreplace") + b"\n"
