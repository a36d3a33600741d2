"""Three-way merges of one path, case by case."""

from __future__ import annotations

import hashlib

import pytest

from substrate.history.reversal.compute_reversal import text_merger
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.objects.git.git_command import Git
from substrate.objects.snapshots.merge import Blobs, Collision, Merged, Take, merge_node


class Contents:
    """A blob store in a dict, merging with the real git."""

    def __init__(self, git: Git) -> None:
        self._by_oid: dict[bytes, bytes] = {}
        merge = text_merger(
            lambda base, ours, theirs, favour: git.merge_file(
                base, ours, theirs, favor=favour, scratch=git.git_dir
            )
        )
        self.blobs = Blobs(self._by_oid.__getitem__, self.add, merge)

    def add(self, data: bytes) -> bytes:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).digest()
        self._by_oid[oid] = data
        return oid

    def file(self, data: bytes, mode: int = 0o644, **xattrs: bytes) -> Node:
        names = tuple(sorted((k.encode(), v) for k, v in xattrs.items()))
        return Node(Kind.FILE, mode, self.add(data), names)

    def read(self, node: Node) -> bytes:
        return self.blobs.read(node.oid)


@pytest.fixture
def contents(tmp_path) -> Contents:  # type: ignore[no-untyped-def]
    return Contents(Git(tmp_path))


LINES = b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n"


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


def link(contents: Contents, target: bytes) -> Node:
    return Node(Kind.SYMLINK, 0, contents.add(target))


def test_as_the_command_left_it_the_old_state_comes_back(contents: Contents) -> None:
    base, theirs = contents.file(b"new"), contents.file(b"old", 0o600)
    assert merge_node(base, base, theirs, contents.blobs, None) == Merged(theirs)
    assert merge_node(base, base, ABSENT, contents.blobs, None) == Merged(ABSENT)
    assert merge_node(ABSENT, ABSENT, theirs, contents.blobs, None) == Merged(theirs)


def test_already_there_is_no_conflict(contents: Contents) -> None:
    base, same = contents.file(b"new"), contents.file(b"old")
    assert merge_node(base, same, same, contents.blobs, None) == Merged(same)


def test_nothing_to_bring_leaves_ours(contents: Contents) -> None:
    base, ours = contents.file(b"same"), contents.file(b"mine")
    assert merge_node(base, ours, base, contents.blobs, None) == Merged(ours)


def test_lines_apart_are_merged(contents: Contents) -> None:
    base = contents.file(LINES)
    ours = contents.file(changed(LINES, b"one", b"ONE"))
    theirs = contents.file(changed(LINES, b"seven", b"SEVEN"))
    done = merge_node(base, ours, theirs, contents.blobs, None)
    assert isinstance(done, Merged)
    assert done.both
    assert contents.read(done.node) == b"ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n"


def test_the_same_line_collides_until_a_side_is_taken(contents: Contents) -> None:
    base = contents.file(LINES)
    ours = contents.file(changed(changed(LINES, b"one", b"MINE"), b"six", b"six too"))
    theirs = contents.file(changed(LINES, b"one", b"THEIRS"))
    assert isinstance(merge_node(base, ours, theirs, contents.blobs, None), Collision)
    for take, word in ((Take.OURS, b"MINE"), (Take.THEIRS, b"THEIRS")):
        done = merge_node(base, ours, theirs, contents.blobs, take)
        assert isinstance(done, Merged)
        text = contents.read(done.node)
        assert text.startswith(word + b"\n")
        assert b"six too" in text, "a side is taken for the collision, not for the file"


def test_binary_contents_collide_and_are_taken_whole(contents: Contents) -> None:
    base, ours, theirs = (contents.file(b"\0" + word) for word in (b"a", b"b", b"c"))
    assert isinstance(merge_node(base, ours, theirs, contents.blobs, None), Collision)
    taken = merge_node(base, ours, theirs, contents.blobs, Take.THEIRS)
    assert isinstance(taken, Merged)
    assert taken.node.oid == theirs.oid


def test_content_and_mode_merge_separately(contents: Contents) -> None:
    base = contents.file(b"x\n", 0o644)
    ours = contents.file(b"y\n", 0o644)
    theirs = contents.file(b"x\n", 0o755)
    assert merge_node(base, ours, theirs, contents.blobs, None) == Merged(
        contents.file(b"y\n", 0o755), both=True
    )


