"""`diff --hunks`, `undo --hunk` and `undo -p`: a part of what a command changed."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from tests.contract.program import Program

OLD = "".join(f"line {n}\n" for n in range(1, 10))


@pytest.fixture
def two_hunks(substrate: Program) -> Program:
    (substrate.cwd / "a.txt").write_text(OLD)
    substrate.sh("true")
    substrate.sh("sed -i 's/line 2/LINE 2/; s/line 8/LINE 8/' a.txt; echo new > new.txt")
    return substrate


def hunks(program: Program, *words: str) -> list[str]:
    return [one["id"] for one in program.json("diff", "--hunks", *words)["hunks"]]


def test_one_hunk_by_its_id(two_hunks: Program) -> None:
    first, last, _ = hunks(two_hunks)
    shown = two_hunks("diff", "--hunks").went_well().text
    assert f"{first}  a.txt\n@@ -2,1 +2,1 @@\n-line 2\n+LINE 2\n" in shown
    two_hunks("undo", "--hunk", first, "--dry-run").went_well()
    assert "LINE 2" in (two_hunks.cwd / "a.txt").read_text()
    # A line that a person typed meanwhile stays, and the ids are the same.
    typed = (two_hunks.cwd / "a.txt").read_text().replace("line 5", "mine")
    (two_hunks.cwd / "a.txt").write_text(typed)
    done = two_hunks("undo", "--hunk", first[:8]).went_well()
    assert "to take this back: substrate" in done.text
    expected = OLD.replace("line 5", "mine").replace("line 8", "LINE 8")
    assert (two_hunks.cwd / "a.txt").read_text() == expected
    assert (two_hunks.cwd / "new.txt").exists()
    assert hunks(two_hunks, "@")[:2] == [first, last], "what the command did has not changed"


def test_bytes_that_are_not_utf_8_are_shown_exactly(two_hunks: Program) -> None:
    two_hunks.sh(r"printf 'caf\351\n' >> a.txt")
    [hunk] = two_hunks.json("diff", "--hunks")["hunks"]
    assert (hunk["old"], b64decode(hunk["new_b64"])) == ([], b"caf\xe9\n")
    two_hunks("undo", "--hunk", hunk["id"]).went_well()
    assert b"caf" not in (two_hunks.cwd / "a.txt").read_bytes()


def test_the_rest_is_undone_afterwards(two_hunks: Program) -> None:
    first, _, new = hunks(two_hunks)
    assert f"{new}  new.txt\n@@ -1,0 +1,1 @@\n+new\n" in two_hunks("diff", "--hunks").text
    two_hunks("undo", "--hunk", first, "--hunk", new).went_well()
    entries = two_hunks.json("log")["commands"]
    command = entries[1]["command_id"]
    two_hunks("undo", command, "--hunk", new).is_clear(5, "already taken back")
    assert two_hunks.json("log")["commands"] == entries
    assert not (two_hunks.cwd / "new.txt").exists()
    two_hunks("undo").went_well()
    assert (two_hunks.cwd / "a.txt").read_text() == OLD


@pytest.mark.needs("linux")
def test_asked_one_by_one_on_a_terminal(two_hunks: Program) -> None:
    shown = two_hunks.on_a_terminal(80, "undo", "-p", typed=b"?\nn\ny\nq\n")
    assert "y - take this hunk back" in shown
    assert sum("Take this hunk back [y,n,e,a,d,q,?]?" in line for line in shown) == 3
    assert (two_hunks.cwd / "a.txt").read_text() == OLD.replace("line 2", "LINE 2")
    assert two_hunks.on_a_terminal(80, "undo", "-p", typed=b"q\n")[-1].startswith("nothing was")


@pytest.mark.needs("linux")
def test_a_hunk_is_edited(two_hunks: Program, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\nprintf "third way\\n" > "$1"; echo "$1" > {tmp_path}/place\n')
    editor.chmod(0o755)
    two_hunks.env["EDITOR"] = str(editor)
    two_hunks.env["VISUAL"] = ""
    two_hunks.on_a_terminal(80, "undo", "-p", typed=b"e\nd\nn\n")
    expected = OLD.replace("line 2", "third way").replace("line 8", "LINE 8")
    assert (two_hunks.cwd / "a.txt").read_text() == expected
    # Every command in a world may write to the temporary directory.
    place = Path((tmp_path / "place").read_text().strip())
    assert (
        place.parents[2] / "scratch" == place.parents[1] and place.parents[2].name == ".substrate"
    )
    editor.write_text("#!/bin/sh\nexit 1\n")
    before = (two_hunks.cwd / "a.txt").read_bytes()
    two_hunks.on_a_terminal(80, "undo", "@", "-p", typed=b"e\n", status=5)
    assert (two_hunks.cwd / "a.txt").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["undo", "-p"], 2, "there is none"),
        (["undo", "--hunk", "h-nosuch"], 4, "is no hunk of this change"),
        (["undo", "--hunk", "h-"], 4, "matches several hunks"),
        (["undo", "--hunk", "h-1", "--with-git"], 2, "--with-git does not go with hunks"),
        (["undo", "--hunk", "h-1", "-p"], 2, "cannot be combined"),
    ],
)
def test_wrong_words(two_hunks: Program, words: list[str], status: int, said: str) -> None:
    two_hunks(*words).is_clear(status, said)
