"""A plan: the explicit list of paths to change, each with the state it must be in before."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model import ABSENT, Kind, Node, RelPath, ancestors, display, parent, rel_path

#: Written into every journalled plan, so that a later version recognizes the format.
_FORMAT = 1
#: Where ``.GIT`` opens ``.git``, the guard below must ignore case, too.
_CASE_BLIND = sys.platform in ("darwin", "win32")


class How(Enum):
    """How new content gets into an existing file."""

    #: A new file is renamed over the old one: atomic, breaks hard links.
    REPLACE = "replace"
    #: The old file is rewritten: readers and hard links follow. The caller has stored both blobs.
    IN_PLACE = "in-place"
    #: The new entry is in a world's layer and is renamed from there; a directory goes as a whole.
    FROM_LAYER = "from-layer"


class Op(NamedTuple):
    """One path: the state it must have, and the state it will get."""

    path: RelPath
    expect: Node
    become: Node
    how: How = How.REPLACE


class Times(NamedTuple):
    """The final times of a path, (access, modification) in ns, and its owner."""

    times: tuple[int, int]
    owner: tuple[int, int]


class Plan(NamedTuple):
    """Operations in the order of execution. Build it with `Plan.of`, which checks and sorts."""

    ops: tuple[Op, ...]
    #: A world's change may reach paths that history leaves alone, for example a ``.git``.
    beyond_history: bool = False

    @classmethod
    def of(cls, ops: Iterable[Op], *, beyond_history: bool = False) -> Plan:
        """Check `ops` and sort them into the order of execution.

        Removals come first, deepest first, then kind changes, then directories from the top down,
        then files and symlinks.

        `RefusedError`: an operation inside ``.git`` (unless `beyond_history`) or
        ``.substrate-git``. `ValueError`: a list that no tree can satisfy (the root, a path twice, a
        child of something that will not be a directory).
        """
        given = tuple(ops)
        by_path: dict[RelPath, Op] = {}
        for op in given:
            _check_place(op, beyond_history)
            if op.path in by_path:
                raise ValueError(f"two operations on one path: {display(op.path)}")
            by_path[op.path] = op
        # Most files have no changing directory above them, and share that with their neighbours.
        changing: dict[RelPath, list[Op]] = {}
        for op in given:
            directory = parent(op.path)
            if directory not in changing:
                above = [directory, *ancestors(directory)] if directory else []
                changing[directory] = [by_path[one] for one in above if one in by_path]
            _check_ancestors(op, changing[directory])
        return cls(tuple(sorted(given, key=_rank)), beyond_history)

    def to_json(self) -> str:
        """For the journal: one line, lossless, read by `from_json`."""
        ops = ",".join([_op_to_json(op) for op in self.ops])
        beyond = ',"beyond_history":true' if self.beyond_history else ""
        return f'{{"format":{_FORMAT},"ops":[{ops}]{beyond}}}'

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote, with the operations in the same order."""
        data = json.loads(text)
        if data["format"] != _FORMAT:
            raise ValueError(f"a plan of an unknown format: {data['format']!r}")
        ops = tuple(_op_from_json(item) for item in data["ops"])
        beyond = bool(data.get("beyond_history"))
        for op in ops:
            _check_place(op, beyond)
        return cls(ops, beyond)

    def describe(self) -> list[str]:
        """A line per operation, for people (``--dry-run``); control characters are escaped."""
        return [line for op in self.ops for line in _describe(op)]


def _check_place(op: Op, beyond_history: bool) -> None:
    if not op.path:
        raise ValueError("the workspace root itself cannot be changed")
    path = op.path.lower() if _CASE_BLIND else op.path
    if path.find(b"git") < 0:  # nearly always
        return
    parts = path.split(b"/")
    # A `.git` *file* (linked worktree, submodule) is an ordinary file; a `.git` directory is not.
    is_git_directory = Kind.DIRECTORY in (op.expect.kind, op.become.kind)
    in_git = b".git" in parts[:-1] or (parts[-1] == b".git" and is_git_directory)
    if in_git and not beyond_history:
        raise RefusedError(
            f"{display(op.path)} is in a git directory",
            hint="Substrate's history does not change anything inside .git",
        )
    # A project inside the project may have its own history, which a command may remove.
    if parts[0] == b".substrate-git" or (b".substrate-git" in parts and not beyond_history):
        raise RefusedError(
            f"{display(op.path)} is in Substrate's own store",
            hint="nothing inside .substrate-git can be part of a change to the workspace",
        )


def _check_ancestors(op: Op, above: list[Op]) -> None:
    for other in above:
        if other.become.kind is not Kind.DIRECTORY and op.become != ABSENT:
            raise ValueError(f"{display(op.path)} would be below something that is not a directory")
        if other.expect.kind is not Kind.DIRECTORY and op.expect != ABSENT:
            raise ValueError(f"{display(op.path)} is expected below something not a directory")


