"""Parts of a held world: `world apply ID PATH`, `-p`, `--hunk`, `world discard ID PATH`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay")

OLD = "".join(f"line {n}\n" for n in range(1, 10))
NEW = OLD.replace("line 2", "LINE 2").replace("line 8", "LINE 8")
CHANGE = (
    "sed -i 's/line 2/LINE 2/; s/line 8/LINE 8/' a.txt; mkdir -p n/m; echo 1 > n/m/1;"
    " echo 2 > n/m/2; rm -r d; mkdir -p node_modules/p; echo js > node_modules/p/i.js"
)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    (project / "d").mkdir(parents=True)
    (project / "a.txt").write_text(OLD)
    for name in "xy":
        (project / "d" / name).write_text(f"{name}\n")
    return Program(project)


def held(program: Program, line: str = CHANGE) -> str:
    program("--hold", "-c", line).went_well()
    [world] = program.json("world", "list")["worlds"]
    return str(world["world_id"])


def tree(program: Program) -> dict[str, str]:
    return {
        str(path.relative_to(program.cwd)): path.read_text()
        for path in sorted(program.cwd.rglob("*"))
        if path.is_file() and ".substrate-git" not in path.parts
    }


def files(program: Program, world: str, *words: str) -> list[str]:
    return [one["path"] for one in program.json("world", "diff", world, *words)["files"]]


def test_paths_arrive_one_by_one_and_the_rest_stays_held(program: Program) -> None:
    before = tree(program)
    world = held(program)
    foreseen = program("world", "apply", world, "n/m/1", "--dry-run").went_well().text
    assert "n/m/1" in foreseen and "a.txt" not in foreseen and tree(program) == before
    done = program("world", "apply", world, "n/m/1").went_well()
    assert f"the rest is still held: substrate world diff {world}" in done.text
    assert tree(program) == {**before, "n/m/1": "1\n"}
    assert "n/m/1" not in files(program, world) and "n/m/2" in files(program, world)
    # What a person writes in the meantime stays, merged.
    (program.cwd / "a.txt").write_text(OLD.replace("line 5", "mine"))
    program("world", "apply", world, "node_modules", "d/y").went_well()
    assert tree(program)["node_modules/p/i.js"] == "js\n"
    assert (program.cwd / "d/x").exists() and not (program.cwd / "d/y").exists()
    answer = program.json("world", "apply", world)
    assert (answer["rest"], answer["conflicts"]) == (None, [])
    after = {"a.txt": NEW.replace("line 5", "mine"), "n/m/1": "1\n", "n/m/2": "2\n"}
    assert tree(program) == {**after, "node_modules/p/i.js": "js\n"}
    assert program.json("world", "list")["worlds"] == []
    # Each part is an entry of its own, and can be taken back by itself.
    parts = [one for one in program.json("log")["commands"] if "world apply" in one["command"]]
    assert [one["changed_files"] for one in parts] == [
        ["a.txt", "d/x", "n/m/2"],
        ["d/y"],
        ["n/m/1"],
    ]
    program("undo", parts[1]["command_id"]).went_well()
    assert (program.cwd / "d/y").read_text() == "y\n" and (program.cwd / "n/m/1").exists()
    program("redo").went_well()
    assert not (program.cwd / "d/y").exists()


def test_discarded_paths_come_back_by_name(program: Program) -> None:
    before = tree(program)
    world = held(program)
    said = program("world", "discard", world, "d/x", "n").went_well().text
    assert f"substrate world apply {world} d/x n" in said
    assert tree(program) == before
    assert files(program, world) == ["a.txt", "d/y"]
    assert program.json("world", "list")["worlds"][0]["discarded_paths"] == ["d/x", "n"]
    program("world", "apply", world, "n/m/2").went_well()
    assert (program.cwd / "n/m/2").exists() and not (program.cwd / "n/m/1").exists()
    done = program("world", "apply", world).went_well()
    assert "the rest is still discarded" in done.text
    assert (program.cwd / "d/x").exists() and not (program.cwd / "d/y").exists()
    assert program.json("world", "list")["worlds"] == []
    [aside] = program.json("world", "list", "--discarded")["worlds"]
    assert aside["world_id"] == world
    program("world", "apply", world).went_well()
    assert (program.cwd / "n/m/1").read_text() == "1\n" and not (program.cwd / "d").exists()
    assert program.json("world", "list", "--discarded")["worlds"] == []


def test_all_paths_discarded_is_the_world_discarded(program: Program) -> None:
    world = held(program, "echo 1 > one; echo 2 > two")
    program("world", "discard", world, "one", "two").went_well()
    assert program.json("world", "list")["worlds"] == []
    program("world", "discard", world, "one").is_clear(5, "is discarded already")
    program("world", "apply", world).went_well()
    assert (program.cwd / "one").exists() and (program.cwd / "two").exists()


def test_what_cannot_be_taken_alone_is_refused(program: Program) -> None:
    world = held(program, f"{CHANGE}; rm a.txt; mkdir a.txt; echo in > a.txt/in")
    before = tree(program)
    program("world", "apply", world, "elsewhere").is_clear(4, "no change in elsewhere")
    program("world", "discard", world, "elsewhere").is_clear(4, "no change in elsewhere")
    program("world", "apply", world, "node_modules/p").is_clear(5, "as a whole")
    program("world", "list", "-p").is_clear(2, "unexpected option: --patch")
    assert tree(program) == before
    program("world", "apply", world, "a.txt/in").went_well()  # with the directory that it needs
    assert tree(program) == {"a.txt/in": "in\n", "d/x": "x\n", "d/y": "y\n"}


def test_a_part_in_conflict_stays_in_the_world(program: Program) -> None:
    world = held(program)
    (program.cwd / "a.txt").write_text(OLD.replace("line 2", "mine"))
    done = program("world", "apply", world, "a.txt", "n/m/1")
    assert done.status == 1 and "conflict: a.txt" in done.errors
    assert "mine" in (program.cwd / "a.txt").read_text() and (program.cwd / "n/m/1").exists()
    assert files(program, world) == ["a.txt", "d/x", "d/y", "n/m/2"]


def test_hunks_of_a_world(program: Program) -> None:
    world = held(program)
    hunks = program.json("world", "diff", world, "--hunks")["hunks"]
    [first, last] = [one["id"] for one in hunks if one["path"] == "a.txt"]
    gone = [one["id"] for one in hunks if one["path"].startswith("d/")]
    program("world", "apply", world, "--hunk", first, "--hunk", gone[0]).went_well()
    assert (program.cwd / "a.txt").read_text() == OLD.replace("line 2", "LINE 2")
    assert not (program.cwd / "d/x").exists() and (program.cwd / "d/y").exists()
    left = program.json("world", "diff", world, "--hunks", "a.txt")["hunks"]
    assert [(one["old"], one["new"]) for one in left] == [(["line 8\n"], ["LINE 8\n"])]
    program("world", "apply", world, "--hunk", first).is_clear(4, "is no hunk of this change")
    program("world", "apply", world, "--hunk", last, "--hunk", gone[1]).went_well()
    assert (program.cwd / "a.txt").read_text() == NEW and not (program.cwd / "d").exists()
    assert files(program, world) == ["n/m/1", "n/m/2"]


@pytest.mark.needs("linux")
def test_hunks_of_a_world_asked_on_a_terminal(program: Program, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "third way\\n" > "$1"\n')
    editor.chmod(0o755)
    program.env["VISUAL"] = str(editor)
    world = held(program)
    shown = program.on_a_terminal(80, "world", "apply", world, "a.txt", "-p", typed=b"s\nn\ne\n")
    assert "Apply this hunk [y,n,e,a,d,q,?]?" in "".join(shown)
    assert any(line.startswith("s - split it") for line in shown)
    assert (program.cwd / "a.txt").read_text() == OLD.replace("line 8", "third way")
    left = program.json("world", "diff", world, "--hunks", "a.txt")["hunks"]
    assert [(one["old"], one["new"]) for one in left] == [
        (["line 2\n"], ["LINE 2\n"]), (["third way\n"], ["LINE 8\n"]),
    ]  # fmt: skip
    program("world", "apply", world, "-p").is_clear(2, "there is none")


def test_hunks_of_a_snapshot_are_restored(program: Program) -> None:
    program("-c", "sed -i 's/line 2/LINE 2/; s/line 8/LINE 8/' a.txt; echo n > new").went_well()
    program("undo").went_well()  # keeps what it replaces
    [kept] = program.json("recover", "list")["recoveries"]
    hunks = program.json("recover", "show", kept["name"], "--hunks")["hunks"]
    assert [one["path"] for one in hunks] == ["a.txt", "a.txt", "new"]
    again = program("recover", "restore", kept["name"], "--hunk", hunks[1]["id"]).went_well()
    assert "to take this back" in again.text
    assert tree(program)["a.txt"] == OLD.replace("line 8", "LINE 8") and "new" not in tree(program)
    program("undo", program.json("log")["commands"][0]["command_id"]).went_well()
    assert tree(program)["a.txt"] == OLD


def test_an_edit_that_history_did_not_know_stays_when_a_part_arrives(program: Program) -> None:
    """The command saw it, so that it looks like the command's own: hunk or directory."""
    program.sh("true")
    (program.cwd / "a.txt").write_text(OLD.replace("line 2", "mine"))
    (program.cwd / "d" / "u").write_text("mine\n")
    world = held(program, "sed -i 's/line 8/LINE 8/' a.txt; rm -r d")
    known = program.json("world", "diff", world, "--hunks")["hunks"]
    wanted = [
        one["id"] for one in known
        if one["path"] == "d/x" or one.get("new") == ["LINE 8\n"]
    ]  # fmt: skip
    program("world", "apply", world, *(f"--hunk={name}" for name in wanted)).went_well()
    both = OLD.replace("line 2", "mine").replace("line 8", "LINE 8")
    assert tree(program) == {"a.txt": both, "d/u": "mine\n", "d/y": "y\n"}
