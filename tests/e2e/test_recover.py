"""Snapshots of both kinds: listed, shown, searched, brought back, and let go with a tombstone."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli
from tests.unit.rewrite.scene import Scene, lines


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path / "project")
    scene.write("a", lines())
    scene.write("kept", "a needle in a tracked file\n")
    scene.base()
    scene.write("a", lines("1=target"))
    scene.target()
    return scene


@pytest.fixture
def cli(scene: Scene, tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    return Cli(scene.root, home)


def go(cli: Cli, base: str = "base", target: str = "target") -> str:
    answer = json.loads(cli("rewrite", "--base", base, "--target", target, "--json").stdout)
    name: str = answer["recovery_ref"].removeprefix("refs/manifold/recovery/")
    return name


def matches(cli: Cli, *words: str, status: int = 0) -> list[dict[str, Any]]:
    done = cli("recover", "search", *words, "--json")
    assert done.returncode == status, done.stderr.decode()
    found: list[dict[str, Any]] = json.loads(done.stdout)["matches"]
    return found


def test_content_search_finds_known_strings_in_tracked_and_untracked(
    scene: Scene, cli: Cli
) -> None:
    """The seed's fifth required test."""
    scene.write("a", lines("20=edited NEEDLE here"))
    scene.write("untracked", "first\nthe needle\nlast\n")
    scene.write("binary", b"\0needle\0")
    name = go(cli)
    scene.remove("untracked")
    found = {match["path"]: match for match in matches(cli, "needle")}
    assert found.keys() == {"kept", "untracked"}
    assert found["untracked"]["snapshots"] == [name]
    assert found["untracked"]["hits"] == [
        {"line": 2, "text": "the needle", "before": [], "after": []}
    ]
    assert {m["path"] for m in matches(cli, "needle", "-i")} == {"a", "kept", "untracked"}
    assert {m["path"] for m in matches(cli, "needle", "--binary")} == {
        "binary",
        "kept",
        "untracked",
    }
    [around] = matches(cli, "^the n.+le$", "--regex", "--context", "1")
    assert around["hits"][0]["before"] == ["first"] and around["hits"][0]["after"] == ["last"]
    assert matches(cli, "n..dle", status=1) == []
    assert cli("recover", "search", "(", "--regex").returncode == 2
    text = cli.ok("recover", "search", "the needle")
    assert f"{name}:untracked" in text and "2: the needle" in text


def test_a_search_stops_and_whole_words_are_found(scene: Scene, cli: Cli) -> None:
    scene.write("u", "one\ntwone\none two\n" + "many\n" * 150)
    go(cli)
    [word] = matches(cli, "one", "--word")
    assert [hit["line"] for hit in word["hits"]] == [1, 3]
    [first] = matches(cli, "one", "--limit", "2")
    assert [hit["line"] for hit in first["hits"]] == [1, 2]
    cut = cli("recover", "search", "many")
    assert cut.stdout.count(b"many") == 100 and b"stopped after 100 hits" in cut.stderr
    whole = cli("recover", "search", "many", "--limit", "0")
    assert whole.stdout.count(b"many") == 150 and b"stopped" not in whole.stderr
    assert cli("recover", "search", "many", "--limit", "-1").returncode == 2


def test_one_list_of_both_kinds(scene: Scene, cli: Cli) -> None:
    scene.write("u", "12345\n")
    cli.ok("-c", "echo agent > a")
    cli.ok("undo")
    go(cli)
    listed = json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    assert [one["source"] for one in listed] == ["rewrite", "history"]
    assert [one["operation"] for one in listed] == ["rewrite", "undo"]
    assert listed[0]["dirty_files"] == 1 and listed[0]["size_bytes"] >= 6
    assert listed[1]["size_bytes"] == len("agent\n")
    assert len({one["ts"] for one in listed}) == 2
    table = cli.ok("recover", "list")
    assert all(one["name"] in table for one in listed)
    # Both kinds are searched, shown and written out alike.
    assert {m["path"] for m in matches(cli, "agent")} == {"a"}
    assert cli.ok("recover", "show", listed[1]["name"], "a") == "agent\n"


def test_show_and_abbreviations(scene: Scene, cli: Cli) -> None:
    scene.write(b"n\xff", "x\n", mode=0o600)
    name = go(cli)
    assert "n%FF" in cli.ok("recover", "show", name)
    stamp = name.rpartition("/")[2]
    for text in (name, stamp, stamp[:-3], f"refs/manifold/recovery/{name}"):
        assert json.loads(cli.ok("recover", "show", text, "--json"))["name"] == name
    shown = cli("recover", "show", name, "kept", "--json")
    document = json.loads(shown.stdout)
    assert base64.b64decode(document["content_b64"]) == b"a needle in a tracked file\n"
    assert cli("recover", "show", name, "nothing").returncode == 4
    assert cli("recover", "show", "zzz").returncode == 4


