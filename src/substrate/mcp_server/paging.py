"""Short answers: a list is cut at a size and continues with a cursor."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from substrate.mcp_server.command_line import RefusedCallError

Item = TypeVar("Item")
#: About 2,000 tokens: four characters of English or code are about one token.
MOST_CHARACTERS = 8_000


def page(
    items: Sequence[Item], cursor: str | None, size_of: Callable[[Item], int]
) -> tuple[list[Item], str | None]:
    """The items from `cursor` on that fit, at least one, and the cursor of the rest."""
    start = position(cursor)
    room = MOST_CHARACTERS
    end = start
    while end < len(items):
        room -= size_of(items[end])
        if room < 0 and end > start:
            break
        end += 1
    return list(items[start:end]), str(end) if end < len(items) else None


def cut_text(text: str, cursor: str | None) -> tuple[str, str | None]:
    """The part of `text` from `cursor` on that fits, cut between lines where it can be."""
    start = position(cursor)
    part = text[start : start + MOST_CHARACTERS]
    if start + len(part) < len(text):
        whole_lines = part.rfind("\n") + 1
        part = part[: whole_lines or len(part)]
        return part, str(start + len(part))
    return part, None


def json_size(item: object) -> int:
    return len(json.dumps(item, ensure_ascii=False))


def position(cursor: str | None) -> int:
    if cursor is None or cursor == "":
        return 0
    if not (cursor.isascii() and cursor.isdecimal()):
        raise RefusedCallError(
            "usage", f"{cursor!r} is not a cursor", "pass next_cursor of the last answer unchanged"
        )
    return int(cursor)
