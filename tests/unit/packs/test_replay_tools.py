"""The tools of a replay: what they do in the tree, and that nothing outside it is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model import PatchError, patch_changes
from substrate.model.paths import RelPath
from substrate.packs.format.manifest import Input
from substrate.packs.replay.base_tree import (
    BASE_NAME,
    BaseTree,
    TreeEntry,
    base_record,
    from_text,
    lay_out,
    read_base,
)
from substrate.packs.store.ctx_store import Store
from substrate.packs.tools.confined_tree import ConfinedTree, TreeError
from substrate.packs.tools.file_tools import pattern_of
from substrate.packs.tools.registry import (
    Limits,
    Registry,
    ShellCall,
    ShellDone,
    ToolContext,
    ToolError,
    ToolResult,
)
from substrate.packs.tools.tree_state import TreeState, change_json, leaves

Call = Callable[..., ToolResult]


def no_shell(call: ShellCall) -> ShellDone:
    raise AssertionError("no command was to be run")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    directory = tmp_path / "tree"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "main.py").write_text("import os\nprint('hi')\n")
    (directory / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "secret.txt").write_text("out of reach")
    return directory


@pytest.fixture
def call(tree: Path) -> Call:
    def run(name: str, **parameters: object) -> ToolResult:
        context = ToolContext(
            ConfinedTree(tree, "/home/ada/project"),
            no_shell,
            Limits(timeout_s=2, output_bytes=1 << 26),
            lambda _: b"",
        )
        tool = Registry().find(name)
        assert tool is not None
        return tool(context, name, parameters)

    return run


def data_of(result: ToolResult) -> bytes:
    assert result.produced.path is None
    return result.produced.data


def test_reading_by_every_name_and_path(call: Call, tree: Path) -> None:
    for name, parameters in (
        ("read_file", {"path": "notes.txt"}),
        ("read_file", {"path": "src/../notes.txt"}),
        ("Read", {"file_path": "/home/ada/project/notes.txt"}),
        ("read_file", {"absolute_path": str(tree / "notes.txt")}),
        ("read_file", {"path": "../notes.txt", "cwd": "/home/ada/project/src"}),
    ):
        assert data_of(call(name, **parameters)) == b"one\ntwo\n"
    assert b"1\tone\n2\ttwo\n3\t" in call("Read", file_path="notes.txt").also
    assert b"two" in call("Read", file_path="notes.txt", offset=2, limit=1).also


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../secret.txt", "src/../../secret.txt", "/home/ada/project/../x"),
        *("/dev/zero", "/proc/self/environ", "src", ".", "", "missing.txt", "notes.txt/x", "a\0b"),
    ],
)
def test_nothing_but_regular_files_of_the_tree_is_read(call: Call, path: str) -> None:
    with pytest.raises(ToolError):
        call("read_file", path=path)


@pytest.mark.needs("symlinks")
def test_links_are_followed_inside_and_not_outside(call: Call, tree: Path) -> None:
    (tree / "good").symlink_to("src/main.py")
    (tree / "src" / "up").symlink_to("../notes.txt")
    (tree / "was").symlink_to("/home/ada/project/notes.txt")
    (tree / "out").symlink_to("../secret.txt")
    (tree / "passwd").symlink_to("/etc/passwd")
    (tree / "dir").symlink_to("..")
    (tree / "round").symlink_to("round")
    assert data_of(call("read_file", path="good")).startswith(b"import os")
    assert data_of(call("read_file", path="src/up")) == b"one\ntwo\n"
    assert data_of(call("read_file", path="was")) == b"one\ntwo\n"
    for path in ("out", "passwd", "dir/secret.txt", "round"):
        with pytest.raises(ToolError):
            call("read_file", path=path)
        with pytest.raises(ToolError):
            call("write_file", path=path, content="overwritten")
    assert (tree.parent / "secret.txt").read_text() == "out of reach"


@pytest.mark.needs("posix")
def test_a_fifo_hangs_nothing(call: Call, tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    for name, parameters in (
        ("read_file", {"path": "pipe"}),
        ("write_file", {"path": "pipe", "content": "x"}),
        ("edit_file", {"path": "pipe", "old": "a", "new": "b"}),
        ("search", {"pattern": "x", "path": "pipe"}),
    ):
        with pytest.raises(ToolError, match="no regular file"):
            call(name, **parameters)
    assert data_of(call("search", pattern="x")) == b""
    assert b"pipe" in data_of(call("list_dir", path="."))


def test_a_huge_sparse_file_is_refused_not_read(call: Call, tree: Path) -> None:
    with (tree / "huge").open("wb") as file:
        file.truncate(1 << 40)
    result = call("read_file", path="huge")
    with pytest.raises(TreeError, match="larger than"):
        for _ in result.produced.chunks():
            pass


def test_writing_and_editing(call: Call, tree: Path) -> None:
    assert call("Write", file_path="new/deep/a.txt", content="ä\n").only_says_done
    assert (tree / "new/deep/a.txt").read_text() == "ä\n"
    call("edit_file", path="notes.txt", old="two", new="2")
    call("Edit", file_path="notes.txt", old_string="one", new_string="1")
    assert (tree / "notes.txt").read_text() == "1\n2\n"
    edits = [{"old_string": "1", "new_string": "x"}, {"old_string": "x\n2", "new_string": "y"}]
    call("MultiEdit", file_path="notes.txt", edits=edits)
    assert (tree / "notes.txt").read_text() == "y\n"
    call("Edit", file_path="made.txt", old_string="", new_string="fresh")
    assert (tree / "made.txt").read_text() == "fresh"


def test_an_edit_that_does_not_fit_changes_nothing(call: Call, tree: Path) -> None:
    (tree / "twice").write_text("a a")
    with pytest.raises(ToolError, match="is not in notes.txt"):
        call("edit_file", path="notes.txt", old="three", new="3")
    with pytest.raises(ToolError, match="2 times"):
        call("edit_file", path="twice", old="a", new="b")
    call("Edit", file_path="twice", old_string="a", new_string="b", replace_all=True)
    assert (tree / "twice").read_text() == "b b"
    assert (tree / "notes.txt").read_text() == "one\ntwo\n"


def test_listing_and_finding(call: Call, tree: Path) -> None:
    assert data_of(call("list_dir", path=".")) == b"notes.txt\nsrc/"
    assert b"notes.txt\nsrc" in call("LS", path="/home/ada/project").also
    assert data_of(call("Glob", pattern="**/*.py")) == b"src/main.py"
    assert b"/home/ada/project/src/main.py" in call("Glob", pattern="**/*.py").also


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py"], ["d/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "d/e/a.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/b/c"], ["a"]),
        ("*.{ts,tsx}", ["a.ts", "a.tsx"], ["a.tsxx"]),
        ("[ab].c", ["a.c"], ["c.c"]),
        ("a?c", ["abc"], ["a/c"]),
    ],
)
def test_globs(pattern: str, yes: list[str], no: list[str]) -> None:
    wanted = pattern_of(pattern)
    assert all(wanted.fullmatch(name) for name in yes)
    assert not any(wanted.fullmatch(name) for name in no)


def test_searching(call: Call, tree: Path) -> None:
    (tree / "binary").write_bytes(b"\0print")
    found = call("search", pattern="print|two")
    assert data_of(found) == b"notes.txt:2:two\nsrc/main.py:2:print('hi')"
    assert b"Found 1 file\nsrc/main.py" in call("Grep", pattern="PRINT", **{"-i": True}).also
    assert data_of(call("Grep", pattern="o", glob="*.txt")).startswith(b"notes.txt")
    with pytest.raises(ToolError, match="cannot be read"):
        call("search", pattern="(")
    with pytest.raises(ToolError):
        call("search", pattern="x", path="/etc")


@pytest.mark.needs("fork")
def test_a_pattern_that_never_ends_is_ended(call: Call, tree: Path) -> None:
    (tree / "trap").write_text("a" * 60 + "!")
    with pytest.raises(ToolError, match="did not end within"):
        call("search", pattern="(a+)+$", path="trap")


def test_a_patch_of_codex(call: Call, tree: Path) -> None:
    call(
        "apply_patch",
        input="""*** Begin Patch