def test_restore_into_a_directory(scene: Scene, cli: Cli, tmp_path: Path) -> None:
    scene.write("d/u", "u\n", mode=0o640)
    scene.link("l", "d/u")
    (scene.root / "empty").mkdir()
    name = go(cli)
    before = scene.tree()
    out = tmp_path / "out"
    cli.ok("recover", "restore", name, "--to", str(out))
    assert (out / "a").read_text() == lines()
    assert stat.S_IMODE((out / "d/u").stat().st_mode) == 0o640
    assert (out / "l").is_symlink() and (out / "empty").is_dir()
    assert scene.tree() == before
    assert cli("recover", "restore", name, "--to", str(out)).returncode == 5, "never over something"
    cli.ok("recover", "restore", name, "d", "--to", str(tmp_path / "some"))
    assert sorted(p.name for p in (tmp_path / "some").rglob("*")) == ["d", "u"]
    assert cli("recover", "restore", name, "nothing", "--to", str(tmp_path / "no")).returncode == 4


def test_restore_by_path_takes_its_own_snapshot_first(scene: Scene, cli: Cli) -> None:
    scene.write("a", lines("20=mine"))
    scene.write("u", "old\n")
    name = go(cli)
    scene.write("u", "newer, not kept anywhere\n")
    answer = json.loads(cli.ok("recover", "restore", name, "u", "--json"))
    assert scene.read("u") == b"old\n"
    assert scene.read("a").decode() == lines("1=target", "20=mine"), "only what was named"
    assert scene.in_snapshot(answer["recovery_ref"], "u") == b"newer, not kept anywhere\n"
    words = answer["recover_with"].split()[1:]
    assert cli(*words).returncode == 0
    assert scene.read("u") == b"newer, not kept anywhere\n"


def test_restore_of_everything_leaves_git_alone_unless_asked(scene: Scene, cli: Cli) -> None:
    scene.write("a", lines("20=mine"))
    before = scene.tree()
    name = go(cli)
    head, entries = scene.head(), scene.entries()
    cli.ok("recover", "restore", name)
    assert scene.tree() == before
    assert (scene.head(), scene.entries()) == (head, entries)


def test_restore_refuses_git_when_head_moved_on(scene: Scene, cli: Cli) -> None:
    scene.write("a", lines("20=mine"))
    name = go(cli)
    scene.git("commit", "-qam", "more")
    assert cli("recover", "restore", name, "--with-git").returncode == 5
    assert cli("recover", "restore", name).returncode == 0


def test_a_dry_run_of_restore(scene: Scene, cli: Cli) -> None:
    scene.write("a", lines("20=mine"))
    name = go(cli)
    tree, refs = scene.tree(), scene.snapshots()
    said = cli.ok("recover", "restore", name, "--dry-run")
    assert said == f"restore of {name}  (dry run)\nrestore a\n"
    assert scene.tree() == tree and scene.snapshots() == refs


def test_recovery_pruning_goes_by_capture_time(scene: Scene, cli: Cli) -> None:
    """Not by commit date: the base may be years old, and the snapshot of today is fresh."""
    import subprocess

    env = {"GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z", "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z"}
    import os

    subprocess.run(
        ["git", "commit", "-q", "--allow-empty", "-m", "old"], cwd=scene.root, check=True,
        env={**os.environ, **env},
    )  # fmt: skip
    scene.write("u", "fresh\n")
    name = go(cli, "HEAD", "target")
    assert json.loads(cli.ok("recover", "prune", "--older-than", "1", "--json"))["pruned"] == []
    assert scene.snapshots() == [f"refs/manifold/recovery/{name}"]


def test_prune_leaves_a_tombstone_that_says_what_went(scene: Scene, cli: Cli) -> None:
    scene.write("u", "only here\n")
    name = go(cli)
    scene.remove("u")
    planned = json.loads(cli.ok("recover", "prune", "--older-than", "0", "--dry-run", "--json"))
    assert len(planned["pruned"]) == 1 and len(scene.snapshots()) == 1
    gone = json.loads(cli.ok("recover", "prune", "--older-than", "0", "--json"))["pruned"]
    assert [stone["ref"] for stone in gone] == [f"refs/manifold/recovery/{name}"]
    assert gone[0]["lost"] == ["u"] and gone[0]["lost_count"] == 1
    assert scene.snapshots() == []
    assert not (scene.root / ".manifold/artifacts/rewrite" / name).exists()
    assert json.loads(cli.ok("recover", "list", "--pruned", "--json"))["pruned"] == gone
    done = cli("recover", "show", name)
    assert done.returncode == 4 and b"was pruned at" in done.stderr


