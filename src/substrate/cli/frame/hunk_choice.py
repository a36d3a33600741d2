"""Hunks on a terminal: shown one by one, and asked for as `git add -p` does."""

from __future__ import annotations

import shlex
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

from substrate.cli.frame.output import Styled
from substrate.errors import RefusedError, UsageError
from substrate.model import display
from substrate.system.files import private_scratch
from substrate.system.process import process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrate.cli.frame.context import Context
    from substrate.cli.frame.output import Output
    from substrate.model import RelPath
    from substrate.recorder import ChangeHunk

_HELP = """\
y - {verb} this hunk{tail}
n - leave it
e - edit the lines that take its place
s - split it: hunks are as small as they get, so `e` does that here
a - {verb} this hunk{tail}, and the rest of the file
d - leave this hunk and the rest of the file
q - leave this hunk and all that follow"""


class Asking(NamedTuple):
    """What the user is asked to do with each hunk."""

    verb: str
    tail: str = ""
    #: Whether the new lines stay in place of the old ones, and are what the user edits.
    keeps_new: bool = True
    #: Where the hunks are listed with their ids.
    listed_by: str = "substrate diff --hunks"


TAKE_BACK = Asking("take", " back", keeps_new=False)
APPLY = Asking("apply")
RESTORE = Asking("restore")


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


def choose_hunks(
    context: Context, hunks: Sequence[ChangeHunk], asking: Asking = TAKE_BACK
) -> dict[str, tuple[bytes, ...] | None]:
    """The chosen ids, each with the lines to put there if the user edited them."""
    if not (sys.stdin.isatty() and context.output.is_terminal):
        raise UsageError(
            "-p asks on a terminal, and there is none",
            hint=f"`{asking.listed_by}` lists the hunks; name them: --hunk ID",
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
        answer = _answer(context.output, f"({number}/{len(hunks)})", hunk, asking)
        if answer == "q":
            break
        if answer in "ya":
            picked[hunk.hunk_id] = None
            all_of = hunk.path if answer == "a" else all_of
        elif answer == "d":
            none_of = hunk.path
        elif answer == "e":
            picked[hunk.hunk_id] = _edited(context, hunk.new if asking.keeps_new else hunk.old)
    return picked


def _answer(output: Output, number: str, hunk: ChangeHunk, asking: Asking) -> str:
    question = f"{number} {asking.verb.capitalize()} this hunk{asking.tail}"
    explained = _HELP.format(verb=asking.verb, tail=asking.tail)
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
        for line in explained.splitlines():
            if line[0] in ways or line[0] == letter == "s":
                output.line(line)


def _edited(context: Context, lines: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The lines as the user's editor left them."""
    variables = context.environment.variables
    editor = variables.get("VISUAL") or variables.get("EDITOR") or "vi"
    with private_scratch(context.environment.substrate_home) as place:
        file = place / "hunk"
        file.write_bytes(b"".join(lines))
        done = process.run_foreground(process.shell_argv(f"{editor} {shlex.quote(str(file))}"))
        if done.exit_code != 0:
            raise RefusedError(
                f"the editor ({editor}) exited with {done.exit_code}: nothing was changed",
                hint="set VISUAL or EDITOR to another one",
            )
        data = file.read_bytes()
    *whole, last = data.split(b"\n")
    return (*(line + b"\n" for line in whole), *([last] if last else []))
