"""Only the named paths are compared; what they hold is recorded as a scan would record it."""

from __future__ import annotations

import os
import time

import pytest

from substrate.history.record import record_entry as record
from substrate.history.record import watched_edits
from substrate.model.paths import RelPath
from substrate.recorder.queries import changed_files
from tests.unit.history.workbench import Bench, Dir, Edit, Link, Mode

START: Edit = {
    "a": b"1", "b": b"1", "src/c": b"1", "src/deep/d": b"1", "link": Link("a"), "empty": Dir(),
    "was/dir/f": b"1", "wasf": b"1",
}  # fmt: skip


@pytest.fixture
def begun(bench: Bench) -> Bench:
    bench.run(START)
    return bench


def told(bench: Bench, suspects: dict[bytes, bool]) -> set[bytes]:
    """Record these; the paths that came into history with it."""
    named = {RelPath(path): deep for path, deep in suspects.items()}
    before = bench.log()[0].command_id
    with bench.writing() as store:
        found = watched_edits.differing(store, named)
        assert watched_edits.record_suspects(store, named)
        assert watched_edits.differing(store, named) == {}, "now history says so"
    entry = bench.log()[0]
    if entry.command_id == before:
        assert not found
        return set()
    assert (entry.kind, entry.command) == ("external", "external-changes")
    with bench.store() as store:
        return {bytes(path) for path in changed_files(store, entry)}


@pytest.mark.parametrize(
    ("edit", "suspects", "changed"),
    [
        ({"a": b"2"}, {b"a": True}, {b"a"}),
        ({"a": b"2", "b": b"2"}, {b"b": True}, {b"b"}),
        ({"a": b"1"}, {b"a": True, b"src/c": True}, set()),
        ({"a": None}, {b"a": True}, {b"a"}),
        ({"a": Mode(0o600)}, {b"a": True}, {b"a"}),
        ({"link": Link("b")}, {b"link": True}, {b"link"}),
        ({"new/x/y": b"2", "new/z": b"2"}, {b"new": True}, {b"new/x/y", b"new/z"}),
        ({"src": None}, {b"src": True}, {b"src/c", b"src/deep/d"}),
        ({"src": None}, {b"src/deep/d": True}, {b"src/c", b"src/deep/d"}),
        ({"src": Dir(0o700), "src/c": b"2"}, {b"src": False}, {b"src"}),
        ({"src": Dir(0o700), "src/c": b"2"}, {b"src": True}, {b"src/c"}),
        ({"was": b"file now"}, {b"was": False}, {b"was", b"was/dir/f"}),
        ({"wasf": Dir(), "wasf/f": b"2"}, {b"wasf": True}, {b"wasf", b"wasf/f"}),
        ({"empty": None}, {b"empty": True}, {b"empty"}),
        ({"wasf": None, "dist": b"2"}, {b"wasf": True, b"dist": True}, {b"wasf", b"dist"}),
        ({"node_modules/x": b"2"}, {b"node_modules": True, b"node_modules/x": True}, set()),
    ],
)  # fmt: skip
def test_what_is_named_is_recorded(
    begun: Bench, edit: Edit, suspects: dict[bytes, bool], changed: set[bytes]
) -> None:
    begun.outside(edit)
    assert told(begun, suspects) == changed


def test_a_directory_that_is_left_out_in_the_place_of_a_file(bench: Bench) -> None:
    bench.run({"target": b"a file"})
    bench.outside({"target": Dir(), "target/x": b"bulk"})
    assert told(bench, {b"target": True}) == {b"target"}
    assert bench.settle() is None, "a scan finds the same"


def test_a_scan_finds_nothing_more(begun: Bench) -> None:
    begun.outside({"a": b"2", "src": None, "new/x/y": b"2", "was": b"file now", "empty": None})
    with begun.store() as store:
        found = watched_edits.differing_anywhere(store)
    assert found == {b"a": True, b"src": True, b"new": True, b"was": True, b"empty": True}
    with begun.writing() as store:
        assert watched_edits.record_suspects(store, found)
        assert watched_edits.differing_anywhere(store) == {}
    assert begun.settle() is None


def test_only_so_much_is_looked_at(begun: Bench) -> None:
    begun.outside({f"many/{n}": b"x" * 100 for n in range(50)})
    many = {RelPath(b"many"): True, RelPath(b"gone"): True}
    with begun.store() as store:
        assert watched_edits.is_little(store, many, entries=52, size_bytes=5_000)
        assert not watched_edits.is_little(store, many, entries=51, size_bytes=5_000)
        assert not watched_edits.is_little(store, many, entries=52, size_bytes=4_999)
        assert watched_edits.is_little(store, {RelPath(b"many"): False}, entries=1, size_bytes=0)


@pytest.mark.needs("posix")
def test_a_file_with_several_names_is_more_than_its_path(begun: Bench) -> None:
    os.link(begun.root / "a", begun.root / "b2")
    paths = {RelPath(b"a"): True}
    with begun.store() as store:
        assert watched_edits.has_other_names(
            store, [RelPath(b"b"), RelPath(b"gone"), RelPath(b"a")]
        )
        assert not watched_edits.has_other_names(store, [RelPath(b"b"), RelPath(b"src")])
        assert not watched_edits.is_little(store, paths, entries=100, size_bytes=100)


class TestWhileACommandRuns:
    """A world that started from an assumed base may have seen the edit."""

    def begin(self, bench: Bench, known: str) -> None:
        world = record.InWorld("wld_x", (bench.root / "nowhere",), is_watched=known == "watched")
        with bench.writing() as store:
            running = record.begin(
                store, session="s-1", agent_id="ada", command="x", exact="x",
                world=world if known != "real files" else None,
            )  # fmt: skip
            assert running.base_known == (known if known != "real files" else "scanned")

    def record(self, bench: Bench) -> bool:
        with bench.writing() as store:
            return watched_edits.record_suspects(
                store, {RelPath(b"a"): True, RelPath(b"b"): True, RelPath(b"new"): True}
            )

    def test_that_was_watched(self, begun: Bench) -> None:
        begun.outside({"a": b"2"})
        self.begin(begun, "watched")
        assert self.record(begun)
        assert begun.kinds()[-1] == "external"

    def test_from_an_assumed_base(self, begun: Bench) -> None:
        begun.outside({"a": b"2", "new/old": b"2"})
        time.sleep(0.1)  # files' times have their own clock, and it ticks slowly
        self.begin(begun, "assumed")
        assert not self.record(begun)
        assert begun.kinds()[-1] != "external", "whether it saw them is found when it arrives"
        time.sleep(0.1)
        begun.outside({"b": b"2"})
        assert not self.record(begun)
        with begun.store() as store:
            assert changed_files(store, begun.log()[0]) == [b"b"], "this it cannot have seen"

    def test_on_the_real_files(self, begun: Bench) -> None:
        self.begin(begun, "real files")
        begun.outside({"a": b"2"})
        assert not self.record(begun)
        assert begun.kinds()[-1] != "external"
