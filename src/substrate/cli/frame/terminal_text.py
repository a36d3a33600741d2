"""Text for people: make it safe for a terminal, measure it in columns, cut it to fit.

File names, command lines and commit messages come from any source. Printed unchanged, an escape
sequence in a name could move the cursor, retitle the window or hide a line; a right-to-left
override could make `txt.exe` look like `exe.txt`.
"""

from __future__ import annotations

from unicodedata import category, combining, east_asian_width

#: Invisible marks that reorder the text around them.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Controls, lone surrogates, line and paragraph separators.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_STEP = "    "
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe(text: str) -> str:
    """`text` on one line, with everything a terminal would act on escaped.

    "a\\nb" -> "a\\\\nb"      "\\x1b[31m" -> "\\\\x1b[31m"      printable text stays as it is
    """
    if text.isprintable():
        return text
    return "".join(_spell(c) if _is_unsafe(c) else c for c in text)


def safe_block(text: str) -> str:
    """The same for text of several lines: line feeds and tabs stay."""
    return "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))


def is_control(c: str) -> bool:
    """Whether a terminal would act on it, although JSON allows it unescaped."""
    return "\x7f" <= c <= "\x9f" or c in _REORDERING


def width(text: str) -> int:
    """How many terminal columns `text` takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(c) for c in text)


def clip(text: str, columns: int) -> str:
    """`text`, cut with an ellipsis if it is wider than `columns`."""
    if width(text) <= columns:
        return text
    out: list[str] = []
    left = columns - 1
    for c in text:
        left -= _columns(c)
        if left < 0:
            break
        out.append(c)
    return "".join(out) + "…"


def folded(block: str, columns: int) -> str:
    """Break lines that are too wide: first between their two columns, then between words. An
    indented line with one column is an example to copy, so it stays whole."""
    return "\n".join(_folded(line, columns) for line in block.split("\n"))


def _folded(line: str, columns: int) -> str:
    if width(line) <= columns:
        return line
    body = line.lstrip(" ")
    indent = line[: len(line) - len(body)]
    first, gap, rest = body.partition("  ")
    if gap:
        return f"{indent}{first}\n{_wrapped(rest.lstrip(), indent + _STEP, columns)}"
    return line if indent else _wrapped(body, "", columns)


def _wrapped(text: str, indent: str, columns: int) -> str:
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and width(indent + longer) > columns:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(indent + line for line in lines)


def _columns(c: str) -> int:
    if combining(c) or category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(c) in ("W", "F") else 1


def _is_unsafe(c: str) -> bool:
    return c in _REORDERING or category(c) in _UNSAFE_CATEGORIES


def _spell(c: str) -> str:
    if c in _SHORT:
        return _SHORT[c]
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode returns it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
