"""Git trees: parse, serialise, order, and the names that git forbids in them.

A tree is a mapping ``name -> (mode, oid)``; names are bytes. Parsed trees are shared through
caches, so never change one in place: copy it with ``dict(tree)`` first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from substrate.errors import DamagedStoreError

#: ``(mode, oid)``: one line of a tree.
Entry = tuple[int, bytes]
Tree = Mapping[bytes, Entry]

MODE_DIR = 0o040000
MODE_FILE = 0o100644
MODE_EXEC = 0o100755
MODE_LINK = 0o120000

#: The id of the tree without entries.
EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

_ENTRY = re.compile(rb"([0-7]{5,6}) ([^\0/]+)\0(.{20})", re.DOTALL)
#: How a line of a tree object begins.
MODE_TEXT = {mode: b"%o " % mode for mode in (MODE_DIR, MODE_FILE, MODE_EXEC, MODE_LINK)}


def parse_tree(data: bytes) -> dict[bytes, Entry]:
    """The entries of a tree object, in git's order; `DamagedStoreError` if it is malformed."""
    found = _ENTRY.findall(data)
    # findall skips text that it cannot match; then the lengths do not add up.
    if sum(len(mode) + len(name) for mode, name, _ in found) + 22 * len(found) != len(data):
        raise DamagedStoreError("a tree object is malformed", hint="run `substrate fsck`")
    modes = {mode: int(mode, 8) for mode in {mode for mode, _, _ in found}}
    tree = {name: (modes[mode], oid) for mode, name, oid in found}
    if len(tree) != len(found):
        raise DamagedStoreError("a tree object names an entry twice", hint="run `substrate fsck`")
    return tree


def serialize_tree(tree: Tree) -> bytes:
    """The bytes of the tree object, entries in git's order."""
    parts: list[bytes] = []
    for name, (mode, oid) in sorted(tree.items(), key=_git_order):
        parts += (MODE_TEXT.get(mode) or b"%o " % mode, name, b"\0", oid)
    return b"".join(parts)


def _git_order(item: tuple[bytes, Entry]) -> bytes:
    """Git sorts a directory as if its name ended in a slash: ``a.b`` < ``a/`` < ``a0``."""
    name, (mode, _) = item
    return name + b"/" if mode == MODE_DIR else name


_NEVER = frozenset({b"", b".", b".."})
# Code points that HFS+ ignores when it compares names.
_HFS_IGNORED = rb"(?:\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf)*"
_HFS_DOTGIT = re.compile(
    _HFS_IGNORED
    + rb"\."
    + _HFS_IGNORED
    + b"".join(b"[%c%c]" % (letter, letter - 32) + _HFS_IGNORED for letter in b"git")
)
# `.git` or its short name, then dots and spaces that Windows drops, then the end of the name, a
# stream (`:`) or a path separator; at the start, or after a backslash.
_NTFS_DOTGIT = re.compile(rb"(?i:(?:\A|\\)(?:\.git|git~1)[. ]*(?:\Z|[\\:]))")


def is_forbidden_name(name: bytes) -> bool:
    """Whether ``git fsck --strict`` rejects a tree with this name in it.

    These are the spellings that some filesystem treats as ``.git``, following git's own
    ``is_ntfs_dotgit`` and ``is_hfs_dotgit``, and names that cannot be a single path component.
    """
    if name in _NEVER or b"/" in name or b"\0" in name:
        return True
    lowered = name.lower()
    if b"g" not in lowered or b"t" not in lowered:
        return False
    return _NTFS_DOTGIT.search(name) is not None or _is_hfs_dotgit(name)


def any_forbidden(names: Collection[bytes]) -> bool:
    """Whether one of many names may be forbidden: a quick check, and False is certain."""
    lowered = b"/".join(names).lower()
    # Without the letters in a row, only a character that HFS+ ignores could be between them.
    if b"git" in lowered or b"\xe2" in lowered or b"\xef" in lowered or b"\0" in lowered:
        return True
    special = not _NEVER.isdisjoint(names)
    return special or lowered.count(b"/") != max(0, len(names) - 1)


def _is_hfs_dotgit(name: bytes) -> bool:
    match = _HFS_DOTGIT.match(name)
    if match is None:
        return False
    rest = name[match.end() :]
    if not rest:
        return True
    # Git stops at malformed UTF-8, and therefore treats b".git\xff" as `.git`.
    first = rest.decode("utf-8", "surrogateescape")[0]
    return "\udc80" <= first <= "\udcff" or first in "\ufffe\uffff"
