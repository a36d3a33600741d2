"""The verb as a user runs it: real processes, real exit codes, printed commands that work."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli
from tests.unit.rewrite.scene import Scene, lines
from tests.unit.rewrite.test_everything_survives import full_of_work


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "project")


@pytest.fixture
def cli(scene: Scene, tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    return Cli(scene.root, home)


def rewrite(cli: Cli, *words: str, status: int = 0) -> dict[str, Any]:
    done = cli("rewrite", "--base", "base", "--target", "target", *words, "--json")
    assert done.returncode == status, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def colliding(scene: Scene) -> None:
    scene.write("a", lines())
    scene.write("b", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.write("b", lines("1=target"))
    scene.write("c", "the target's\n")
    scene.target()
    scene.write("a", lines("1=mine"))
    scene.git("add", "a")
    scene.write("a", lines("1=mine", "20=later"))
    scene.write("untracked", "u\n")
    scene.git("status")


def test_replay_failure_triggers_rollback_and_preserved_recoverability_surfaces(
    scene: Scene, cli: Cli
) -> None:
    """The seed's second required test."""
    colliding(scene)
    tree, index = scene.tree(), scene.index()
    answer = rewrite(cli, "--policy", "strict", status=1)
    assert answer["outcome"] == "conflict" and answer["changed"] is False
    assert scene.tree() == tree and scene.index() == index
    ref = answer["recovery_ref"]
    assert scene.git("rev-parse", ref).decode().strip() == answer["recovery_oid"]
    assert scene.in_snapshot(ref, "a").decode() == lines("1=mine", "20=later")
    assert Path(answer["artifacts"], "meta.json").is_file()
    assert cli(*shlex.split(answer["recover_with"])[1:]).returncode == 0
    assert scene.tree() == tree


def test_emitted_recovery_commands_execute_successfully(scene: Scene, cli: Cli) -> None:
    """The seed's fourth required test: after a conflict was left behind, and after success."""
    colliding(scene)
    tree, entries, head = scene.tree(), scene.entries(), scene.head()
    answer = rewrite(cli, status=1)
    assert answer["outcome"] == "conflict" and scene.short()["a"] == "UU"
    assert cli(*shlex.split(answer["recover_with"])[1:]).returncode == 0
    assert (scene.tree(), scene.entries(), scene.head()) == (tree, entries, head)
    meta = json.loads(Path(answer["artifacts"], "meta.json").read_text())
    assert len(meta["recovery_commands"]) == 4
    for command in meta["recovery_commands"]:  # as written, by a shell
        done = cli.spawn(["sh", "-c", command])
        assert done.returncode == 0, (command, done.stderr.decode())


