"""No state of the store stops every later command: what cannot be settled is set aside."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from tests.contract.program import Done, Program

pytestmark = pytest.mark.needs("overlay", "root")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("1\n")
    made = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    made.sh("echo 2 > a")
    made.sh("echo b > b")
    return made


def execute(program: Program, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(program.cwd / ".substrate-git/index/history.db")) as ledger:
        ledger.execute(statement, values)
        ledger.commit()


def forge(program: Program, kind: str, payload: str, number: int = 0) -> None:
    values = (f"c-{number:013}", kind, payload, 1, "1", "another boot", 1)
    execute(program, "INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?)", *values)


def work_goes_on(program: Program) -> Done:
    """The next command runs with its own exit status, and what it changed can be undone."""
    failed = program("-c", "echo c > c; exit 3")
    assert failed.status == 3, failed.errors
    assert "Traceback" not in failed.errors
    program.sh("echo d > d")
    program("undo").went_well()
    assert not (program.cwd / "d").exists()
    assert {one: (program.cwd / one).read_text() for one in "abc"} == {
        "a": "2\n", "b": "b\n", "c": "c\n",
    }  # fmt: skip
    return failed


FORGED = {
    "no JSON": "{",
    "not a record": "[1, 2]",
    "nothing": "{}",
    "numbers": json.dumps({"command_id": 1, "world_id": 2, "base": 3, "exact": 4, "entry": 5}),
    "a world that is not there": json.dumps(
        {
            "command_id": "c-1", "span_id": "spn_1", "session_id": "s-1", "agent_id": None,
            "command": "x", "exact": "x", "base": "ab" * 20, "world_id": "wld_1",
            "places": ["/nowhere/wld_1"], "started_ns": 1, "state": "held", "reason": "x",
        }
    ),
}  # fmt: skip


def test_forged_records(program: Program) -> None:
    kinds = ("running", "held", "discarded", "arrive", "apply", "prune", "unheard-of")
    for number, (kind, payload) in enumerate(product(kinds, FORGED.values())):
        forge(program, kind, payload, number)
    for question in ("log", "status", "world", "stats"):
        words = [question, "list"] if question == "world" else [question]
        asked = program(*words).went_well()
        assert "whose record is damaged" in asked.errors, "named, and left alone"
    work_goes_on(program)


def test_it_is_named_and_put_in_the_quarantine(program: Program) -> None:
    forge(program, "arrive", json.dumps({"plan": "nonsense"}))
    said = work_goes_on(program)
    assert "set aside: bringing in what a command changed (c-0000000000000)" in said.errors
    assert "`substrate fsck` shows it" in said.errors
    assert "set aside" not in program.sh("true").errors, "said once"
    found = program("fsck")
    assert found.status == 6
    assert "c-0000000000000" in found.text
    program("fsck", "--repair").went_well()
    kept = program.cwd / ".substrate-git/quarantine/aside-c-0000000000000/intent.json"
    assert json.loads(kept.read_text())["kind"] == "aside:arrive"
    program("fsck").went_well()
    assert len(program.json("log")["commands"]) >= 4, "the history is the same one"


def tip_file(program: Program) -> Path:
    oid = (program.cwd / ".substrate-git/.git/refs/heads/main").read_text().strip()
    return program.cwd / ".substrate-git/.git/objects" / oid[:2] / oid[2:]


def lose_tip(program: Program) -> None:
    tip_file(program).unlink()
    execute(program, "DELETE FROM pending_objects")


def lose_every_object(program: Program) -> None:
    objects = program.cwd / ".substrate-git/.git/objects"
    for path in objects.glob("??"):
        shutil.rmtree(path)
    execute(program, "DELETE FROM pending_objects")


def lose_unsynced_objects(program: Program) -> None:
    """As a disk does that goes without a reboot; the ledger has them still."""
    for path in (program.cwd / ".substrate-git/.git/objects").glob("??/*"):
        path.chmod(0o600)
        path.write_bytes(b"")


def branch_is_a_directory(program: Program) -> None:
    branch = program.cwd / ".substrate-git/.git/refs/heads/main"
    branch.unlink()
    (branch / "x").mkdir(parents=True)


def branch_names_nothing(program: Program) -> None:
    missing = "ab" * 20
    (program.cwd / ".substrate-git/.git/refs/heads/main").write_text(missing + "\n")
    execute(
        program, "UPDATE refs SET oid = ? WHERE name = 'refs/heads/main'", bytes.fromhex(missing)
    )


def no_index(program: Program) -> None:
    shutil.rmtree(program.cwd / ".substrate-git/index")


def no_repository(program: Program) -> None:
    shutil.rmtree(program.cwd / ".substrate-git/.git")


def no_journal(program: Program) -> None:
    shutil.rmtree(program.cwd / ".substrate-git/journal")


def nonsense_in_the_index(program: Program) -> None:
    path = program.cwd / ".substrate-git/index/history.db"
    for name in ("-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
    path.write_bytes(b"nonsense" * 1000)


def lose_the_tree(program: Program, of: str = "") -> None:
    git = ["git", f"--git-dir={program.cwd}/.substrate-git/.git", "rev-parse", f"main:{of}"]
    oid = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    (program.cwd / ".substrate-git/.git/objects" / oid[:2] / oid[2:]).unlink()
    execute(program, "DELETE FROM pending_objects")


DAMAGES = (
    lose_tip, lose_every_object, lose_unsynced_objects, branch_is_a_directory,
    lose_the_tree, branch_names_nothing, no_index, no_repository, no_journal, nonsense_in_the_index,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage(program: Program, damage: Callable[[Program], None]) -> None:
    damage(program)
    work_goes_on(program)
    program("fsck").went_well()


def test_damage_that_only_the_end_of_a_command_meets(program: Program) -> None:
    """Its changes are held: the state that they are based on is lost."""
    program.sh("mkdir sub; echo 1 > sub/file")
    lose_the_tree(program, of="sub")
    done = program("-c", "echo 2 > sub/file; exit 3")
    assert done.status == 3, done.errors
    assert "the history was damaged" in done.errors
    (world,) = program.json("world", "list")["worlds"]
    assert world["world_id"] in done.errors
    program("world", "apply", world["world_id"]).went_well()
    work_goes_on(program)
    program("fsck").went_well()
