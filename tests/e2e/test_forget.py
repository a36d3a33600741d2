"""`substrate forget`: the content is gone from every file we keep, and every id still resolves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli, tree

SECRET = "hunter2-xyzzy-token"
CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (root / "plain").write_text("nothing here\n")
    (root / ".env").write_text(f"TOKEN={SECRET}\n")
    return Cli(root, home)


def ctx(cli: Cli, *words: str) -> str:
    done = subprocess.run(
        [*CTX, *words], cwd=cli.workspace, env=cli.environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def forgotten(cli: Cli, *words: str, status: int = 0) -> dict[str, Any]:
    done = cli("forget", *words, "--json")
    assert done.returncode == status, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def entries(cli: Cli) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli.ok("log", "--json"))["commands"]
    return found


def holders(cli: Cli, text: str = SECRET) -> list[str]:
    """Every file of ours, and every object of history, that holds `text`."""
    out = []
    for top in (cli.workspace, cli.home):
        for directory, _, names in os.walk(top):
            for name in names:
                path = Path(directory, name)
                if not path.is_symlink() and text.encode() in path.read_bytes():
                    out.append(str(path))
    git = ["git", f"--git-dir={cli.workspace / '.substrate-git' / '.git'}"]
    listed = subprocess.run(
        [*git, "cat-file", "--batch-all-objects", "--batch"], capture_output=True, check=True
    )
    return [*out, "an object of history"] if text.encode() in listed.stdout else out


def work(cli: Cli) -> None:
    """Put the secret everywhere: files, output, command text, trash, a pack, a recovery ref."""
    cli.ok("-c", f"echo key={SECRET} > conf; echo {SECRET}")
    cli.ok("-c", f"mkdir -p node_modules/x; echo {SECRET} > node_modules/x/f")
    cli.ok("-c", "rm -rf node_modules")
    ctx(cli, "init")
    ctx(cli, "pack", "--session", "@")
    cli.ok("-c", f"sed -i s/{SECRET}/x/ conf .env")
    cli.ok("undo")
    cli.ok("redo")


def test_a_secret_is_gone_from_every_place_and_ids_resolve(cli: Cli) -> None:
    work(cli)
    old_pack = json.loads(ctx(cli, "log", "--json"))["packs"][0]["hash"]
    before, files = entries(cli), tree(cli.workspace)
    commits = [one["substrate_git_commit"] for one in before if one["substrate_git_commit"]]
    assert holders(cli)
    answer = forgotten(cli, "--secret", SECRET, "--yes")
    assert answer["entries"] and answer["command_texts"] and answer["trash"]
    assert answer["outputs"] and answer["spans"] and old_pack in answer["packs"]
    assert holders(cli) == []
    assert {path: seen for path, seen in tree(cli.workspace).items() if path[:4] != b".ctx"} == {
        path: seen for path, seen in files.items() if path[:4] != b".ctx"
    }
    assert [one["command_id"] for one in entries(cli)] == [one["command_id"] for one in before]
    for one in (*(entry["command_id"] for entry in before), *commits):
        cli.ok("show", one)
    assert "sound" in cli.ok("fsck") and "sound" in ctx(cli, "fsck")
    ctx(cli, "show", old_pack)
    ctx(cli, "show", old_pack[7:15])
    assert forgotten(cli, "--secret", SECRET, "--yes")["entries"] == {}


def test_what_is_forgotten_is_marked_and_undo_still_works(cli: Cli) -> None:
    work(cli)
    forgotten(cli, "--secret", SECRET, "--yes")
    shown = cli.ok("show", next(e for e in entries(cli) if "sed" in e["command"])["command_id"])
    assert "forgotten" in shown and ".env" in shown
    cli.ok("undo")
    assert (cli.workspace / "conf").read_text() == "key=[forgotten]\n"


def test_a_path_goes_from_all_states(cli: Cli) -> None:
    cli.ok("-c", "echo two >> .env")
    cli.ok("-c", "echo more >> plain; rm .env")
    answer = forgotten(cli, ".env", "--yes")
    assert len(answer["entries"]) == 3  # the baseline, the edit, the removal
    assert holders(cli) == []
    assert "sound" in cli.ok("fsck")
    cli.ok("undo")
    assert not (cli.workspace / ".env").exists()
    assert (cli.workspace / "plain").read_text() == "nothing here\n"


def test_what_the_tree_still_has_is_refused_with_the_way_out(cli: Cli) -> None:
    cli.ok("-c", "true")
    done = cli("forget", ".env", "--yes")
    assert done.returncode == 5 and b">> .substrateignore" in done.stderr
    done = cli("forget", "--secret", SECRET, "--yes")
    assert done.returncode == 5 and b".env" in done.stderr
    with (cli.workspace / ".substrateignore").open("a") as file:
        file.write("/.env\n")
    forgotten(cli, ".env", "--yes")
    assert (cli.workspace / ".env").read_text() == f"TOKEN={SECRET}\n"
    assert holders(cli) == [str(cli.workspace / ".env")]


def test_a_dry_run_changes_no_byte(cli: Cli) -> None:
    work(cli)
    store, home = tree(cli.workspace / ".substrate-git"), tree(cli.home)
    answer = forgotten(cli, "--secret", SECRET, "--dry-run")
    assert answer["dry_run"] and answer["entries"]

    def without_sqlite(found: dict[bytes, Any]) -> dict[bytes, Any]:
        return {k: v for k, v in found.items() if not k.endswith((b"-shm", b"-wal", b"lock"))}

    assert without_sqlite(tree(cli.workspace / ".substrate-git")) == without_sqlite(store)
    assert without_sqlite(tree(cli.home)) == without_sqlite(home)


def test_without_a_confirmation_nothing_happens(cli: Cli) -> None:
    cli.ok("-c", "rm .env")
    done = cli("forget", ".env")
    assert done.returncode == 5 and b"--yes" in done.stderr
    assert holders(cli)


@pytest.mark.parametrize("words", [(), (".env", "--secret", "abcdef"), (".",), ("--secret", "abc")])
def test_calls_that_make_no_sense_are_usage_errors(cli: Cli, words: tuple[str, ...]) -> None:
    cli.ok("-c", "true")
    assert cli("forget", *words, "--yes").returncode == 2


def test_a_held_world_is_in_the_way_and_is_named(cli: Cli) -> None:
    cli.ok("-c", "rm .env")
    cli("run", "--hold", "--", "sh", "-c", f"echo {SECRET} > later")
    done = cli("forget", "--secret", SECRET, "--yes")
    assert done.returncode == 5
    if b"wld_" not in done.stderr:  # no world here: the file itself has it
        assert b"later" in done.stderr


def test_a_secret_that_json_escapes_is_found(cli: Cli) -> None:
    odd = 'quo"te\\slash-ünicode'
    (cli.workspace / "conf").write_text(odd)
    cli.ok("-c", f"printf %s '{odd}'")
    (cli.workspace / "conf").unlink()
    assert forgotten(cli, "--secret", odd, "--yes")["spans"]
    trace = (cli.home / ".substrate" / "trace.jsonl").read_text()
    assert all(odd not in json.loads(line)["command"] for line in trace.splitlines())
    assert holders(cli, odd) == []


def test_a_secret_in_extended_attributes_is_gone_too(cli: Cli) -> None:
    root = cli.workspace
    cli.ok("-c", "true")
    (root / "dist").mkdir()
    for name in ("conf", "dir", "dist/f"):
        path = root / name
        path.mkdir() if name == "dir" else path.write_text(f"x {SECRET if '/' in name else ''}")
        os.setxattr(path, "user.token", f"a {SECRET} b".encode())
    cli.ok("-c", "rm .env; rm -rf dist")
    remove = "import os; [os.removexattr(n, 'user.token') for n in ('conf', 'dir')]"
    cli.ok("-c", f'{sys.executable} -c "{remove}"')
    answer = forgotten(cli, "--secret", SECRET, "--yes")
    assert answer["trash"] and answer["entries"]
    cli.ok("undo")
    cli.ok("undo")
    for name in ("conf", "dir", "dist/f"):
        assert os.getxattr(root / name, "user.token") == b"a [forgotten] b", name
    assert forgotten(cli, "--secret", SECRET, "--dry-run")["entries"] == {}


def test_it_says_where_it_does_not_look(cli: Cli) -> None:
    subprocess.run(["git", "init", "-q", str(cli.workspace)], check=True)
    cli.ok("-c", "rm .env")
    said = cli("forget", "--secret", SECRET, "--dry-run").stderr.decode()
    assert "not searched: compressed files" in said and "your own git repository" in said
