"""What a coding agent's edit tool reports about one file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Content(NamedTuple):
    """A file's content; None: there is no file."""

    data: bytes | None


class FileBefore(NamedTuple):
    """A file as it was when a tool was announced."""

    #: The twelve permission bits.
    mode: int
    #: None: there was no file.
    data: bytes | None


#: Makes the new content out of the old one, as the tool does; raises `CannotEditError`.
Rewrite = Callable[[bytes | None], bytes | None]


class CannotEditError(ValueError):
    """The edit does not fit the content."""


class ReportedEdit(NamedTuple):
    """What is known about one edit. None: the agent does not report it."""

    before: Content | None = None
    after: Content | None = None
    rewrite: Rewrite | None = None


def replaced(data: bytes | None, old: str, new: str, *, everywhere: bool) -> bytes:
    """The content after an edit that replaces `old` by `new`; an empty `old` creates the file."""
    before, after = old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass")
    if not before and not data:
        return after
    if data is None or not before or before not in data:
        raise CannotEditError("the text to replace is not there")
    return data.replace(before, after) if everywhere else data.replace(before, after, 1)
