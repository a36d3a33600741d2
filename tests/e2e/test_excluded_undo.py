"""Paths that history leaves out: named in log, show and fs_diff, and taken back by undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    (root / "node_modules/lib").mkdir(parents=True)
    home.mkdir()
    (root / "node_modules/lib/index.js").write_text("old\n")
    (root / "node_modules/other.js").write_text("other\n")
    (root / "source.txt").write_text("source\n")
    cli = Cli(root, home)
    cli.ok("-c", "true")
    return cli


def modules(cli: Cli) -> dict[str, str]:
    top = cli.workspace / "node_modules"
    return {
        str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()
    }


OLD = {"lib/index.js": "old\n", "other.js": "other\n"}


def fs_diff(cli: Cli) -> dict[str, Any]:
    line = (cli.home / ".substrate/trace.jsonl").read_text().splitlines()[-1]
    found: dict[str, Any] = json.loads(line)["fs_diff"]
    root = f"{cli.workspace}/"
    return {
        name: [path.removeprefix(root) for path in value] if isinstance(value, list) else value
        for name, value in found.items()
    }


def test_a_removed_directory_comes_back(cli: Cli) -> None:
    cli.ok("-c", "rm -rf node_modules")
    assert not (cli.workspace / "node_modules").exists()
    names = ["node_modules/lib/index.js", "node_modules/other.js"]
    assert fs_diff(cli)["deletes"] == names
    assert fs_diff(cli)["excluded"] == names
    assert "only excluded: node_modules" in cli.ok("log")
    assert "node_modules  (excluded)" in cli.ok("show")
    assert json.loads(cli.ok("show", "--json"))["excluded"] == ["node_modules"]
    assert "bring back node_modules" in cli.ok("undo", "--dry-run")
    assert not (cli.workspace / "node_modules").exists()
    assert "restored  node_modules" in cli.ok("undo")
    assert modules(cli) == OLD


def test_undo_and_redo_alternate(cli: Cli) -> None:
    cli.ok("-c", "rm -rf node_modules; echo changed > source.txt")
    for _ in range(3):
        cli.ok("undo")
        assert modules(cli) == OLD
        assert (cli.workspace / "source.txt").read_text() == "source\n"
        cli.ok("redo")
        assert not (cli.workspace / "node_modules").exists()
        assert (cli.workspace / "source.txt").read_text() == "changed\n"


def test_a_return_that_replaced_nothing_can_be_taken_back(cli: Cli) -> None:
    cli.ok("-c", "rm -rf node_modules")
    answer = json.loads(cli.ok("undo", "--json"))
    assert modules(cli) == OLD
    cli.ok(*answer["recover_with"].split()[1:])
    assert not (cli.workspace / "node_modules").exists()


def test_a_file_changed_in_place_comes_back_and_the_present_one_is_kept(cli: Cli) -> None:
    cli.ok("-c", "echo new >> node_modules/lib/index.js; echo made > node_modules/made.js")
    assert fs_diff(cli)["mods"] == ["node_modules/lib/index.js"]
    assert fs_diff(cli)["writes"] == ["node_modules/made.js"]
    answer = json.loads(cli.ok("undo", "--json"))
    assert answer["restored"] == ["node_modules/lib/index.js"]
    assert answer["deleted"] == ["node_modules/made.js"]
    assert modules(cli) == OLD
    cli.ok(*answer["recover_with"].split()[1:])
    assert modules(cli) == {**OLD, "lib/index.js": "old\nnew\n", "made.js": "made\n"}


def test_a_touch_changes_nothing(cli: Cli) -> None:
    cli.ok("-c", "touch node_modules/other.js")
    assert "excluded" not in fs_diff(cli)
    assert cli("undo").returncode == 4


def test_a_later_change_stays_unless_asked_for(cli: Cli) -> None:
    cli.ok("-c", "echo new > node_modules/other.js")
    (cli.workspace / "node_modules/other.js").write_text("mine\n")
    refused = cli("undo")
    assert refused.returncode != 0 and b"changed since" in refused.stderr
    assert modules(cli)["other.js"] == "mine\n"
    answer = json.loads(cli.ok("undo", "--take", "theirs", "--json"))
    assert modules(cli) == OLD
    cli.ok(*answer["recover_with"].split()[1:])
    assert modules(cli)["other.js"] == "mine\n"


def test_a_cache_that_changed_since_does_not_stop_the_undo_of_a_source_file(cli: Cli) -> None:
    cli.ok("-c", "echo changed > source.txt; echo 1 > node_modules/other.js")
    (cli.workspace / "node_modules/other.js").write_text("2\n")
    done = cli("undo")
    assert done.returncode == 0, done.stderr
    assert b"node_modules/other.js stays as it is" in done.stderr
    assert (cli.workspace / "source.txt").read_text() == "source\n"
    assert modules(cli)["other.js"] == "2\n"


def test_one_path_of_it(cli: Cli) -> None:
    cli.ok("-c", "echo 1 > node_modules/other.js; echo 1 > node_modules/lib/index.js")
    cli.ok("undo", "--path", "node_modules/lib")
    assert modules(cli) == {**OLD, "other.js": "1\n"}
    assert cli("undo", "@", "--path", "source.txt").returncode == 4


@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_rollback_takes_back_several(cli: Cli, exact: tuple[str, ...]) -> None:
    cli.ok("checkpoint")
    cli.ok("-c", "echo 1 > node_modules/other.js")
    cli.ok("-c", "echo 2 > node_modules/other.js")
    cli.ok("-c", "rm -rf node_modules")
    cli.ok("-c", "mkdir node_modules; echo 3 > node_modules/other.js")
    cli.ok("undo")
    cli.ok("rollback", "--checkpoint", "1", *exact)
    assert modules(cli) == OLD
    cli.ok("redo")
    assert not (cli.workspace / "node_modules").exists()


def test_an_exact_rollback_says_what_the_trash_no_longer_has(cli: Cli) -> None:
    cli.ok("checkpoint")
    cli.ok("-c", "echo changed > source.txt; rm -rf node_modules")
    [item] = cli.workspace.glob(".substrate-git/trash/*/*")
    item.rename(cli.home / "gone")
    done = cli("rollback", "--checkpoint", "1", "--exact")
    assert done.returncode == 1
    assert b"node_modules: its old state is no longer in the trash" in done.stdout
    assert (cli.workspace / "source.txt").read_text() == "source\n"


def expire(cli: Cli) -> None:
    [item] = cli.workspace.glob(".substrate-git/trash/*/*")
    item.rename(cli.home / "gone")


GONE = "node_modules cannot be brought back: its old state is no longer in the trash"


def test_an_undo_of_what_expired_alone_is_refused(cli: Cli) -> None:
    cli.ok("-c", "rm -rf node_modules")
    expire(cli)
    assert GONE in cli.ok("undo", "--dry-run")
    done = cli("undo")
    assert done.returncode == 5
    assert b"node_modules: its old state is no longer in the trash" in done.stderr
    assert b"--take" not in done.stderr, "no choice brings it back"


@pytest.mark.parametrize("also", ["echo changed > source.txt", "echo x > node_modules"])
def test_an_undo_names_what_expired(cli: Cli, also: str) -> None:
    cli.ok("-c", f"rm -rf node_modules; {also}")
    expire(cli)
    assert GONE in cli.ok("undo", "--dry-run")
    done = cli("undo")
    assert done.returncode == 0
    assert GONE.encode() in done.stderr
    assert not (cli.workspace / "node_modules").exists()
    assert (cli.workspace / "source.txt").read_text() == "source\n"


def test_recover_sees_the_trash(cli: Cli) -> None:
    cli.ok("-c", "rm -rf node_modules")
    [one] = json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    assert (one["source"], one["paths"]) == ("trash", ["node_modules"])
    name = one["name"]
    assert "node_modules  (in the trash)" in cli.ok("recover", "show", name)
    assert cli.ok("recover", "show", name, "node_modules/lib/index.js") == "old\n"
    assert cli("recover", "show", name, "node_modules/absent.js").returncode == 4
    [match] = json.loads(cli.ok("recover", "search", "oth.r", "--regex", "--json"))["matches"]
    assert (match["path"], match["snapshots"]) == ("node_modules/other.js", [name])
    cli.ok("recover", "restore", name, "--to", "copy", "node_modules/lib")
    copied = cli.workspace / "copy/node_modules"
    assert [path.name for path in copied.rglob("*")] == ["lib", "index.js"]
    assert "bring back node_modules" in cli.ok("recover", "restore", name, "--dry-run")
    (cli.workspace / "node_modules").mkdir()
    cli.ok("recover", "restore", name, "node_modules/other.js")
    assert modules(cli) == {"other.js": "other\n"}
    cli.ok("recover", "restore", name)
    assert modules(cli) == {"lib/index.js": "old\n"}, "the other file is no longer in the trash"


def test_recover_restore_keeps_what_it_replaces(cli: Cli) -> None:
    cli.ok("-c", "echo new > node_modules/other.js")
    [one] = json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    answer = json.loads(cli.ok("recover", "restore", one["name"], "--json"))
    assert modules(cli) == OLD
    cli.ok(*answer["recover_with"].split()[1:])
    assert modules(cli)["other.js"] == "new\n"


def test_routine_files_of_git_are_not_listed(cli: Cli) -> None:
    cli.ok(
        "-c", "git init -q && git add source.txt && git commit -qm 1 && git commit -qm 2 --amend"
    )
    cli.ok("-c", "git commit -qm 3 --amend")
    assert cli.ok("recover", "list") == "no snapshots\n"


DAMAGE = {
    "emptied": b"",
    "truncated": b'{"path": "node_modules", "path_b64": "bm9k',
    "no object": b"[1]",
    "another kind": b'{"path_b64": "bm9kZV9tb2R1bGVz", "kind": "file", "size_bytes": 1,'
    b' "when_ns": 1, "reason": ""}',
    "outside": b'{"path_b64": "Li4vLi4vZXZpbA==", "kind": "directory", "size_bytes": null,'
    b' "when_ns": 1, "reason": ""}',
    "into the store": b'{"path_b64": "LnN1YnN0cmF0ZS1naXQvbG9jaw==", "kind": "directory",'
    b' "size_bytes": null, "when_ns": 1, "reason": ""}',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_costs_only_itself(cli: Cli, damage: bytes) -> None:
    (cli.workspace / "dist").mkdir()
    (cli.workspace / "dist/built").write_text("built\n")
    cli.ok("-c", "rm -rf node_modules dist; echo changed > source.txt")
    records = list(cli.workspace.glob(".substrate-git/trash/*/*/entry.json"))
    [record] = [one for one in records if json.loads(one.read_text())["path"] == "node_modules"]
    record.write_bytes(damage)
    found = cli("fsck")
    assert found.returncode == 6 and str(record.parent / "item").encode() in found.stdout
    done = cli("undo")
    assert done.returncode == 0, done.stderr
    assert b"node_modules stays as it is: the record of its old state" in done.stderr
    assert (cli.workspace / "source.txt").read_text() == "source\n"
    assert (cli.workspace / "dist/built").read_text() == "built\n"
    assert "nothing is lost" in cli.ok("fsck", "--repair")
    assert cli("fsck").returncode == 0
    [one] = [
        one for one in json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
        if one["source"] == "trash"
    ]  # fmt: skip
    assert one["paths"] == ["node_modules"]
    cli.ok("recover", "restore", one["name"])
    assert modules(cli) == OLD


def test_an_excluded_file_goes_back_and_forth(tmp_path: Path) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    (root / "dist").mkdir(parents=True)
    home.mkdir()
    (root / "dist/app.js").write_text("old")
    cli = Cli(root, home)
    cli.ok("-c", "printf new > dist/app.js")
    for _ in range(3):
        cli.ok("undo")
        assert (root / "dist/app.js").read_text() == "old"
        cli.ok("redo")
        assert (root / "dist/app.js").read_text() == "new"


@pytest.mark.parametrize("new", ["echo x > node_modules", "ln -s source.txt node_modules"])
def test_a_file_or_link_in_the_place_of_a_directory(cli: Cli, new: str) -> None:
    top = cli.workspace / "node_modules"
    cli.ok("-c", f"rm -rf node_modules; {new}")
    assert top.is_symlink() or top.read_text() == "x\n"
    for _ in range(2):
        cli.ok("undo")
        assert modules(cli) == OLD
        cli.ok("redo")
        assert top.is_symlink() or top.read_text() == "x\n"
    cli.ok("fsck")


@pytest.mark.parametrize("old", ["echo x > node_modules", "ln -s source.txt node_modules"])
def test_a_directory_in_the_place_of_a_file_or_link(cli: Cli, old: str) -> None:
    top = cli.workspace / "node_modules"
    cli.ok("-c", f"rm -rf node_modules; {old}")
    cli.ok("-c", "rm node_modules; mkdir node_modules; echo new > node_modules/new.js")
    for _ in range(2):
        assert modules(cli) == {"new.js": "new\n"}
        cli.ok("undo")
        assert top.is_symlink() or top.read_text() == "x\n"
        cli.ok("redo")
    cli.ok("undo")
    cli.ok("undo")
    assert modules(cli) == OLD
    cli.ok("fsck")
