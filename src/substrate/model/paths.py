"""Workspace-relative paths: bytes, ``/``-separated, never absolute, never with ``.`` or ``..``."""

from __future__ import annotations

from typing import NewType

#: ``b""`` is the workspace root; ``b"src/a.py"`` a file below it.
RelPath = NewType("RelPath", bytes)

ROOT = RelPath(b"")


def rel_path(raw: bytes) -> RelPath:
    """Check `raw` and return it as a `RelPath`; a ``ValueError`` says what is wrong with it."""
    if raw == b"":
        return ROOT
    if b"\0" in raw:
        raise ValueError("a path cannot hold a NUL byte")
    for part in raw.split(b"/"):
        if part in (b"", b".", b".."):
            raise ValueError(f"not a workspace-relative path: {raw!r}")
    return RelPath(raw)


def join(parent: RelPath, name: bytes) -> RelPath:
    return RelPath(parent + b"/" + name) if parent else RelPath(name)


def split(path: RelPath) -> tuple[RelPath, bytes]:
    """``(parent, last name)``; do not call it for the root, which has no parent."""
    parent, _, name = path.rpartition(b"/")
    return RelPath(parent), name


def parent(path: RelPath) -> RelPath:
    return RelPath(path.rpartition(b"/")[0])


def ancestors(path: RelPath) -> list[RelPath]:
    """The directories above `path`, nearest first, without the root."""
    out = []
    above = parent(path)
    while above:
        out.append(above)
        above = parent(above)
    return out


def is_within(path: RelPath, scope: RelPath) -> bool:
    """Whether `path` is `scope` or below it; everything is below the root."""
    return not scope or path == scope or path.startswith(scope + b"/")


def to_text(path: bytes) -> tuple[str, bool]:
    """The name as JSON shows it, and whether it had to be encoded (docs/commands.md).

    b"a%b"   -> "a%b",      False      valid UTF-8 stays as it is
    b"a\\xff" -> "a%FF",     True       a byte that is not UTF-8
    b"%\\xff" -> "%25%FF",   True       "%" is encoded only in such names
    """
    try:
        return path.decode("utf-8"), False
    except UnicodeDecodeError:
        text = path.replace(b"%", b"%25").decode("utf-8", "surrogateescape")
        out = [f"%{ord(c) - 0xDC00:02X}" if "\udc80" <= c <= "\udcff" else c for c in text]
        return "".join(out), True


def display(path: bytes) -> str:
    """For people and JSON alike: `to_text` without the flag."""
    return to_text(path)[0]


def name_fields(path: bytes, key: str = "path") -> dict[str, object]:
    """A file name in JSON: `{"path": …}`, with `"encoded": true` if it had to be encoded."""
    text, encoded = to_text(path)
    return {key: text, "encoded": True} if encoded else {key: text}


def from_text(text: str, *, encoded: bool) -> bytes:
    """The name that `to_text` wrote as `text`."""
    if not encoded:
        return text.encode("utf-8", "surrogateescape")
    head, *parts = text.split("%")
    return head.encode() + b"".join(bytes.fromhex(p[:2]) + p[2:].encode() for p in parts)
