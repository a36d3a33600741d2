from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import RelPath
from substrate.trace.fs_diff_record import FsDiff, absolute_texts, fs_diff, relative_texts

FILE = Node(Kind.FILE, 0o644, b"a" * 20)
OTHER = Node(Kind.FILE, 0o644, b"b" * 20)
RUNNABLE = FILE._replace(mode=0o755)
MARKED = FILE._replace(xattrs=((b"user.x", b"1"),))
LINK = Node(Kind.SYMLINK, 0, b"c" * 20)
FIFO = Node(Kind.FIFO, 0o644)
DIR = Node(Kind.DIRECTORY, 0o755)
OPEN_DIR = Node(Kind.DIRECTORY, 0o777)


def diff(*changes: tuple[bytes, Node, Node]) -> tuple[list[bytes], list[bytes], list[bytes]]:
    found = fs_diff(Change(RelPath(path), old, new) for path, old, new in changes)
    assert not found.truncated
    return list(found.writes), list(found.mods), list(found.deletes)


@pytest.mark.parametrize("new", [FILE, LINK, FIFO])
def test_what_is_there_now_and_was_not_is_written(new: Node) -> None:
    assert diff((b"f", ABSENT, new)) == ([b"f"], [], [])


@pytest.mark.parametrize("new", [OTHER, RUNNABLE, MARKED, LINK, FIFO])
def test_what_was_and_is_and_differs_is_modified(new: Node) -> None:
    assert diff((b"f", FILE, new)) == ([], [b"f"], [])


@pytest.mark.parametrize("old", [FILE, LINK, FIFO])
def test_what_was_and_is_not_is_deleted(old: Node) -> None:
    assert diff((b"f", old, ABSENT)) == ([], [], [b"f"])


def test_a_touch_is_no_change() -> None:
    assert diff((b"f", FILE, FILE)) == ([], [], [])


def test_an_empty_directory_is_listed() -> None:
    assert diff((b"d", ABSENT, DIR)) == ([b"d"], [], [])
    assert diff((b"d", DIR, ABSENT)) == ([], [], [b"d"])


def test_a_directory_with_something_in_it_is_not() -> None:
    assert diff((b"d", ABSENT, DIR), (b"d/f", ABSENT, FILE)) == ([b"d/f"], [], [])
    assert diff((b"d", DIR, ABSENT), (b"d/f", FILE, ABSENT)) == ([], [], [b"d/f"])


def test_a_new_file_among_neighbours_keeps_each_directory_above_out_of_the_list() -> None:
    changes = [(path, ABSENT, DIR) for path in (b"a", b"a/b", b"c", b"e")]
    changes += [(path, ABSENT, FILE) for path in (b"a/b/1", b"a/b/2", b"c/1", b"c/2", b"d")]
    assert diff(*changes) == ([b"a/b/1", b"a/b/2", b"c/1", b"c/2", b"d", b"e"], [], [])


def test_the_paths_of_all_lists_are_reported_once() -> None:
    assert FsDiff((RelPath(b"b"),), (RelPath(b"a"),), (RelPath(b"b"),)).paths() == (b"a", b"b")
    assert FsDiff(mods=(RelPath(b"a"), RelPath(b"b"))).paths() == (b"a", b"b")
    assert FsDiff().paths() == ()


def test_of_nested_empty_directories_the_innermost_is() -> None:
    changes = [(path, ABSENT, DIR) for path in (b"a", b"a/b", b"a/b/c")]
    assert diff(*changes) == ([b"a/b/c"], [], [])


def test_a_name_that_only_begins_alike_does_not_fill_a_directory() -> None:
    assert diff((b"d", ABSENT, DIR), (b"d.txt", ABSENT, FILE)) == ([b"d", b"d.txt"], [], [])


def test_a_directorys_mode_is_not_listed() -> None:
    assert diff((b"d", DIR, OPEN_DIR)) == ([], [], [])


