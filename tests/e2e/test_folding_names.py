"""A file system on which `a.txt` and `A.TXT` are one file: no rename loses a file."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT
from substrate.model.paths import rel_path
from substrate.workspace.apply.plan import Op, Plan
from tests.contract.program import Program
from tests.mounts import mounted_exfat
from tests.unit.workspace.applying import Ground

pytestmark = pytest.mark.needs("exfat")

BEFORE = {"a.txt": "one\n", "readme.md": "two\n", **{f"docs/{n}": f"{n}\n" for n in range(10)}}
RENAMES = {
    "mv a.txt A.TXT": ("a.txt", "A.TXT"),
    "git mv readme.md README.md": ("readme.md", "README.md"),
    "mv docs between && mv between Docs": ("docs/", "Docs/"),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_exfat(tmp_path) as top:
        yield top


@pytest.fixture
def substrate(disk: Path, tmp_path: Path) -> Program:
    project = disk / "project"
    (project / "docs").mkdir(parents=True)
    for name, text in BEFORE.items():
        (project / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "safe.directory=*", *words], cwd=project, check=True)
    return Program(project, {"SUBSTRATE_HOME": str(tmp_path / "home")})


def files(root: Path) -> dict[str, str]:
    """By the names that the directories list."""
    return {
        str(path.relative_to(root)): path.read_text()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).parts[0].startswith(".")
    }


def is_settled(substrate: Program) -> None:
    assert "changed outside" not in substrate("status").went_well().text
    assert substrate("fsck").went_well().text == "the history is sound\n"


@pytest.mark.parametrize("how", [(), ("--no-world",)], ids=["by default", "no world"])
@pytest.mark.parametrize("line", RENAMES)
def test_a_rename_to_another_case_and_back_and_forth(
    substrate: Program, line: str, how: tuple[str, ...]
) -> None:
    old, new = RENAMES[line]
    after = {name.replace(old, new): text for name, text in BEFORE.items()}
    assert after.keys() != BEFORE.keys()
    substrate(*how, "-c", line).went_well()
    assert files(substrate.cwd) == after
    for verb, expected in (("undo", BEFORE), ("redo", after), ("undo", BEFORE)):
        substrate(verb).went_well()
        assert files(substrate.cwd) == expected
        is_settled(substrate)


def test_command_after_command_works(substrate: Program) -> None:
    for number in range(3):
        substrate.sh(f"echo {number} > new{number}; mv new{number} NEW{number}")
    made = {f"NEW{number}": f"{number}\n" for number in range(3)}
    assert files(substrate.cwd) == BEFORE | made
    is_settled(substrate)
    substrate("undo").went_well()
    del made["NEW2"]
    assert files(substrate.cwd) == BEFORE | made


def test_other_content_under_another_case(substrate: Program) -> None:
    substrate.sh("mv a.txt A.TXT; echo other > A.TXT")
    after = {"A.TXT": "other\n"} | {name: BEFORE[name] for name in BEFORE if name != "a.txt"}
    assert files(substrate.cwd) == after
    substrate("undo").went_well()
    assert files(substrate.cwd) == BEFORE
    substrate("redo").went_well()
    assert files(substrate.cwd) == after


def test_the_reason_is_reported_and_a_required_world_is_refused(substrate: Program) -> None:
    assert "direct: names fold here" in substrate("status").went_well().text
    substrate("--world", "-c", "mv a.txt A.TXT").is_clear(125, "names fold here", "--no-world")
    assert files(substrate.cwd) == BEFORE
    substrate.sh("mv a.txt A.TXT")
    isolation = substrate.json("show", "@")["isolation"]
    assert isolation["strategy"] == "direct"
    assert "names fold here" in isolation["reason"]
    substrate("--world", "-c", "rm A.TXT").is_clear(125, "names fold here", "--no-world")
    assert "A.TXT" in files(substrate.cwd)


def test_a_directory_that_folds_below_one_that_does_not(disk: Path, tmp_path: Path) -> None:
    """ext4 has the flag for each directory; here the scratch directory's file system has none."""
    ground = Ground(disk)
    ground.scratch = tmp_path / "scratch" / "op-1"
    ground.where(b"A.TXT").write_bytes(b"work")
    node = ground.at(b"A.TXT")
    ground.blobs.add(b"work")
    report = ground.apply(
        Op(rel_path(b"A.TXT"), node, ABSENT), Op(rel_path(b"a.txt"), ABSENT, node)
    )
    assert report.complete
    assert ground.listing().keys() == {b"a.txt"}


@pytest.mark.parametrize("got_to", ["removed", "created"])
def test_an_interrupted_rename_is_finished(disk: Path, got_to: str) -> None:
    """The plan removes `A.TXT` and creates `a.txt`; the machine stopped after one or both."""
    ground = Ground(disk)
    ground.where(b"A.TXT").write_bytes(b"work")
    node = ground.at(b"A.TXT")
    plan = Plan.of([Op(rel_path(b"A.TXT"), node, ABSENT), Op(rel_path(b"a.txt"), ABSENT, node)])
    assert [op.path for op in plan.ops] == [b"A.TXT", b"a.txt"]
    ground.scratch.mkdir(parents=True)
    ground.where(b"A.TXT").rename(ground.scratch / "0.old")
    if got_to == "created":
        ground.where(b"a.txt").write_bytes(b"work")
    else:
        (ground.scratch / "1").write_bytes(b"work")
    assert ground.applier().resume(plan).complete
    assert {name: content for name, (_, _, content) in ground.listing().items()} == {
        b"a.txt": b"work"
    }