def test_prune_of_what_is_kept_elsewhere(scene: Scene, cli: Cli) -> None:
    scene.write("u", "only here\n")
    go(cli)
    scene.write("v", "also here\n")
    second = go(cli, "target", "main")
    # The first snapshot's contents are all in the second; the second's are nowhere else.
    gone = json.loads(cli.ok("recover", "prune", "--redundant", "--json"))["pruned"]
    assert len(gone) == 1 and gone[0]["lost_count"] == 0
    assert scene.snapshots() == [f"refs/manifold/recovery/{second}"]
    scene.commit("now in a branch")
    assert len(json.loads(cli.ok("recover", "prune", "--redundant", "--json"))["pruned"]) == 1
    assert scene.snapshots() == []


def test_history_snapshots_are_pruned_with_a_tombstone_too(scene: Scene, cli: Cli) -> None:
    cli.ok("-c", "echo agent > a")
    cli.ok("undo")
    [one] = json.loads(cli.ok("recover", "list", "--json"))["recoveries"]
    gone = json.loads(cli.ok("recover", "prune", "--older-than", "0", "--json"))["pruned"]
    assert [stone["ref"] for stone in gone] == [one["ref"]]
    assert json.loads(cli.ok("recover", "list", "--json"))["recoveries"] == []
    assert b"was pruned" in cli("recover", "show", one["name"]).stderr
    assert cli("fsck").returncode == 0


def test_nothing_anywhere(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "home").mkdir()
    assert Cli(tmp_path / "plain", tmp_path / "home")("recover", "list").returncode == 4


def test_what_was_deferred_comes_back_by_the_printed_command(scene: Scene, cli: Cli) -> None:
    scene.write("mine", "untracked\n")
    scene.write("d/also", "mine\n", mode=0o600)
    scene.write("a", lines("20=edited"))
    answer = json.loads(cli.ok("rewrite", "--base", "base", "--target", "target",
                               "--defer-untracked", "--json"))  # fmt: skip
    assert not scene.exists("mine") and not scene.exists("d/also")
    assert cli.ok(*answer["deferred_with"].split()[1:], "--dry-run").startswith("restore of ")
    cli.ok(*answer["deferred_with"].split()[1:])
    assert scene.short() == {"a": " M", "mine": "??", "d/also": "??"}
    assert stat.S_IMODE((scene.root / "d" / "also").stat().st_mode) == 0o600
    said = cli("recover", "restore", "default/", "mine", "--untracked")
    assert said.returncode != 0, "paths and --untracked contradict each other"


def test_a_snapshot_that_cannot_be_read_hides_no_other(scene: Scene, cli: Cli) -> None:
    scene.write("mine", "needle\n")
    name = go(cli)
    scene.git("update-ref", "refs/manifold/recovery/default/1", "HEAD")
    listed = cli("recover", "list")
    assert listed.returncode == 0
    assert name in listed.stdout.decode()
    assert "refs/manifold/recovery/default/1 is not a snapshot of ours" in listed.stderr.decode()
    assert matches(cli, "needle")[0]["snapshots"] == [name]
    cli.ok("recover", "prune", "--older-than", "0")
    left = scene.git("for-each-ref", "--format=%(refname)", "refs/manifold").decode().split()
    assert left == ["refs/manifold/recovery/default/1"], "somebody else's ref is left alone"


def test_context_ends_with_the_file(scene: Scene, cli: Cli) -> None:
    scene.write("mine", "one\nneedle\n")
    go(cli)
    [match] = [m for m in matches(cli, "needle", "--context", "2") if m["path"] == "mine"]
    assert match["hits"][0]["before"] == ["one"]
    assert match["hits"][0]["after"] == []


def test_a_journal_that_cannot_be_read_is_not_in_the_way(scene: Scene, cli: Cli) -> None:
    scene.write("mine", "needle\n")
    name = go(cli)
    scene.remove("mine")
    place = scene.root / ".manifold" / "journal" / "c-torn"
    place.mkdir(parents=True)
    (place / "intent.json").write_text('{"format": 1')
    done = cli("rewrite", "--base", "target", "--target", "base")
    assert done.returncode == 6 and b"then remove that directory" in done.stderr
    listed = cli("recover", "list")
    assert listed.returncode == 0 and name in listed.stdout.decode()
    assert b"cannot be read" in listed.stderr
    cli.ok("recover", "restore", name, "mine")
    assert scene.read("mine") == b"needle\n"
    (place / "intent.json").unlink()
    place.rmdir()
    cli.ok("rewrite", "--base", "target", "--target", "base")