*** Update File: src/main.py
*** Move to: src/app.py
@@
 import os
-print('hi')
+print('bye')
*** Add File: c.txt
+new
*** Delete File: notes.txt
*** End Patch""",
    )
    assert not (tree / "notes.txt").exists()
    assert not (tree / "src/main.py").exists()
    assert (tree / "src/app.py").read_text() == "import os\nprint('bye')\n"
    assert (tree / "c.txt").read_text() == "new\n"


@pytest.mark.parametrize(
    "text", ["", "*** Begin Patch\nrubbish\n*** End Patch", "*** Begin Patch\n*** Add File: x"]
)
def test_a_patch_that_is_none(text: str) -> None:
    with pytest.raises(PatchError):
        patch_changes(text, lambda _: "")


def test_a_patch_cannot_leave_the_tree(call: Call, tree: Path) -> None:
    with pytest.raises(ToolError, match="outside"):
        call("apply_patch", input="*** Begin Patch\n*** Add File: ../x\n+x\n*** End Patch")
    assert not (tree.parent / "x").exists()


def test_an_unknown_tool_is_known_to_be_unknown() -> None:
    assert Registry().find("teleport") is None


# -- the base tree --------------------------------------------------------------------------------


def put(store: Store, name: str, text: str) -> Input:
    stored = store.objects.write(text.encode())
    return Input(name, stored.ref, stored.size)


@pytest.mark.needs("symlinks")
def test_a_base_tree_is_laid_out_exactly(store: Store, tmp_path: Path) -> None:
    entries = (
        TreeEntry(b"run.sh", "file", 0o755),
        TreeEntry(b"link", "symlink", 0, b"src/a.c"),
        TreeEntry(b"empty", "directory", 0o700),
        TreeEntry(b"caf\xe9", "file", 0o600),
    )
    record = base_record("/home/ada/project", "c0ffee", entries, ["node_modules"])
    base = read_base(record.encode())
    assert base == BaseTree(
        "/home/ada/project", "c0ffee", tuple(sorted(entries)), ("node_modules",)
    )
    inputs = [
        put(store, BASE_NAME, record),
        put(store, "run.sh", "#!/bin/sh\n"),
        put(store, "src/a.c", "int main;"),
        put(store, "caf%E9", "latin"),
    ]
    target = tmp_path / "laid-out"
    target.mkdir()
    laid = lay_out(target, base, inputs, store.objects.chunks)
    assert laid.notes == ()
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "src/a.c").read_text() == "int main;"
    assert os.readlink(target / "link") == "src/a.c"
    assert (target / "empty").stat().st_mode & 0o777 == 0o700
    assert sorted(os.listdir(os.fsencode(target))) == [
        *(b"caf\xe9", b"empty", b"link", b"run.sh", b"src"),
    ]


def test_no_name_of_an_input_leaves_the_tree(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "laid-out"
    target.mkdir()
    base = BaseTree(
        entries=(TreeEntry(b"evil", "symlink", 0, b".."), TreeEntry(b"../d", "directory"))
    )
    names = ["../x", "a/../../x", "/abs/x", "evil/x", "", "ok", "ok/below", "setuid"]
    inputs = [put(store, name, name) for name in names]
    laid = lay_out(target, base, inputs, store.objects.chunks)
    # evil became a directory, made for evil/x: nothing is ever written through a link
    assert {path.name for path in tmp_path.iterdir()} == {"project", "laid-out"}
    assert (target / "abs/x").read_text() == "/abs/x"
    assert (target / "evil/x").read_text() == "evil/x"
    assert len(laid.notes) == 6
    assert "ok/below is not laid out: something else has its place" in "\n".join(laid.notes)


@pytest.mark.parametrize("raw", [b"plain", b"100%", b"%\xff", b"a\xffb%41"])
def test_names_come_back_from_their_text(raw: bytes) -> None:
    from substrate.model.paths import to_text

    text, encoded = to_text(raw)
    assert from_text(text, encoded=encoded) == raw


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version": 2}', b'{"version": 1, "entries": [{"mode": "0644"}]}']
)
def test_a_base_record_that_is_none(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"base\.json"):
        read_base(data)


# -- what a step changed --------------------------------------------------------------------------


def test_changes_are_found_by_content(tree: Path) -> None:
    state = TreeState(tree)
    assert state.changes() == []
    (tree / "notes.txt").write_text("one\ntwo\n")  # the same again: no change
    (tree / "src" / "main.py").unlink()
    (tree / "new").mkdir()
    (tree / "node_modules").mkdir()
    (tree / "node_modules" / "bulk").write_text("left out")
    (tree / "made.sh").write_text("x")
    (tree / "made.sh").chmod(0o755)
    found = [change_json(change) for change in leaves(state.changes())]
    x = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    assert found == [
        {"path": "made.sh", "change": "added", "kind": "file", "mode": "0755",
         "content": f"sha256:{x}"},
        {"path": "new", "change": "added", "kind": "directory", "mode": "0755"},
        {"path": "src/main.py", "change": "deleted"},
    ]  # fmt: skip
    assert json.dumps(found)
    assert state.node(RelPath(b"made.sh")).mode & 0o777 == 0o755
