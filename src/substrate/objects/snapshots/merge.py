"""Three-way merges of one path: content line by line, modes and attributes as single values."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple, TypeVar

from substrate.model import ABSENT, Kind, Node, RelPath
from substrate.system.files import CAPABILITY

Value = TypeVar("Value")

_SET_ID = stat.S_ISUID | stat.S_ISGID
_CAPABILITY = CAPABILITY.encode()

#: ``(base, ours, theirs, favour) -> merged bytes``, or None when lines collide or it is binary.
TextMerge = Callable[[bytes, bytes, bytes, "Take | None"], "bytes | None"]

_NEWLINE = b"\n"
#: Files with a grammar: two of them, one after the other, are not one.
_DOCUMENT_NAME = re.compile(
    rb"""(?ix) ^(?:makefile|dockerfile|gemfile|rakefile)$ | \.(?:
      json | json5 | jsonc | ipynb | toml | ya?ml | xml | html? | svg | s?css | less | lock | ini
    | cfg | conf | properties | plist | sql | proto | graphql | tf
    | pyi? | [mc]?jsx? | [mc]?tsx? | vue | svelte | go | rs | java | kts? | scala | swift | dart
    | [ch] | cc | [ch]pp | [ch]xx | cs | fs | rb | php | p[lm] | lua | exs? | hs | mli? | jl | r
    | (?:ba|z|fi)?sh | ps1 | bat | cmake | gradle | nix | zig
    )$"""
)
#: As in git: contents with a NUL byte near their beginning are not text.
_TEXT_PROBE_BYTES = 8000


class Take(Enum):
    """Which side wins a conflict."""

    OURS = "ours"  # the current state of the workspace
    THEIRS = "theirs"  # the state that the undo or rollback restores


class Merged(NamedTuple):
    node: Node
    #: Both sides contributed something (as opposed to one side simply winning).
    both: bool = False


class Collision(NamedTuple):
    why: str
    #: Both sides changed the same or adjacent lines, or a binary file.
    is_of_content: bool = False


class Blobs(NamedTuple):
    """How a merge reads, writes and combines contents."""

    read: Callable[[bytes], bytes]
    add: Callable[[bytes], bytes]
    text_merge: TextMerge
    #: Appends by two writers are both kept.
    keeps_appends: bool = False
    #: But not two contents of a file that was empty or missing, if it has a grammar.
    is_document: bool = False


def merge_node(
    base: Node, ours: Node, theirs: Node, blobs: Blobs, take: Take | None
) -> Merged | Collision:
    """Apply the change base → theirs to `ours`.

    base == ours     the path is as the command left it: take theirs
    base == theirs   nothing to apply; ours == theirs: already applied
    otherwise        all three differ: files merge by content, mode and attributes
    """
    if ours in (base, theirs):
        return Merged(theirs)
    if base == theirs:
        return Merged(ours)
    if base.kind == ours.kind == theirs.kind and base.kind in (Kind.FILE, Kind.DIRECTORY):
        return _merge_same_kind(base, ours, theirs, blobs, take)
    both_made = base == ABSENT and ours.kind is theirs.kind is Kind.FILE
    if both_made and blobs.keeps_appends and not blobs.is_document:
        merged = _merge_created(ours, theirs, blobs)
        if merged is not None:
            return merged
    if ours.kind is Kind.DIRECTORY and theirs.kind is Kind.DIRECTORY:
        return Merged(ours)  # two directories do not conflict
    if ours.kind is base.kind is Kind.DIRECTORY and theirs == ABSENT:
        return Merged(theirs)  # it is removed later, and only if it is empty then
    if take is not None:
        return Merged(ours if take is Take.OURS else theirs)
    return Collision(_describe(base, ours, theirs))


def _merge_same_kind(
    base: Node, ours: Node, theirs: Node, blobs: Blobs, take: Take | None
) -> Merged | Collision:
    mode = _merge_value(base.mode, ours.mode, theirs.mode, take)
    xattrs = _merge_value(base.xattrs, ours.xattrs, theirs.xattrs, take)
    if mode is None:
        return Collision(f"mode is {ours.mode:04o} now, would become {theirs.mode:04o}")
    if xattrs is None:
        return Collision("extended attributes were changed on both sides")
    oid = _merge_value(base.oid, ours.oid, theirs.oid, None)
    if oid is None:
        contents = (blobs.read(base.oid), blobs.read(ours.oid), blobs.read(theirs.oid))
        merged = _merge_appends(*contents, blobs.is_document) if blobs.keeps_appends else None
        if merged is None:
            merged = blobs.text_merge(*contents, take)
        if merged is not None:
            oid = blobs.add(merged)
        elif take is not None:  # binary: one side as a whole
            oid = ours.oid if take is Take.OURS else theirs.oid
        else:
            return Collision(_content_collision(contents), is_of_content=True)
    node = _lending_nothing(Node(ours.kind, mode, oid, xattrs), ours, theirs)
    return Merged(node, both=node not in (ours, theirs))


def _content_collision(contents: Iterable[bytes]) -> str:
    if any(b"\0" in data[:_TEXT_PROBE_BYTES] for data in contents):
        return "it is not text, and it was changed since"
    return "the same or adjacent lines were changed since"


def _lending_nothing(merged: Node, ours: Node, theirs: Node) -> Node:
    """Set-id bits and file capabilities belong to the content that had them, as the kernel sees it:
    a write takes them away. Neither side's go to the other side's content, nor to a mixture."""
    if merged.kind is not Kind.FILE:
        return merged
    alike = [side for side in (ours, theirs) if side.oid == merged.oid]
    lent = merged.mode & _SET_ID
    if lent and not any(side.mode & lent == lent for side in alike):
        merged = merged._replace(mode=merged.mode & ~_SET_ID)
    had = {pair for side in alike for pair in side.xattrs}
    kept = tuple(pair for pair in merged.xattrs if pair[0] != _CAPABILITY or pair in had)
    return merged._replace(xattrs=kept)


def is_document(path: RelPath) -> bool:
    """Whether a file's name says that it has a grammar, as JSON and source code do."""
    return _DOCUMENT_NAME.search(path.rpartition(b"/")[2]) is not None


