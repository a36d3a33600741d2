"""What becomes of one path: the index entry first, then the file, each merged three ways.

    B base   T target   I index entry   W file in the work tree

    I' = what I is, brought from B to T                 staged work
    W' = I' checked out                where W is I     no unstaged work
         what W is, brought from I to I'                unstaged work on top: MM stays MM

Nothing here touches a file. In a conflict the user's bytes stay in the work tree (in text files
with conflict markers around both sides), and the index holds all three sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node
from substrate.objects.index import Stages
from substrate.objects.snapshots import Blobs, Collision, Take, merge_node

#: ``(base, ours, theirs) -> (merged or marked bytes, clean)``; None if it is not text.
TextMerge = Callable[[bytes, bytes, bytes], "tuple[bytes, bool] | None"]
_FILE_MODE, _EXEC_MODE = 0o644, 0o755


class Sides(NamedTuple):
    """One path before the rewrite. `work_*` are contents as files, the others as blobs."""

    base: Node
    target: Node
    staged: Node
    work: Node
    #: `staged` and `work` are the same to git.
    is_clean: bool
    #: Not in the index, not even as a conflict, but there is a file in the work tree.
    is_ignored: bool = False


class Verdict(NamedTuple):
    """What the path will be. `work` is a file content; if `convert` is set, not yet converted."""

    entry: Node | Stages
    work: Node
    #: `work` is a blob to check out, with conversion (otherwise its bytes are final).
    convert: bool = False
    conflict: str = ""
    merged: bool = False


class Replay:
    """Merges with contents from `blobs`; `to_file` and `was_file` turn blobs into file contents."""

    def __init__(
        self,
        read: Callable[[bytes], bytes],
        add: Callable[[bytes], bytes],
        text_merge: TextMerge,
        to_file: Callable[[Node], Node],
        was_file: Callable[[Node], Node],
    ) -> None:
        self._read = read
        self._add = add
        self._text_merge = text_merge
        self._to_file = to_file
        self._was_file = was_file
        self._marked: bytes | None = None

    def decide(self, sides: Sides) -> Verdict:
        if sides.staged == ABSENT and sides.work != ABSENT:
            return self._not_in_index(sides)
        staged = self._merge(sides.base, sides.target, sides.staged)
        if isinstance(staged, Collision):
            return self._staged_collision(sides, staged)
        if sides.is_clean:
            merged = staged.node not in (sides.target, sides.staged)
            return Verdict(staged.node, staged.node, convert=True, merged=merged)
        if staged.node == sides.staged:
            return Verdict(staged.node, sides.work)
        return self._unstaged(sides, staged.node)

    def _unstaged(self, sides: Sides, staged: Node) -> Verdict:
        base, ours = self._was_file(sides.staged), self._to_file(staged)
        brought = self._merge(base, ours, sides.work)
        if not isinstance(brought, Collision):
            return Verdict(staged, brought.node, merged=True)
        stages = Stages(sides.staged, staged, self._known(sides.work))
        return Verdict(stages, self._left_in_tree(sides.work), conflict=brought.why)

    def _staged_collision(self, sides: Sides, collision: Collision) -> Verdict:
        stages = Stages(sides.base, sides.target, sides.staged)
        if sides.is_clean and self._marked is None:
            return Verdict(stages, sides.work, conflict=collision.why)
        base, ours = self._was_file(sides.base), self._to_file(sides.target)
        brought = self._merge(base, ours, sides.work)
        if isinstance(brought, Collision):
            return Verdict(stages, self._left_in_tree(sides.work), conflict=collision.why)
        return Verdict(stages, brought.node, conflict=collision.why)

    def _not_in_index(self, sides: Sides) -> Verdict:
        """Untracked, ignored, or removed from the index with the file left in place."""
        target, work = sides.target, sides.work
        if target == ABSENT:
            return Verdict(ABSENT, work)
        if sides.base != ABSENT:
            why = "you removed it from the index, the target changed it"
            return Verdict(Stages(sides.base, target, ABSENT), work, conflict=why)
        wanted = self._to_file(target)
        if (work.kind, work.oid) == (wanted.kind, wanted.oid):
            return Verdict(target, work)
        if sides.is_ignored:
            return Verdict(target, target, convert=True)
        why = "is untracked here and tracked in the target, with other content"
        return Verdict(Stages(ABSENT, target, self._known(work)), work, conflict=why)

    # -- one merge ------------------------------------------------------------------------------

    def _merge(self, base: Node, ours: Node, theirs: Node) -> Collision | _Brought:
        self._marked = None
        blobs = Blobs(self._read, self._add, self._text)
        outcome = merge_node(base, ours, _plain(theirs), blobs, None)
        if isinstance(outcome, Collision):
            if base == ABSENT and ours.kind is theirs.kind is Kind.FILE:
                # Both sides added the file; they may still have lines in common.
                self._text(b"", self._read(ours.oid), self._read(theirs.oid), None)
            return Collision(_reason(base, ours, theirs, outcome))
        node = outcome.node
        if node.kind is Kind.FILE and theirs.kind is Kind.FILE:
            node = node._replace(mode=with_executable(theirs.mode, node.mode), xattrs=theirs.xattrs)
        return _Brought(node)

    def _text(self, base: bytes, ours: bytes, theirs: bytes, take: Take | None) -> bytes | None:
        outcome = self._text_merge(base, ours, theirs)
        if outcome is None:
            return None
        content, clean = outcome
        if clean:
            return content
        self._marked = content
        return None

    def _left_in_tree(self, work: Node) -> Node:
        """Text with conflict markers, or the user's own bytes."""
        if self._marked is None or work.kind is not Kind.FILE:
            return work
        return work._replace(oid=self._add(self._marked))

    def _known(self, work: Node) -> Node:
        """A file as an index entry; ABSENT for kinds that git cannot store."""
        if work.kind is Kind.FILE:
            return _plain(work)
        return work if work.kind is Kind.SYMLINK else ABSENT


class _Brought(NamedTuple):
    node: Node


def _plain(node: Node) -> Node:
    """The node with the only mode bit that git stores."""
    if node.kind is not Kind.FILE:
        return node if node.kind is not Kind.SYMLINK else Node(Kind.SYMLINK, 0, node.oid)
    return Node(Kind.FILE, _EXEC_MODE if node.mode & 0o100 else _FILE_MODE, node.oid)


def with_executable(mode: int, like: int) -> int:
    """`mode` made executable, or not, as in `like`: for each class of users that may read."""
    if bool(mode & 0o100) == bool(like & 0o100):
        return mode
    return mode | (mode & 0o444) >> 2 if like & 0o100 else mode & ~0o111


def _reason(base: Node, ours: Node, theirs: Node, collision: Collision) -> str:
    if theirs == ABSENT:
        return "you removed it, the target changed it"
    if ours == ABSENT:
        return "you changed it, the target removed it"
    if base == ABSENT:
        return "you added it, and so did the target, with other content"
    if base.kind is ours.kind is theirs.kind is Kind.FILE:
        same_lines = "you and the target changed the same or adjacent lines"
        return same_lines if collision.is_of_content else collision.why
    if base.kind is ours.kind is theirs.kind is Kind.SYMLINK:
        return "you and the target made the link point elsewhere"
    return f"it is a {theirs.kind.value} here and a {ours.kind.value} in the target"