def _rank(op: Op) -> tuple[int, int, bytes]:
    depth = op.path.count(b"/")
    if op.path.find(b".git/") >= 0 and b".git" in op.path.split(b"/")[:-1]:
        return _rank_in_git(op, depth)
    if op.become.kind is Kind.ABSENT:
        return 0, -depth, op.path
    if op.expect.kind not in (Kind.ABSENT, op.become.kind):
        return 1, depth, op.path
    if op.become.kind is Kind.DIRECTORY:
        return 2, depth, op.path
    return 3, depth, op.path


def _rank_in_git(op: Op, depth: int) -> tuple[int, int, bytes]:
    """After everything else: directories, objects, refs and other files, and removals last.

    So at any moment, also after a crash, every object that a ref names exists.
    """
    if op.become.kind is Kind.ABSENT:
        return 7, -depth, op.path
    if op.become.kind is Kind.DIRECTORY:
        return 4, depth, op.path
    return (5 if "/objects/" in os.fsdecode(op.path) else 6), depth, op.path


# ------------------------------------------------------------------------------ for the journal


#: Faster than `.value`, which is a descriptor call each time.
_KIND_NAMES = {kind: kind.value for kind in Kind}
_HOW_NAMES = {how: how.value for how in How}
_quoted = json.encoder.encode_basestring_ascii


def _op_to_json(op: Op) -> str:
    # Written by hand: the json module is slow for thousands of small objects.
    expect, become, how = _node_to_json(op.expect), _node_to_json(op.become), _HOW_NAMES[op.how]
    try:
        path = f'"path":{_quoted(op.path.decode("utf-8"))}'
    except UnicodeDecodeError:
        path = f'"path_b64":"{_b64(op.path)}"'
    return f'{{"expect":{expect},"become":{become},"how":"{how}",{path}}}'


def _op_from_json(item: dict[str, object]) -> Op:
    text = item.get("path")
    raw = text.encode("utf-8") if isinstance(text, str) else _unb64(item["path_b64"])
    expect, become = _node_from_json(item["expect"]), _node_from_json(item["become"])
    return Op(rel_path(raw), expect, become, How(item["how"]))


def _node_to_json(node: Node) -> str:
    kind, mode, oid, xattrs = node
    said = f'{{"kind":"{_KIND_NAMES[kind]}"'
    if mode:
        said += f',"mode":{mode}'
    if oid:
        said += f',"oid":"{oid.hex()}"'
    if xattrs:
        pairs = ",".join(f'["{_b64(name)}","{_b64(value)}"]' for name, value in xattrs)
        said += f',"xattrs":[{pairs}]'
    return said + "}"


def _node_from_json(item: object) -> Node:
    if not isinstance(item, dict):
        raise ValueError("a journalled state must be an object")
    xattrs = tuple((_unb64(name), _unb64(value)) for name, value in item.get("xattrs", ()))
    return Node(
        Kind(item["kind"]), int(item.get("mode", 0)), bytes.fromhex(item.get("oid", "")), xattrs
    )


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _unb64(text: object) -> bytes:
    return base64.b64decode(str(text), validate=True)


# ------------------------------------------------------------------------------ for people

_NOUNS = {Kind.FILE: "file", Kind.SYMLINK: "link", Kind.DIRECTORY: "directory"}


def _describe(op: Op) -> list[str]:
    name = shown(op.path)
    old, new = op.expect, op.become
    if old == new:
        return []
    if new.kind is Kind.ABSENT:
        return [f"remove directory {name}/" if old.kind is Kind.DIRECTORY else f"delete {name}"]
    if old.kind is Kind.ABSENT:
        return [f"{'create directory' if new.kind is Kind.DIRECTORY else 'restore'} {name}"]
    if old.kind is not new.kind:
        return [f"replace {_noun(old)} {name} by a {_noun(new)}"]
    if old.oid != new.oid:
        verb = "replace link" if new.kind is Kind.SYMLINK else "restore"
        in_place = " (in place)" if op.how is How.IN_PLACE else ""
        return [f"{verb} {name}{in_place}"]
    lines = []
    if old.mode != new.mode:
        lines.append(f"chmod {old.mode:04o} → {new.mode:04o} {name}")
    if old.xattrs != new.xattrs:
        lines.append(f"change extended attributes of {name}")
    return lines


def _noun(node: Node) -> str:
    return _NOUNS.get(node.kind, node.kind.value)


def shown(path: bytes) -> str:
    """A path on one line of a terminal: a newline or an escape in a name must have no effect."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in display(path))
