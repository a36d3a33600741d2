"""Prepare the parser's input, and walk its tree safely whatever its size and depth."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

#: Matches of a larger source are read in pieces, to bound the memory.
AT_ONCE_BYTES = 256 << 10
#: Only generated code nests deeper. The time of a query grows with size times depth.
DEEPEST = 1500
_DEPTH_SAMPLE = 1000
_LONE_CR = re.compile(rb"\r(?!\n)")
_COOKIE = re.compile(rb"\A(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)")
_COMMENT_LINE = re.compile(rb"\s*#")


def as_utf8(data: bytes, language: str) -> bytes:
    """The parser's input: UTF-8, with line feeds as line ends and unchanged line numbers."""
    if not data.isascii():
        data = data.removeprefix(b"\xef\xbb\xbf")
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            cookie = _COOKIE.match(data) if language == "Python" else None
            codec = cookie[1].decode() if cookie else "latin-1"
            try:
                data = data.decode(codec).encode("utf-8", "replace")
            except (LookupError, UnicodeError):
                data = data.decode("latin-1").encode("utf-8")
    return _LONE_CR.sub(b"\n", data) if b"\r" in data else data


def is_deep(root: Node) -> bool:
    """Whether the tree is much deeper than what people write: reliably from 2,500 on.

    The descendants of a node are one contiguous run, so that a sample finds every deep branch.
    """
    cursor = root.walk()
    for number in range(_DEPTH_SAMPLE, root.descendant_count, _DEPTH_SAMPLE):
        cursor.goto_descendant(number)
        if cursor.depth > DEEPEST:
            return True
    return False


def stretches(root: Node) -> Iterator[tuple[int, int]]:
    """Runs of the root's children."""
    start = end = 0
    for child in root.children:
        end = child.end_byte
        if end - start >= AT_ONCE_BYTES:
            yield start, end
            start = end
    if end > start:
        yield start, end


def comments_before(node: Node, body: Node, data: bytes) -> list[Node]:
    """The comments between a definition's first word and its body, for example at parameters."""
    if data.find(b"#", node.start_byte, body.start_byte) < 0:
        return []
    found = []
    for part in node.children:
        if part.start_byte >= body.start_byte:
            break
        found += [one for one in (part, *part.children) if one.type == "comment"]
    return found


def last_code(node: Node, end: int, data: bytes) -> Node:
    """The last descendant that is not a comment: a block may contain trailing comments."""
    line = data.rfind(b"\n", 0, end) + 1
    if data.find(b"#", line, end) < 0 or not _COMMENT_LINE.match(data, line, end):
        return node
    here = node
    while True:
        below = [child for child in here.children if child.type != "comment"]
        if not below:
            return here
        here = below[-1]
