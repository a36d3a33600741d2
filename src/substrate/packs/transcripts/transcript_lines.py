"""Read a transcript: JSON lines that may be torn, unknown or repeated, and an account of them.

Agents change their formats between versions, so reading is lenient: a value of an unexpected shape
reads as empty. Kept and left-out records are counted by kind.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.errors import UsageError

Json = dict[str, object]
#: The text of a file that a transcript names; None if it is not there.
Attached = Callable[[str], str | None]
_MOST_ATTACHED_BYTES = 256 << 20


class TranscriptReport(NamedTuple):
    """How many records were kept or left out: nothing is dropped without being counted."""

    lines: int
    kept: dict[str, int]
    left_out: dict[str, int]
    #: Numbers of lines in the middle of the file that are not JSON objects.
    unreadable: tuple[int, ...] = ()
    #: The last line is incomplete, as a killed agent leaves it.
    torn: bool = False
    notes: tuple[str, ...] = ()


class Transcript(NamedTuple):
    """An agent's transcript as an execution log, and the account of the conversion."""

    log: Json
    report: TranscriptReport


def sentences(report: TranscriptReport) -> Iterator[str]:
    """Sentences for people about the conversion."""
    kept = ", ".join(f"{count} {kind}" for kind, count in report.kept.items())
    yield f"kept of {report.lines} lines: {kept}"
    if report.left_out:
        left = ", ".join(f"{count} {kind}" for kind, count in report.left_out.items())
        yield f"left out: {left}"
    if report.unreadable:
        shown = ", ".join(map(str, report.unreadable[:10]))
        yield f"{len(report.unreadable)} lines are no JSON objects: {shown}"
    if report.torn:
        yield f"the last line ({report.lines}) was cut short and is left out"
    yield from report.notes


class Account:
    """Counts while a transcript is read."""

    def __init__(self) -> None:
        self.lines = 0
        self.unreadable: list[int] = []
        self.torn = False
        self.kept: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []

    def report(self) -> TranscriptReport:
        return TranscriptReport(
            self.lines, dict(sorted(self.kept.items())), dict(sorted(self.left_out.items())),
            tuple(self.unreadable), self.torn, tuple(self.notes),
        )  # fmt: skip


def records(data: Iterable[bytes], account: Account) -> Iterator[Json]:
    """The objects of a JSON Lines file, in order; other lines are counted in the account."""
    bad = 0
    for number, line in enumerate(data, start=1):
        account.lines = number
        if not line.strip():
            continue
        if bad:
            account.unreadable.append(bad)
            bad = 0
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            bad = number
            continue
        if isinstance(found, dict):
            yield found
        else:
            account.unreadable.append(number)
    account.torn = bool(bad)


def attached_in(directory: Path | None) -> Attached:
    """Read files that an agent saved below its transcript's directory, and no others.

    A relative name begins there.

    A transcript is text from elsewhere: it must not name a private file into a pack.
    """

    def read(name: str) -> str | None:
        if directory is None or not name:
            return None
        top = os.path.realpath(directory)
        path = os.path.realpath(os.path.join(top, name))
        if not path.startswith(top.rstrip("/") + "/"):
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError):
            return None
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_ATTACHED_BYTES:
                return None
            return file.read().decode("utf-8", "surrogateescape")

    return read


def require_any(account: Account, agent: str) -> None:
    """Refuse a file without any recognised record of the agent."""
    if not account.kept:
        raise UsageError(
            f"no prompt, answer or tool call of {agent} was found in {account.lines} lines",
            hint="--from takes claude-code, codex or gemini: name the agent that wrote the file",
        )


# -- values of unknown shape --------------------------------------------------------------------


def mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parsed(text: object) -> object:
    """The value of a JSON text inside a string; None if it is not one."""
    if not isinstance(text, str):
        return None
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def joined_text(content: object) -> str:
    """The text of a content: a string, or the text blocks of a list, one after the other."""
    if isinstance(content, str):
        return content
    blocks = [mapping(block) for block in items(content)]
    return "\n".join(string(block["text"]) for block in blocks if "text" in block)
