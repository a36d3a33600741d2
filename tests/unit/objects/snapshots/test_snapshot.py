"""Snapshots against a plain dictionary: whatever was put in comes out, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import ROOT, RelPath, ancestors, is_within
from substrate.objects.snapshots.snapshot import (
    EMPTY,
    Lookup,
    Snapshot,
    build,
    diff,
    edit,
    listing,
    lookup,
    walk,
)
from substrate.objects.snapshots.trees import Tree
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore
from tests.unit.objects.conftest import commit_snapshot, run_git

State = dict[RelPath, Node]

NAMES = [
    b"a", b"b", b"c.d", b"-x", b"n\nl", b"\xff\xfe", b"attrs", b"=a", b"!a", b"#a", b"?a",
    b".git", b".GIT", b"git~1", b"a\\.git", b"%5C\\.git", b".git\xff", "é😀".encode(), b"x" * 255,
]  # fmt: skip
MODES = [0o644, 0o600, 0o640, 0o664, 0o755, 0o700, 0o775, 0o4755, 0o000, 0o1777, 0o7777]
BLOBS = [b"", b"one", b"two"]

modes = st.sampled_from(MODES)
xattrs = st.dictionaries(
    st.sampled_from([b"user.a", b"user.\xff"]), st.sampled_from([b"", b"v\0\xff"]), max_size=2
).map(lambda found: tuple(sorted(found.items())))
some_xattrs = st.one_of(st.just(()), st.just(()), xattrs)


def _oid(data: bytes) -> bytes:
    from substrate.objects.store.loose import object_id

    return object_id("blob", data)


files = st.builds(Node, st.just(Kind.FILE), modes, st.sampled_from(BLOBS).map(_oid), some_xattrs)
links = st.builds(
    Node, st.just(Kind.SYMLINK), st.just(0), st.sampled_from(BLOBS[1:]).map(_oid), some_xattrs
)
specials = st.builds(
    Node,
    st.sampled_from([Kind.FIFO, Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE]),
    modes,
    st.just(b""),
    some_xattrs,
)
directories = st.builds(Node, st.just(Kind.DIRECTORY), modes, st.just(b""), some_xattrs)
leaves = st.one_of(files, files, files, links, specials)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(
    lambda parts: RelPath(b"/".join(parts))
)
changes = st.dictionaries(paths, st.one_of(leaves, directories, st.just(ABSENT)), max_size=12)


def apply_to_model(state: State, wanted: Mapping[RelPath, Node]) -> State:
    """What `edit` promises, done on a dictionary one path at a time."""
    state = dict(state)
    for path in sorted(wanted):
        node = wanted[path]
        was = state.get(path, ABSENT)
        if node.kind is Kind.ABSENT or not (was.kind is node.kind is Kind.DIRECTORY):
            state = {p: n for p, n in state.items() if not is_within(p, path)}
        if node.kind is Kind.ABSENT:
            continue
        for above in ancestors(path):
            if state.get(above, ABSENT).kind is not Kind.DIRECTORY:
                state[above] = Node(Kind.DIRECTORY, 0o755)
        state[path] = node
    return state


def is_consistent(wanted: Mapping[RelPath, Node]) -> bool:
    """Nothing is to lie below what is to be a file."""
    return all(
        node.kind is Kind.ABSENT
        or all(
            wanted.get(above, ABSENT).kind in (Kind.ABSENT, Kind.DIRECTORY)
            for above in ancestors(path)
        )
        for path, node in wanted.items()
    )


consistent_changes = changes.filter(is_consistent)
states = consistent_changes.map(lambda wanted: apply_to_model({}, wanted))


@contextmanager
def fresh_batch() -> Iterator[Batch]:
    with TemporaryDirectory() as directory:
        store = ObjectStore(Path(directory) / ".git")
        store.init()
        with Batch(store, durable=False) as batch:
            for data in BLOBS:
                batch.add_blob(data)
            yield batch
        store.close()


@given(states)
def test_walk_gives_back_what_was_built(state: State) -> None:
    with fresh_batch() as batch:
        snap = build(batch, state.items())
        walked = list(walk(batch, snap))
        assert dict(walked) == state
        assert len(walked) == len(state)
        for path, node in state.items():
            assert lookup(batch, snap, path) == node
        assert lookup(batch, snap, RelPath(b"nowhere/at/all")) == ABSENT
        for scope in {p for path in state for p in (path, *ancestors(path))}:
            inside = {p: n for p, n in state.items() if is_within(p, scope)}
            assert dict(walk(batch, snap, scope)) == inside
            depth = scope.count(b"/") + 1
            assert listing(batch, snap, scope) == {
                p.rpartition(b"/")[2]: n for p, n in inside.items() if p.count(b"/") == depth
            }


@given(states, st.lists(paths, max_size=12))
def test_many_lookups_answer_as_single_ones_do(state: State, others: list[RelPath]) -> None:
    with fresh_batch() as batch:
        snap = build(batch, state.items())
        many = Lookup(batch, snap)
        for path in [*others, *state, *others, ROOT]:
            assert many.node(path) == lookup(batch, snap, path)


def test_many_lookups_read_each_directory_once() -> None:
    names = [RelPath(b"a/b/c/%d" % number) for number in range(100)]
    with fresh_batch() as batch:
        node = Node(Kind.FILE, 0o644, _oid(b"one"))
        snap = edit(batch, EMPTY, dict.fromkeys(names, node))
        reader = CountingReader(batch)
        many = Lookup(reader, snap)
        assert [many.node(name) for name in names] == [node] * 100
        assert len(reader.trees) == 4  # the root, a, a/b, a/b/c


@given(states, st.lists(consistent_changes, max_size=4))
def test_edits_do_what_the_model_does_and_leave_no_trace_of_their_order(
    state: State, rounds: list[State]
) -> None:
    with fresh_batch() as batch:
        snap = build(batch, state.items())
        for wanted in rounds:
            state = apply_to_model(state, wanted)
            snap = edit(batch, snap, wanted)
            assert dict(walk(batch, snap)) == state
            assert snap == build(batch, state.items())


@given(states, st.randoms(use_true_random=False))
def test_single_edits_in_any_order_make_the_same_snapshot(state: State, random) -> None:  # type: ignore[no-untyped-def]
    with fresh_batch() as batch:
        order = list(state.items())
        random.shuffle(order)
        snap = EMPTY
        for path, node in order:
            # A parent made in passing gets its own mode when its turn comes.
            snap = edit(batch, snap, {path: node})
        assert snap == build(batch, state.items())
        for path, _ in order:
            snap = edit(batch, snap, {path: ABSENT})
        assert snap == EMPTY


@given(states, consistent_changes, st.one_of(st.just(ROOT), paths))
def test_diff_is_the_difference_of_the_walks(state: State, wanted: State, scope: RelPath) -> None:
    with fresh_batch() as batch:
        old = build(batch, state.items())
        new = edit(batch, old, wanted)
        before, after = dict(walk(batch, old, scope)), dict(walk(batch, new, scope))
        expected = [
            Change(path, before.get(path, ABSENT), after.get(path, ABSENT))
            for path in sorted({*before, *after})
            if before.get(path, ABSENT) != after.get(path, ABSENT)
        ]
        assert diff(batch, old, new, scope) == expected
        assert edit(batch, old, {c.path: c.new for c in diff(batch, old, new)}) == new
        assert edit(batch, new, {c.path: c.old for c in diff(batch, old, new)}) == old


@settings(max_examples=15)
@given(states)
def test_git_finds_every_snapshot_sound(state: State) -> None:
    with fresh_batch() as batch:
        snap = build(batch, state.items())
        commit_snapshot(batch, snap)
        batch.publish()
        run_git(batch.store.git_dir, "fsck", "--strict", "--full")
        for oid in {node.oid for node in state.values() if node.oid}:
            reachable = run_git(batch.store.git_dir, "rev-list", "--objects", "--all")
            assert oid.hex().encode() in reachable


class CountingReader:
    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.trees: list[bytes] = []

    def read_tree(self, oid: bytes) -> Tree:
        self.trees.append(oid)
        return self.batch.read_tree(oid)

    def read_blob(self, oid: bytes) -> bytes:
        return self.batch.read_blob(oid)


@pytest.mark.parametrize("file_mode", [0o644, 0o600])
def test_an_edit_costs_the_changed_directories_only(store: ObjectStore, file_mode: int) -> None:
    dir_mode = 0o755 if file_mode == 0o644 else 0o700
    with Batch(store) as batch:
        blob, other = batch.add_blob(b"x"), batch.add_blob(b"y")
        state: State = {}
        for x in range(12):
            state[RelPath(b"d%d" % x)] = Node(Kind.DIRECTORY, dir_mode)
            for y in range(12):
                state[RelPath(b"d%d/e%d" % (x, y))] = Node(Kind.DIRECTORY, dir_mode)
                state[RelPath(b"d%d/e%d/f" % (x, y))] = Node(Kind.FILE, file_mode, blob)
        old = build(batch, state.items())
        batch.publish()
        new = edit(batch, old, {RelPath(b"d3/e4/f"): Node(Kind.FILE, file_mode, other)})
        assert len([kind for _, kind, _ in batch.small_objects() if kind == "tree"]) == 3
        reader = CountingReader(batch)
        assert len(diff(reader, old, new)) == 1
        per_directory = 2 if file_mode == 0o644 else 4
        assert len(reader.trees) <= 3 * per_directory + 4


def test_equal_subtrees_are_not_read_even_where_all_names_are_compared(store: ObjectStore) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        state: State = {RelPath(b"f"): Node(Kind.FILE, 0o600, blob)}
        for x in range(20):
            state[RelPath(b"d%d" % x)] = Node(Kind.DIRECTORY, 0o700)
            state[RelPath(b"d%d/f" % x)] = Node(Kind.FILE, 0o600, blob)
        old = build(batch, state.items())
        # The root's default mode changes with its only file.
        new = edit(batch, old, {RelPath(b"f"): Node(Kind.FILE, 0o640, blob)})
        reader = CountingReader(batch)
        assert [change.path for change in diff(reader, old, new)] == [b"f"]
        assert set(reader.trees) == {old.tree, old.attrs, new.attrs}


def test_a_record_says_no_more_than_it_must(store: ObjectStore) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        marked = Node(Kind.FILE, 0o644, blob, ((b"user.a", b"1"),))
        snap = edit(batch, EMPTY, {RelPath(b"a"): marked})
        record = batch.read_blob(batch.read_tree(snap.attrs)[b"attrs"][1])
        assert record == b'{"entries":{"a":{"xattrs":{"user.a":"MQ=="}}},"v":1}'
        plain = edit(batch, snap, {RelPath(b"a"): Node(Kind.FILE, 0o644, blob)})
        assert plain.attrs == b""


@pytest.mark.parametrize("name", [b"a", b".GIT"])
def test_a_plain_file_takes_the_place_of_anything(store: ObjectStore, name: bytes) -> None:
    """Nothing of the previous entry remains in the attrs tree."""
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        file = Node(Kind.FILE, 0o644, blob)
        others = {RelPath(b"o/%d" % number): file for number in range(3)}
        path = RelPath(b"o/" + name)
        wanted = build(batch, {**others, path: file}.items())
        below = {
            "a shut directory": {path: Node(Kind.DIRECTORY, 0o700), RelPath(path + b"/b"): file},
            "an empty directory": {path: Node(Kind.DIRECTORY, 0o755)},
            "a link": {path: Node(Kind.SYMLINK, 0, blob)},
            "a program": {path: Node(Kind.FILE, 0o755, blob)},
            "another file": {path: Node(Kind.FILE, 0o644, batch.add_blob(b"y"))},
        }
        for state in below.values():
            before = build(batch, {**others, **state}.items())
            assert edit(batch, before, {path: file}) == wanted


def test_a_file_below_a_file_is_refused(store: ObjectStore) -> None:
    with Batch(store) as batch:
        node = Node(Kind.FILE, 0o644, batch.add_blob(b"x"))
        for below in (b"a/b", b"a/b/c"):
            with pytest.raises(ValueError, match="both be a file"):
                edit(batch, EMPTY, {RelPath(b"a"): node, RelPath(below): node})
        with pytest.raises(ValueError, match="workspace itself"):
            edit(batch, EMPTY, {ROOT: Node(Kind.DIRECTORY, 0o700)})
        with pytest.raises(ValueError, match="needs a blob id"):
            edit(batch, EMPTY, {RelPath(b"a"): Node(Kind.FILE, 0o644)})


def test_removing_below_what_is_not_there_changes_nothing(store: ObjectStore) -> None:
    with Batch(store) as batch:
        node = Node(Kind.FILE, 0o644, batch.add_blob(b"x"))
        snap = build(batch, [(RelPath(b"f"), node)])
        assert edit(batch, snap, {RelPath(b"f/g/h"): ABSENT, RelPath(b"q/r"): ABSENT}) == snap


def test_a_path_deeper_than_the_stack(store: ObjectStore) -> None:
    deep = RelPath(b"/".join([b"d"] * 1900))
    with Batch(store) as batch:
        node = Node(Kind.FILE, 0o644, batch.add_blob(b"x"))
        snap = edit(batch, EMPTY, {RelPath(deep + b"/f"): node})
        assert lookup(batch, snap, RelPath(deep + b"/f")) == node
        assert sum(1 for _ in walk(batch, snap)) == 1901
        assert len(diff(batch, EMPTY, snap)) == 1901
        assert edit(batch, snap, {RelPath(b"d"): ABSENT}) == EMPTY


def test_an_unusual_umask_costs_one_shared_record(store: ObjectStore) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        snap = build(
            batch,
            [
                item
                for x in range(50)
                for item in (
                    (RelPath(b"d%d" % x), Node(Kind.DIRECTORY, 0o700)),
                    (RelPath(b"d%d/f" % x), Node(Kind.FILE, 0o600, blob)),
                    (RelPath(b"d%d/g" % x), Node(Kind.FILE, 0o700, blob)),
                )
            ],
        )
        root = batch.read_tree(snap.attrs)
        assert len({oid for _, oid in root.values()}) == 1
        record = batch.read_tree(root[b"=d0"][1])[b"attrs"][1]
        assert (
            batch.read_blob(record) == b'{"dir":{"mode":"0700"},"exec":"0700","file":"0600","v":1}'
        )


def test_equal_counts_take_the_smaller_mode(store: ObjectStore) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        snap = build(
            batch,
            [
                (RelPath(b"a"), Node(Kind.FILE, 0o666, blob)),
                (RelPath(b"b"), Node(Kind.FILE, 0o600, blob)),
            ],
        )
        record = batch.read_blob(batch.read_tree(snap.attrs)[b"attrs"][1])
        assert record == b'{"entries":{"a":{"mode":"0666"}},"file":"0600","v":1}'
        assert isinstance(snap, Snapshot)