@pytest.mark.parametrize("name", ["plain", "--with an option's name", "-", "a b/:c", "$HOME;x"])
def test_each_recovery_command_runs_as_written_from_any_directory(
    scene: Scene, cli: Cli, tmp_path: Path, name: str
) -> None:
    scene.write("a", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    (scene.root / name).parent.mkdir(exist_ok=True)
    (scene.root / name).write_text("mine\n")
    answer = rewrite(cli, "--workspace", "it's")
    meta = json.loads(Path(answer["artifacts"], "meta.json").read_text())
    whole, show, one, printed = meta["recovery_commands"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (scene.root / name).unlink()
    for command in (show, one, printed, whole):
        done = cli.spawn(["sh", "-c", f"cd {elsewhere} && {command}"])
        assert done.returncode == 0, (command, done.stderr.decode())
        if command == one:
            assert (scene.root / name).read_text() == "mine\n"
        if command == printed:
            assert done.stdout == b"mine\n"
    assert (scene.root / "a").read_text() == "1\n"


@pytest.mark.needs("byte-names")
def test_a_snapshot_without_a_name_to_type_has_four_commands_too(
    scene: Scene, cli: Cli, tmp_path: Path
) -> None:
    scene.write("a", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    Path(os.fsdecode(os.fsencode(scene.root) + b"/\xff")).write_text("mine\n")
    answer = rewrite(cli)
    meta = json.loads(Path(answer["artifacts"], "meta.json").read_text())
    assert len(meta["recovery_commands"]) == 4
    for command in reversed(meta["recovery_commands"]):
        done = cli.spawn(["sh", "-c", f"cd {tmp_path} && {command}"])
        assert done.returncode == 0, (command, done.stderr.decode())


@pytest.mark.needs("byte-names")
def test_everything_comes_back_by_the_printed_command(scene: Scene, cli: Cli) -> None:
    full_of_work(scene)
    before = (scene.tree(), scene.status(), scene.entries(), scene.head(), scene.refs())
    answer = rewrite(cli)
    assert answer["outcome"] == "done" and answer["head"] == "refs/heads/target"
    done = cli(*shlex.split(answer["recover_with"])[1:])
    assert done.returncode == 0, done.stderr.decode()
    assert (scene.tree(), scene.status(), scene.entries(), scene.head(), scene.refs()) == before


def test_without_work_the_printed_command_leads_back(scene: Scene, cli: Cli) -> None:
    scene.write("a", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    answer = rewrite(cli)
    assert answer["recovery_ref"] is None
    assert cli(*shlex.split(answer["recover_with"])[1:]).returncode == 0
    assert scene.read("a") == b"1\n" and scene.head() == "ref: refs/heads/main"


def test_conflicts_after_the_merge_was_committed_are_no_failure(scene: Scene, cli: Cli) -> None:
    """Seed section 5: HEAD is the target already; what is left is a state, not an error."""
    colliding(scene)
    scene.git("update-ref", "refs/heads/main", "target")
    done = cli("rewrite", "--base", "base", "--target", "main", "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "conflict" and scene.short()["a"] == "UU"
    assert scene.short()["untracked"] == "??" and len(scene.short()) == 2


def test_the_words_for_people_say_everything(scene: Scene, cli: Cli) -> None:
    colliding(scene)
    done = cli("rewrite", "--base", "base", "--target", "target")
    text = done.stdout.decode()
    assert done.returncode == 1
    [ref] = scene.snapshots()
    assert ref in text and scene.git("rev-parse", ref).decode().strip() in text
    assert ".manifold/artifacts/rewrite/default/" in text
    assert f"substrate recover restore {ref.removeprefix('refs/manifold/recovery/')}" in text
    assert "conflict  a: you and the target changed the same or adjacent lines" in text


def test_deferred_files_come_back_by_the_printed_command(scene: Scene, cli: Cli) -> None:
    scene.write("a", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    scene.write("loose/u", "mine\n", mode=0o640)
    answer = rewrite(cli, "--defer-untracked")
    assert not scene.exists("loose")
    name = answer["recovery_ref"].removeprefix("refs/manifold/recovery/")
    assert cli("recover", "restore", name, "loose").returncode == 0
    assert scene.tree()[b"loose/u"] == ("file", 0o640, b"mine\n")
    assert scene.read("a") == b"2\n"


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--base", "--output=x", "--target", "main"), 2),
        (("--base=--output=x", "--target", "main"), 4),
        (("--base", "nosuch", "--target", "main"), 4),
        (("--base", "main", "--target", "main", "--workspace", "a/b"), 2),
        (("--base", "main", "--target", "main", "--policy", "never"), 2),
        (("--base", "main"), 2),
    ],
)
def test_exit_codes(scene: Scene, cli: Cli, words: tuple[str, ...], status: int) -> None:
    scene.write("a", "1\n")
    scene.base()
    assert cli("rewrite", *words).returncode == status
    assert not (scene.root / "x").exists()


def test_another_directory_and_another_name(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    colliding(scene)
    elsewhere = Cli(tmp_path, cli.home)
    done = elsewhere(
        "rewrite", "--base", "base", "--target", "target", "--repo", str(scene.root),
        "--workspace", "alice", "--json",
    )  # fmt: skip
    assert done.returncode == 1
    assert "/alice/" in json.loads(done.stdout)["recovery_ref"]


def test_beside_a_history(scene: Scene, cli: Cli) -> None:
    """History's undo and a rewrite take turns; what a rewrite did is an outside edit."""
    scene.write("a", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.target()
    cli.ok("-c", "echo agent > agent")
    rewrite(cli)
    cli.ok("undo")
    assert not scene.exists("agent")
    assert scene.read("a").decode() == lines("1=target")
    sources = {
        one["source"] for one in json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    }
    assert sources == {"history", "rewrite"}


def test_it_works_from_a_directory_below(scene: Scene, cli: Cli) -> None:
    scene.write("d/a", "1\n")
    scene.base()
    scene.write("d/a", "2\n")
    scene.target()
    os.makedirs(scene.path("d/e"))
    below = Cli(scene.root / "d" / "e", cli.home)
    assert below("rewrite", "--base", "base", "--target", "target").returncode == 0
    assert scene.read("d/a") == b"2\n" and scene.exists("d/e")