def test_a_directory_that_became_a_file_deletes_its_files() -> None:
    changes = (b"d", DIR, FILE), (b"d/a", FILE, ABSENT), (b"d/e", DIR, ABSENT)
    assert diff(*changes, (b"d/e/b", FILE, ABSENT)) == ([b"d"], [], [b"d/a", b"d/e/b"])


def test_an_empty_directory_that_became_a_link_was_deleted_and_written() -> None:
    assert diff((b"d", DIR, LINK)) == ([b"d"], [], [b"d"])


def test_a_file_that_became_a_directory_was_deleted() -> None:
    assert diff((b"d", FILE, DIR), (b"d/a", ABSENT, FILE)) == ([b"d/a"], [], [b"d"])
    assert diff((b"d", FILE, DIR)) == ([b"d"], [], [b"d"])


def test_lists_are_sorted_by_bytes() -> None:
    changes = [(path, ABSENT, FILE) for path in (b"b", b"\xff", b"a/x", b"a", b"\xc3\xa9")]
    assert diff(*changes)[0] == [b"a", b"a/x", b"b", b"\xc3\xa9", b"\xff"]


def test_what_is_shown_may_be_shortened_and_says_so() -> None:
    whole = FsDiff(tuple(RelPath(b"%d" % n) for n in range(5)), (RelPath(b"m"),))
    assert whole.shown(5) is whole
    assert whole.shown(2) == FsDiff(whole.writes[:2], whole.mods, (), truncated=True)
    assert not whole.truncated


def test_paths_are_each_there_once() -> None:
    assert FsDiff((RelPath(b"d"), RelPath(b"a")), (), (RelPath(b"d"),)).paths() == (b"a", b"d")


def test_names_are_written_as_the_contract_says() -> None:
    paths = [RelPath(b"a b"), RelPath(b"50%"), RelPath(b"%\xff")]
    assert relative_texts(paths) == (["a b", "50%", "%25%FF"], True)
    assert relative_texts(paths[:2]) == (["a b", "50%"], False)
    assert absolute_texts(Path("/w"), paths[:1]) == (["/w/a b"], False)
    assert absolute_texts(Path("/"), paths[:1]) == (["/a b"], False)


# A tree is drawn as a mapping from leaf paths; the directories above them follow.
NAMES = st.sampled_from([b"a", b"b", b"a.c"])
LEAVES = st.sampled_from([FILE, OTHER, RUNNABLE, LINK, DIR])


@st.composite
def trees(draw: st.DrawFn) -> dict[bytes, Node]:
    tree: dict[bytes, Node] = {}
    for parts in draw(st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=6)):
        above = [b"/".join(parts[:n]) for n in range(1, len(parts))]
        path = b"/".join(parts)
        if path in tree or any(tree.get(one, DIR).kind is not Kind.DIRECTORY for one in above):
            continue
        for one in above:
            tree.setdefault(one, DIR)
        tree[path] = draw(LEAVES)
    return tree


def listed(tree: dict[bytes, Node]) -> dict[bytes, Node]:
    """Everything but directories that hold something."""
    return {
        path: node
        for path, node in tree.items()
        if node.kind is not Kind.DIRECTORY
        or not any(other.startswith(path + b"/") for other in tree)
    }


@given(trees(), trees())
def test_lists_say_what_comparing_whole_trees_says(
    old: dict[bytes, Node], new: dict[bytes, Node]
) -> None:
    changes = [
        (path, old.get(path, ABSENT), new.get(path, ABSENT))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]
    writes, mods, deletes = diff(*changes)
    were, are = listed(old), listed(new)

    def is_dir(tree: dict[bytes, Node], path: bytes) -> bool:
        return path in tree and tree[path].kind is Kind.DIRECTORY

    for path in old.keys() | new.keys():
        both_dirs = is_dir(old, path) and is_dir(new, path)
        either_dir = is_dir(old, path) or is_dir(new, path)
        kept = path in were and path in are and not either_dir
        assert (path in mods) == (kept and were[path] != are[path])
        assert (path in writes) == (path in are and not kept and not both_dirs)
        assert (path in deletes) == (path in were and not kept and not both_dirs)
