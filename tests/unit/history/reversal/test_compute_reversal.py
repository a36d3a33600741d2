"""Taking commits back while all other work stays, planned on snapshots alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from substrate.history.reversal.compute_reversal import Reversal, Step, Wish, text_merger
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.git.git_command import Git
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.snapshots.merge import Blobs, Take
from substrate.objects.snapshots.snapshot import Snapshot
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore

#: path -> "text", "text@600", "link>target", "dir/", "dir/@700", None (gone)
Edits = dict[str, str | None]


class Line:
    """A sequence of states; the last one is in the workspace."""

    def __init__(self, directory: Path) -> None:
        store = ObjectStore(directory / ".git")
        store.init()
        self.batch = Batch(store)
        self.git = Git(directory / ".git")
        self.states: list[Snapshot] = [snapshots.build(self.batch, [])]

    def then(self, **edits: str | None) -> int:
        return self.edit({name.replace("__", "/"): value for name, value in edits.items()})

    def edit(self, edits: Edits) -> int:
        """Append a state; its number names the step that led to it."""
        nodes = {RelPath(name.encode()): self.node(value) for name, value in edits.items()}
        self.states.append(snapshots.edit(self.batch, self.states[-1], nodes))
        return len(self.states) - 1

    def node(self, text: str | None) -> Node:
        if text is None:
            return ABSENT
        body, at, mode = text.partition("@")
        if body == "/":
            return Node(Kind.DIRECTORY, int(mode, 8) if at else 0o755)
        if body.startswith(">"):
            return Node(Kind.SYMLINK, 0, self.batch.add_blob(body[1:].encode()))
        return Node(Kind.FILE, int(mode, 8) if at else 0o644, self.batch.add_blob(body.encode()))

    def reverse(self, *steps: int, scope: Iterable[str] = (), take: Take | None = None) -> Wish:
        merge = text_merger(
            lambda b, o, t, favour: self.git.merge_file(
                b, o, t, favor=favour, scratch=self.git.git_dir
            )
        )
        blobs = Blobs(self.batch.read_blob, self.batch.add_blob, merge)
        paths = [RelPath(p.encode()) for p in scope]
        reversal = Reversal(self.batch, self.states[-1], blobs, scope=paths, take=take)
        for step in steps:
            reversal.take_back(Step(self.states[step - 1], self.states[step]))
        return reversal.wish()

    def shown(self, wish: Wish) -> dict[str, str | None]:
        return {c.path.decode(): self.show(c.new) for c in wish.changes}

    def show(self, node: Node) -> str | None:
        if node == ABSENT:
            return None
        if node.kind is Kind.DIRECTORY:
            return "/" if node.mode == 0o755 else f"/@{node.mode:o}"
        text = self.batch.read_blob(node.oid).decode()
        if node.kind is Kind.SYMLINK:
            return ">" + text
        return text if node.mode == 0o644 else f"{text}@{node.mode:o}"


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def test_one_step_back(line: Line) -> None:
    line.then(a="1", b="x@600")
    step = line.then(a="2", b=None, c="new")
    wish = line.reverse(step)
    assert line.shown(wish) == {"a": "1", "b": "x@600", "c": None}
    assert not wish.conflicts
    assert [c.old for c in wish.changes] == [line.node("2"), ABSENT, line.node("new")]


def test_later_work_on_other_paths_stays(line: Line) -> None:
    line.then(a="1")
    step = line.then(a="2")
    line.then(b="mine", a="2")
    assert line.shown(line.reverse(step)) == {"a": "1"}


def test_interleaved_steps_leave_what_is_between(line: Line) -> None:
    """session, outside, session: the outside edit's line stays in the file."""
    line.then(a="1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    first = line.then(a="ONE\n2\n3\n4\n5\n6\n7\n8\n9\n")
    line.then(a="ONE\n2\n3\n4\nmine\n6\n7\n8\n9\n")
    second = line.then(a="ONE\n2\n3\n4\nmine\n6\n7\n8\nNINE\n", b="theirs")
    wish = line.reverse(second, first)
    assert line.shown(wish) == {"a": "1\n2\n3\n4\nmine\n6\n7\n8\n9\n", "b": None}
    assert wish.merged == [b"a"]


def test_steps_on_one_path_add_up(line: Line) -> None:
    line.then(a="1")
    first = line.then(a="2")
    line.then(other="x")
    second = line.then(a="3")
    assert line.shown(line.reverse(second, first)) == {"a": "1"}
    assert line.shown(line.reverse(second)) == {"a": "2"}


def test_a_collision_stops_the_path_and_names_it(line: Line) -> None:
    line.then(a="1", b="1")
    step = line.then(a="2", b="2")
    line.then(a="3")
    wish = line.reverse(step)
    assert list(wish.conflicts) == [b"a"]
    assert line.shown(wish) == {"b": "1"}
    assert line.shown(line.reverse(step, take=Take.THEIRS)) == {"a": "1", "b": "1"}
    assert line.shown(line.reverse(step, take=Take.OURS)) == {"b": "1"}


def test_a_path_in_conflict_is_not_touched_by_older_steps(line: Line) -> None:
    line.then(a="1")
    older = line.then(a="2")
    newer = line.then(a="3")
    line.then(a="mine")
    wish = line.reverse(newer, older)
    assert list(wish.conflicts) == [b"a"]
    assert line.shown(wish) == {}


class TestDirectories:
    def test_one_that_came_with_the_command_goes_with_it(self, line: Line) -> None:
        line.then(a="1")
        step = line.edit({"d": "/", "d/e": "/", "d/e/f": "x"})
        assert line.shown(line.reverse(step)) == {"d": None, "d/e": None, "d/e/f": None}

    def test_one_that_now_holds_more_is_kept_and_reported(self, line: Line) -> None:
        step = line.edit({"d": "/", "d/e": "/", "d/e/f": "x"})
        line.edit({"d/mine": "y"})
        wish = line.reverse(step)
        assert line.shown(wish) == {"d/e": None, "d/e/f": None}
        assert wish.kept_directories == [b"d"]

    def test_kept_directories_keep_their_parents(self, line: Line) -> None:
        step = line.edit({"d": "/", "d/e": "/", "d/e/f": "x"})
        line.edit({"d/e/mine": "y"})
        wish = line.reverse(step)
        assert line.shown(wish) == {"d/e/f": None}
        assert wish.kept_directories == [b"d", b"d/e"]

    def test_one_with_a_conflicting_file_is_kept(self, line: Line) -> None:
        step = line.edit({"d": "/", "d/f": "x"})
        line.edit({"d/f": "mine"})
        wish = line.reverse(step)
        assert list(wish.conflicts) == [b"d/f"]
        assert wish.kept_directories == [b"d"]
        assert line.shown(wish) == {}

    def test_parents_come_back_with_their_modes(self, line: Line) -> None:
        line.edit({"d": "/@700", "d/e": "/@750", "d/e/f": "x@600"})
        step = line.edit({"d/e/f": None})
        line.edit({"d/e": None, "d": None})
        assert line.shown(line.reverse(step)) == {"d": "/@700", "d/e": "/@750", "d/e/f": "x@600"}

    def test_a_parent_wished_away_by_a_newer_step_comes_back_for_its_file(self, line: Line) -> None:
        line.edit({"d": "/@711", "d/f": "x"})
        older = line.edit({"d": None, "d/f": None})
        line.edit({"else": "1"})
        newer = line.edit({"d": "/@777", "d/g": "agent"})
        wish = line.reverse(newer, older)
        assert line.shown(wish) == {"d": "/@711", "d/f": "x", "d/g": None}

    def test_an_empty_directory_comes_and_goes(self, line: Line) -> None:
        line.edit({"empty": "/@700"})
        gone = line.edit({"empty": None})
        assert line.shown(line.reverse(gone)) == {"empty": "/@700"}
        made = line.edit({"other": "/"})
        assert line.shown(line.reverse(made)) == {"other": None}


class TestKinds:
    def test_a_file_that_became_a_directory_becomes_a_file_again(self, line: Line) -> None:
        line.then(p="file")
        step = line.edit({"p": "/", "p/q": "x"})
        assert line.shown(line.reverse(step)) == {"p": "file", "p/q": None}

    def test_unless_the_directory_holds_more_by_now(self, line: Line) -> None:
        line.then(p="file")
        step = line.edit({"p": "/", "p/q": "x"})
        line.edit({"p/mine": "y"})
        wish = line.reverse(step)
        assert list(wish.conflicts) == [b"p"]
        assert "directory with other files" in wish.conflicts[RelPath(b"p")]

    def test_a_directory_that_became_a_file_comes_back_whole(self, line: Line) -> None:
        line.edit({"p": "/@700", "p/q": "x"})
        step = line.edit({"p/q": None, "p": "file"})
        assert line.shown(line.reverse(step)) == {"p": "/@700", "p/q": "x"}

    def test_a_users_file_in_the_place_of_a_directory_is_a_conflict(self, line: Line) -> None:
        line.edit({"p": "/", "p/q": "x"})
        step = line.edit({"p/q": None})
        line.edit({"p": None})
        line.edit({"p": "mine"})
        wish = line.reverse(step)
        assert wish.conflicts == {b"p/q": "a file is where its directory was"}
        assert line.shown(wish) == {}

    def test_a_link_in_the_place_of_a_directory_is_a_conflict(self, line: Line) -> None:
        line.edit({"p": "/", "p/q": "x"})
        step = line.edit({"p/q": None})
        line.edit({"p": None})
        line.edit({"p": ">elsewhere"})
        assert list(line.reverse(step).conflicts) == [b"p/q"]

    def test_link_and_file_trade_places(self, line: Line) -> None:
        line.then(p=">target")
        step = line.then(p="file@755")
        assert line.shown(line.reverse(step)) == {"p": ">target"}


class TestScope:
    def test_only_what_is_asked_for(self, line: Line) -> None:
        line.edit({"a": "1", "d": "/", "d/x": "1", "dx": "1"})
        step = line.edit({"a": "2", "d/x": "2", "dx": "2"})
        assert line.shown(line.reverse(step, scope=["d"])) == {"d/x": "1"}
        assert line.shown(line.reverse(step, scope=["a", "dx"])) == {"a": "1", "dx": "1"}

    def test_a_file_in_scope_brings_its_directory(self, line: Line) -> None:
        line.edit({"d": "/@700", "d/x": "1", "d/y": "1"})
        step = line.edit({"d": None, "d/x": None, "d/y": None})
        assert line.shown(line.reverse(step, scope=["d/x"])) == {"d": "/@700", "d/x": "1"}


def test_exactly_puts_every_path_as_it_was(line: Line) -> None:
    target = line.edit({"a": "1", "d": "/@700", "d/x": "1"})
    line.edit({"a": "2", "d": None, "d/x": None, "mine": "3"})
    reversal = Reversal(line.batch, line.states[-1], _no_blobs(line.batch.read_blob))
    reversal.put_exactly(line.states[target])
    assert line.shown(reversal.wish()) == {"a": "1", "d": "/@700", "d/x": "1", "mine": None}


def _no_blobs(read: Callable[[bytes], bytes]) -> Blobs:
    def never(*_: object) -> bytes:
        raise AssertionError("an exact rollback merges nothing")

    return Blobs(read, never, never)