def test_modes_that_differ_on_both_sides_collide(contents: Contents) -> None:
    base, ours, theirs = (contents.file(b"x", mode) for mode in (0o644, 0o600, 0o755))
    collision = merge_node(base, ours, theirs, contents.blobs, None)
    assert collision == Collision("mode is 0600 now, would become 0755")
    assert merge_node(base, ours, theirs, contents.blobs, Take.OURS) == Merged(ours)
    assert merge_node(base, ours, theirs, contents.blobs, Take.THEIRS) == Merged(theirs)


def test_attributes_that_differ_on_both_sides_collide(contents: Contents) -> None:
    base = contents.file(b"x", user_a=b"0")
    ours, theirs = contents.file(b"x", user_a=b"1"), contents.file(b"x", user_a=b"2")
    collision = merge_node(base, ours, theirs, contents.blobs, None)
    assert collision == Collision("extended attributes were changed on both sides")


def test_directories_hold_no_contradiction(contents: Contents) -> None:
    wide, narrow, other = (Node(Kind.DIRECTORY, mode) for mode in (0o755, 0o700, 0o750))
    assert merge_node(ABSENT, narrow, wide, contents.blobs, None) == Merged(narrow)
    assert merge_node(wide, narrow, ABSENT, contents.blobs, None) == Merged(ABSENT)
    assert isinstance(merge_node(wide, narrow, other, contents.blobs, None), Collision)


FILE, LINK, FOLDER = "file", "link", "folder"
COLLISIONS = {
    "removed, changed since": ("file:b", "file:o", "absent", "would be removed, but was changed"),
    "removed since": ("file:b", "absent", "file:t", "would be changed, but was removed"),
    "something else is there": ("absent", "file:o", "file:t", "something else is there now"),
    "a link meanwhile": ("file:b", "link:o", "file:t", "is a symlink now, would become a file"),
    "links never merge": ("link:b", "link:o", "link:t", "is a symlink now"),
    "a directory meanwhile": ("file:b", "folder", "file:t", "is a directory now"),
}


@pytest.mark.parametrize("name", COLLISIONS)
def test_kinds_that_cannot_merge(contents: Contents, name: str) -> None:
    *words, why = COLLISIONS[name]
    base, ours, theirs = (_node(contents, word) for word in words)
    collision = merge_node(base, ours, theirs, contents.blobs, None)
    assert isinstance(collision, Collision)
    assert why in collision.why
    assert merge_node(base, ours, theirs, contents.blobs, Take.OURS) == Merged(ours)
    assert merge_node(base, ours, theirs, contents.blobs, Take.THEIRS) == Merged(theirs)


def _node(contents: Contents, word: str) -> Node:
    kind, _, data = word.partition(":")
    if kind == "absent":
        return ABSENT
    if kind == "folder":
        return Node(Kind.DIRECTORY, 0o755)
    return link(contents, data.encode()) if kind == "link" else contents.file(data.encode())


def test_rights_of_a_program_do_not_go_to_content_that_another_wrote(contents: Contents) -> None:
    """Seen: `chmod u-s`, a member of the file's group writes to it, undo by its owner."""
    rights = {"security.capability": b"\1net_raw"}
    base, theirs = contents.file(b"ours", 0o775), contents.file(b"ours", 0o6775, **rights)
    outcome = merge_node(base, contents.file(b"another", 0o775), theirs, contents.blobs, None)
    assert outcome == Merged(contents.file(b"another", 0o775))
    # Lines of both sides: neither side's program.
    base, theirs = contents.file(LINES, 0o755), contents.file(LINES + b"end\n", 0o4755)
    ours = contents.file(b"start\n" + LINES, 0o755)
    outcome = merge_node(base, ours, theirs, contents.blobs, None)
    assert outcome == Merged(contents.file(b"start\n" + LINES + b"end\n", 0o755), both=True)


def test_a_program_that_comes_back_whole_has_its_rights(contents: Contents) -> None:
    base, ours = contents.file(b"new", 0o755), contents.file(b"new", 0o755, **{"user.x": b"1"})
    theirs = contents.file(b"old", 0o4755)
    outcome = merge_node(base, ours, theirs, contents.blobs, None)
    assert outcome == Merged(contents.file(b"old", 0o4755, **{"user.x": b"1"}), both=True)
