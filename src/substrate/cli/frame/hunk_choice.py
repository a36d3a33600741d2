"""Hunks on a terminal: shown one by one, and asked for as `git add -p` does."""

from __future__ import annotations

import shlex
import sys
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from substrate.cli.frame.output import Styled
from substrate.errors import RefusedError, UsageError
from substrate.model import display
from substrate.system.process import process

if TYPE_CHECKING:
    from substrate.cli.frame.context import Context
    from substrate.cli.frame.output import Output
    from substrate.model import RelPath
    from substrate.recorder import ChangeHunk

_HELP = """\
y - take this hunk back
n - leave it
e - edit the lines that take its place
a - take back this hunk and the rest of the file
d - leave this hunk and the rest of the file
q - leave this hunk and all that follow"""


def hunk_json(hunk: ChangeHunk) -> dict[str, object]:
    return {
        "id": hunk.hunk_id,
        "kind": hunk.kind,
        "old_start": hunk.old_at + 1,
        "new_start": hunk.new_at + 1,
        **_text_fields("old", hunk.old),
        **_text_fields("new", hunk.new),
    }


def _text_fields(name: str, lines: tuple[bytes, ...]) -> dict[str, object]:
    """The lines, or, if they are not UTF-8, their bytes in base64."""
    try:
        return {name: [line.decode("utf-8") for line in lines]}
    except UnicodeDecodeError:
        return {f"{name}_b64": b64encode(b"".join(lines)).decode("ascii")}


def show_hunk(output: Output, hunk: ChangeHunk) -> None:
    """Its id and path, then its lines as in a diff."""
    output.line(Styled(hunk.hunk_id, "yellow"), "  ", Styled(display(hunk.path), "bold"))
    if hunk.kind == "mode":
        old, new = hunk.change.old.mode, hunk.change.new.mode
        output.line(f"  mode {old:04o} → {new:04o}" if old != new else "  attributes")
    elif hunk.kind == "whole" and not (hunk.old or hunk.new):
        output.line(f"  {hunk.change.old.kind.value} → {hunk.change.new.kind.value}")
    else:
        ranges = f"-{hunk.old_at + 1},{len(hunk.old)} +{hunk.new_at + 1},{len(hunk.new)}"
        lines = [*(b"-" + line for line in hunk.old), *(b"+" + line for line in hunk.new)]
        output.diff(b"".join([f"@@ {ranges} @@\n".encode(), *map(_ended, lines)]))


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def choose_hunks(context: Context, hunks: list[ChangeHunk]) -> dict[str, tuple[bytes, ...] | None]:
    """The ids to take back, each with the lines to put there if the user edited them."""
    if not (sys.stdin.isatty() and context.output.is_terminal):
        raise UsageError(
            "-p asks on a terminal, and there is none",
            hint="`substrate diff --hunks` lists the hunks; name them: --hunk ID",
        )
    picked: dict[str, tuple[bytes, ...] | None] = {}
    all_of: RelPath | None = None
    none_of: RelPath | None = None
    for number, hunk in enumerate(hunks, 1):
        if hunk.path == none_of:
            continue
        if hunk.path == all_of:
            picked[hunk.hunk_id] = None
            continue
        show_hunk(context.output, hunk)
        answer = _answer(context.output, f"({number}/{len(hunks)}) Take this hunk back", hunk)
        if answer == "q":
            break
        if answer in "ya":
            picked[hunk.hunk_id] = None
            all_of = hunk.path if answer == "a" else all_of
        elif answer == "d":
            none_of = hunk.path
        elif answer == "e":
            picked[hunk.hunk_id] = _edited(context, hunk)
    return picked


def _answer(output: Output, question: str, hunk: ChangeHunk) -> str:
    ways = "yneadq" if hunk.kind == "lines" else "ynadq"
    while True:
        output.line(f"{question} [{','.join(ways)},?]? ")
        output.flush()
        typed = sys.stdin.readline()
        if not typed:
            return "q"
        letter = typed.strip().lower()[:1]
        if letter and letter in ways:
            return letter
        for line in _HELP.splitlines():
            if line[0] in ways:
                output.line(line)


def _edited(context: Context, hunk: ChangeHunk) -> tuple[bytes, ...]:
    """The old lines as the user's editor left them."""
    variables = context.environment.variables
    editor = variables.get("VISUAL") or variables.get("EDITOR") or "vi"
    with TemporaryDirectory(prefix="substrate-") as place:
        file = Path(place, "hunk")
        file.write_bytes(b"".join(hunk.old))
        done = process.run_foreground(process.shell_argv(f"{editor} {shlex.quote(str(file))}"))
        if done.exit_code != 0:
            raise RefusedError(
                f"the editor ({editor}) exited with {done.exit_code}: nothing was changed",
                hint="set VISUAL or EDITOR to another one",
            )
        data = file.read_bytes()
    *lines, last = data.split(b"\n")
    return (*(line + b"\n" for line in lines), *([last] if last else []))