def _merge_appends(base: bytes, ours: bytes, theirs: bytes, is_document: bool) -> bytes | None:
    merged = both_appended(base, ours, theirs) if base or not is_document else None
    return append_taken_back(base, ours, theirs) if merged is None else merged


def _merge_created(ours: Node, theirs: Node, blobs: Blobs) -> Merged | None:
    """Both created the file: as if both had appended to an empty one."""
    if (ours.mode, ours.xattrs) != (theirs.mode, theirs.xattrs):
        return None
    merged = both_appended(b"", blobs.read(ours.oid), blobs.read(theirs.oid))
    return None if merged is None else Merged(ours._replace(oid=blobs.add(merged)), both=True)


def _merge_value(base: Value, ours: Value, theirs: Value, take: Take | None) -> Value | None:
    if ours in (base, theirs):
        return theirs
    if base == theirs:
        return ours
    if take is None:
        return None
    return ours if take is Take.OURS else theirs


def _describe(base: Node, ours: Node, theirs: Node) -> str:
    if theirs == ABSENT:
        return "would be removed, but was changed since"
    if ours == ABSENT:
        return "would be changed, but was removed since"
    if base == ABSENT:
        return "would be put there, but something else is there now"
    return f"is a {ours.kind.value} now, would become a {theirs.kind.value}"


def both_appended(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`ours` arrived first; None unless both are `base` plus more lines.

        base     a
        ours     a b c
        theirs   a b d      (the writer started from `a`, and saw `b` before it wrote)
        merged   a b c d

    Lines that both have directly after the base appear once: until a command first writes to the
    file, it sees what arrives in the tree, and includes it in its own version.
    """
    if not (ours.startswith(base) and theirs.startswith(base)):
        return None
    if not all(map(_is_lines, (base, ours, theirs))):
        return None
    common = ours.rfind(_NEWLINE, 0, _common_bytes(ours, theirs)) + 1
    return ours + theirs[max(common, len(base)) :]


def append_taken_back(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """`base` is `theirs` plus an append to remove; what others appended since then stays."""
    if not (base.startswith(theirs) and ours.startswith(base)):
        return None
    if not all(map(_is_lines, (base, ours, theirs))):
        return None
    return theirs + ours[len(base) :]


def _is_lines(content: bytes) -> bool:
    is_whole = not content or content.endswith(_NEWLINE)
    return is_whole and b"\0" not in content[:_TEXT_PROBE_BYTES]


def _common_bytes(one: bytes, other: bytes) -> int:
    """The length of the common prefix."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
