"""What a command did in its world comes into the tree as if it had run there, and into history."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from substrate.errors import SubstrateError
from substrate.history.record import record_entry
from substrate.model.paths import RelPath
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.reversals import restore_recovery
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import git_arrival
from substrate.recorder.user_git.git_arrival import look_after_git
from substrate.system import clock, environment
from substrate.workspace.apply import Applier, Report, Staged, Times
from substrate.workspace.apply.trash import Trash
from tests.mounts import mounted, tmpfs_words
from tests.unit.history.workbench import Bench
from tests.unit.recorder.overlay_world import ScriptWorld
from tests.unit.world.layer.test_changes import CASES
from tests.unit.world.overlays import tree

pytestmark = pytest.mark.needs("overlay", "root", "mounts")

_MAKE = """
echo a > a; echo b > b; ln -s a link; mkdir -p d/e empty
echo c > d/c; echo f > d/e/f; chmod 640 d/c; ln d/c hard; printf '\\377' > $'raw\\377'
find . -exec touch -h -d '2020-01-01' {} +
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["bash", "-ec", _MAKE], cwd=root, check=True)
    made = Bench(root)
    do(made, "true")  # the baseline
    return made


def do(
    bench: Bench, script: str, meanwhile: Callable[[], None] = lambda: None, **options: object
) -> Recording:
    place = Place.at(bench.root, environment.current(), None, "ada")
    request = CommandRequest(bench.root, shell=script)._replace(**options)  # type: ignore[arg-type]
    return record_command(place, ScriptWorld(bench.root, script, meanwhile), request)


def span() -> dict[str, object]:
    trace = environment.current().trace_path
    answer: dict[str, object] = json.loads(trace.read_text().splitlines()[-1])
    return answer


def times(root: Path) -> dict[str, int]:
    """Of files and links; a directory's time is the last change in it."""
    return {
        str(path.relative_to(root)): path.lstat().st_mtime_ns // 10**9
        for path in root.rglob("*")
        if ".substrate-git" not in path.parts and not (path.is_dir() and not path.is_symlink())
    }


def marks(root: Path) -> list[str]:
    return [
        f"{path}: {name}"
        for path in [root, *root.rglob("*")]
        if ".substrate-git" not in path.parts
        for name in os.listxattr(path, follow_symlinks=False)
        if "overlay" in name
    ]


def is_settled(bench: Bench) -> bool:
    """History and tree agree, and nothing waits."""
    left = list((bench.root / ".substrate-git" / "worlds").iterdir())
    journal = list((bench.root / ".substrate-git" / "journal").iterdir())
    with bench.writing() as store:
        found = record_entry.record_outside(store)
    assert found is None, found
    return not left and not journal


@pytest.mark.parametrize("name", CASES)
def test_the_tree_is_as_after_a_bare_run(bench: Bench, name: str) -> None:
    script, _ = CASES[name]
    bare = bench.root.with_name("bare")
    subprocess.run(["cp", "-a", str(bench.root), str(bare)], check=True)
    subprocess.run(["bash", "-ec", script], cwd=bare, check=True)
    before = tree(bench.root)
    done = do(bench, script)
    after = tree(bench.root)
    assert after == tree(bare)
    now, then = times(bench.root), times(bare)
    assert {p: abs(now[p] - then[p]) < 3 for p in then} == dict.fromkeys(then, True)
    assert marks(bench.root) == []
    assert (done.entry is not None and done.entry.commit is not None) == (after != before)
    assert is_settled(bench)


# ------------------------------------------------------------------ others work here, too


def write(path: Path, text: str) -> Callable[[], None]:
    def act() -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return act


def settle_clock() -> None:
    """An edit counts as made before the start only if the clock of the file system says so."""
    clock.sleep(0.05)


def test_an_unrecorded_edit_that_the_command_saw_is_recorded_first(bench: Bench) -> None:
    (bench.root / "a").write_text("mine\n")
    settle_clock()
    done = do(bench, "echo its >> a")
    assert (bench.root / "a").read_text() == "mine\nits\n"
    assert bench.kinds() == ["baseline", "command", "external", "command"]
    assert span()["conflicts"] == []
    assert [c.path for c in done.changes] == [b"a"]
    assert is_settled(bench)


def test_an_edit_made_while_the_command_ran_is_merged(bench: Bench) -> None:
    lines = [f"line {n}\n" for n in range(20)]
    (bench.root / "long").write_text("".join(lines))
    do(bench, "true > x")
    bench.settle()
    mine = "".join(["mine\n", *lines])
    done = do(bench, "echo its >> long", write(bench.root / "long", mine))
    assert (bench.root / "long").read_text() == mine + "its\n"
    assert any("merged" in note for note in done.notes)
    assert bench.kinds()[-2:] == ["external", "command"]
    assert is_settled(bench)


def test_an_edit_made_after_the_layer_was_read_is_merged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file in the tree was read together with the layer, but has changed since then."""
    lines = [f"line {n}\n" for n in range(20)]
    for name in ("long", "touched"):
        (bench.root / name).write_text("".join(lines))
    do(bench, "true > x")
    bench.settle()
    mine = "".join(["mine\n", *lines])
    seen: set[bytes] = set()

    def edit_first(*words: Any, **more: Any) -> Any:
        seen.update(words[2].stood)
        for name in ("long", "touched"):
            write(bench.root / name, mine)()
        return look_after_git(*words, **more)

    monkeypatch.setattr(git_arrival, "look_after_git", edit_first)
    done = do(bench, "echo its >> long; touch touched")
    assert seen == {b"long", b"touched"}
    assert (bench.root / "long").read_text() == mine + "its\n"
    assert (bench.root / "touched").read_text() == mine
    assert any("merged" in note for note in done.notes)
    assert bench.kinds()[-2:] == ["external", "command"]
    assert is_settled(bench)


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_append_made_right_before_ours_is_merged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """Another process writes between the look at the tree and the change of it, again and again."""
    log, really = bench.root / "a", Applier.carry_out
    if is_seen:  # an edit that is not recorded yet, and that the command builds on
        write(log, "mine\n")()
        settle_clock()
    before, others = log.read_text(), ["other 1\n", "other 2\n"]
    coming = list(others)

    def carry_out(self: Applier, staged: Staged, *times: Mapping[RelPath, Times]) -> Report:
        if coming:
            with log.open("a") as file:
                file.write(coming.pop(0))
        return really(self, staged, *times)

    monkeypatch.setattr(Applier, "carry_out", carry_out)
    done = do(bench, "echo its >> a")
    assert log.read_text() == before + "".join(others) + "its\n"
    assert (done.not_arrived, done.held) == (None, "")
    assert is_settled(bench)
    bench.undo()
    assert log.read_text() == before + "".join(others)


@pytest.mark.parametrize("script", ["echo new > .b; mv .b b", "rm b"])
def test_what_others_write_to_a_file_that_was_taken_from_them_is_reported_and_comes_back(
    bench: Bench, script: str
) -> None:
    path = bench.root / "b"
    with path.open("ab", buffering=0) as log:
        done = do(bench, script)
        log.write(b"more\n")
    assert done.entry is not None
    [note] = [one for one in done.notes if "now in the trash: b " in one]
    assert f"`substrate recover restore {done.entry.command_id}`" in note
    place = Place.at(bench.root, environment.current(), None, "ada")
    restore_recovery(place, done.entry.command_id, (), dry_run=False)
    assert path.read_text() == "b\nmore\n"


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_edit_that_the_command_leaves_as_it_is_stays_its_authors(
    bench: Bench, is_seen: bool
) -> None:
    """A formatter reads it and writes it back, byte by byte the same."""
    edit = write(bench.root / "a", "mine\n")
    if is_seen:
        edit()
        settle_clock()
    do(bench, "echo mine > a; echo its > b; rm d/c", lambda: None if is_seen else edit())
    assert bench.kinds()[-2:] == ["external", "command"]
    assert is_settled(bench)
    bench.undo()
    assert (bench.root / "a").read_text() == "mine\n"
    assert (bench.root / "b").read_text() == "b\n"
    assert (bench.root / "d/c").read_text() == "c\n"


def test_a_file_that_both_remove_stays_removed(bench: Bench) -> None:
    do(bench, "rm a b", (bench.root / "a").unlink)
    assert bench.kinds()[-2:] == ["external", "command"]
    bench.undo()
    assert not (bench.root / "a").exists()
    assert (bench.root / "b").read_text() == "b\n"


def test_a_directorys_mode_that_both_change_stays(bench: Bench) -> None:
    do(bench, "chmod 700 d; echo its > b", lambda: (bench.root / "d").chmod(0o700))
    bench.undo()
    assert stat.S_IMODE((bench.root / "d").stat().st_mode) == 0o700
    assert (bench.root / "b").read_text() == "b\n"


def test_a_disk_that_fills_up_between_the_change_and_its_entry(bench: Bench) -> None:
    """What was announced and done is finished by the next call, and does not wait in its world."""
    database = bench.root / ".substrate-git" / "index" / "history.db"

    def fill() -> None:
        with closing(sqlite3.connect(database)) as ledger:
            ledger.execute(
                "CREATE TRIGGER full BEFORE INSERT ON entries WHEN NEW.commit_oid IS NOT NULL"
                " BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )

    with pytest.raises(SubstrateError, match="the change is made"):
        do(bench, "echo its > a", fill)
    with closing(sqlite3.connect(database)) as ledger:
        ledger.execute("DROP TRIGGER full")
    assert (bench.root / "a").read_text() == "its\n"
    do(bench, "echo more > b")
    assert bench.kinds() == ["baseline", "command", "command", "command"]
    assert bench.fsck() == []
    bench.undo()
    bench.undo()
    assert (bench.root / "a").read_text() == "a\n"


def test_an_old_directory_moved_in_while_the_command_ran_was_not_seen_by_it(bench: Bench) -> None:
    other = bench.root.parent / "other"
    shutil.copytree(bench.root / "d", other, symlinks=True)
    (other / "c").write_text("mine\n")
    settle_clock()

    def swap() -> None:
        (bench.root / "d").rename(bench.root.parent / "old")
        other.rename(bench.root / "d")

    do(bench, "echo its > d/c", swap)
    assert (bench.root / "d/c").read_text() == "mine\n"
    assert span()["conflicts"] == ["d/c"]


def test_a_collision_is_a_conflict_and_nothing_is_lost(bench: Bench) -> None:
    done = do(bench, "echo its > a; echo its > n", write(bench.root / "a", "mine\n"))
    assert (bench.root / "a").read_text() == "mine\n"
    assert (bench.root / "n").read_text() == "its\n"
    assert span()["conflicts"] == ["a"]
    assert any("conflict: a" in note for note in done.notes)
    bench.restore(done.command_id, "a")
    assert (bench.root / "a").read_text() == "its\n"


def test_only_a_conflict_and_nothing_else(bench: Bench) -> None:
    done = do(bench, "echo its > a", write(bench.root / "a", "mine\n"))
    assert (bench.root / "a").read_text() == "mine\n"
    assert span()["conflicts"] == ["a"]
    bench.restore(done.command_id, "a")
    assert (bench.root / "a").read_text() == "its\n"


def test_a_file_made_by_both(bench: Bench) -> None:
    # Without a newline at its end it cannot be taken for lines that were appended.
    do(bench, "printf its > n; mkdir x; echo its > x/n", write(bench.root / "n", "mine\n"))
    assert (bench.root / "n").read_text() == "mine\n"
    assert span()["conflicts"] == ["n"]
    assert (bench.root / "x/n").read_text() == "its\n"
    assert is_settled(bench)


def test_a_directory_made_by_both_is_merged(bench: Bench) -> None:
    do(bench, "mkdir x; echo its > x/n", write(bench.root / "x/m", "mine\n"))
    assert (bench.root / "x/m").read_text() == "mine\n"
    assert (bench.root / "x/n").read_text() == "its\n"
    assert span()["conflicts"] == []
    assert is_settled(bench)


def test_a_removed_directory_with_a_file_that_history_did_not_know(bench: Bench) -> None:
    (bench.root / "d/mine").write_text("mine\n")
    settle_clock()
    done = do(bench, "rm -r d")
    assert not (bench.root / "d").exists()
    assert b"d/mine" in {c.path for c in done.changes}
    bench.undo()
    assert (bench.root / "d/mine").read_text() == "mine\n"
    assert (bench.root / "d/c").read_text() == "c\n"


def test_a_removed_directory_into_which_a_user_puts_a_file(bench: Bench) -> None:
    do(bench, "rm -r d", write(bench.root / "d/mine", "mine\n"))
    assert (bench.root / "d/mine").read_text() == "mine\n"
    assert not (bench.root / "d/c").exists()
    assert is_settled(bench)


def test_a_file_removed_that_a_user_edits(bench: Bench) -> None:
    do(bench, "rm a", write(bench.root / "a", "mine\n"))
    assert (bench.root / "a").read_text() == "mine\n"
    assert span()["conflicts"] == ["a"]


def test_an_unknown_file_is_removed_by_the_command(bench: Bench) -> None:
    (bench.root / "mine").write_text("mine\n")
    settle_clock()
    do(bench, "rm mine")
    assert not (bench.root / "mine").exists()
    bench.undo()
    assert (bench.root / "mine").read_text() == "mine\n"


def test_a_directory_that_a_user_removes_while_the_command_works_in_it(bench: Bench) -> None:
    do(bench, "echo its > d/e/n", lambda: shutil.rmtree(bench.root / "d"))
    assert (bench.root / "d/e/n").read_text() == "its\n"
    assert not (bench.root / "d/c").exists()
    assert is_settled(bench)


def test_two_worlds_at_once(bench: Bench) -> None:
    """The second one starts, and ends, while the first one runs."""

    def second() -> None:
        do(bench, "echo 2 > two; echo 2 > both; echo 2 >> a")

    done = do(bench, "echo 1 > one; printf 1 > both; rm b", second)
    assert (bench.root / "one").read_text() == "1\n"
    assert (bench.root / "two").read_text() == "2\n"
    assert (bench.root / "both").read_text() == "2\n"
    assert not (bench.root / "b").exists()
    assert span()["conflicts"] == ["both"]
    assert done.entry is not None
    bench.restore(done.command_id, "both")
    assert (bench.root / "both").read_text() == "1"
    assert bench.kinds()[1:-1] == ["command", "command", "command"]


# ------------------------------------------------------------------ what history leaves out


def test_excluded_files_arrive_and_their_old_state_is_in_the_trash(bench: Bench) -> None:
    modules = bench.root / "node_modules"
    write(modules / "m.js", "old\n")()
    write(modules / "gone.js", "gone\n")()
    do(bench, "echo new > node_modules/m.js; rm node_modules/gone.js; echo n > node_modules/n.js")
    assert (modules / "m.js").read_text() == "new\n"
    assert (modules / "n.js").read_text() == "n\n"
    assert not (modules / "gone.js").exists()
    kept = Trash(bench.root / ".substrate-git" / "trash").list()
    assert {entry.path: entry.location.read_text() for entry in kept} == {
        b"node_modules/m.js": "old\n", b"node_modules/gone.js": "gone\n",
    }  # fmt: skip
    assert span()["changed_files"] == []
    assert is_settled(bench)


def test_an_excluded_directory_that_goes_comes_back_with_undo(bench: Bench) -> None:
    write(bench.root / "dist/o", "old\n")()
    do(bench, "rm -r dist; echo x > x")
    assert not (bench.root / "dist").exists()
    bench.undo()
    assert (bench.root / "dist/o").read_text() == "old\n"


def test_an_excluded_directory_made_again_is_exchanged_whole(bench: Bench) -> None:
    write(bench.root / "dist/o", "old\n")()
    do(bench, "rm -r dist; mkdir dist; echo new > dist/o; echo n > dist/n")
    assert (bench.root / "dist/o").read_text() == "new\n"
    [kept] = Trash(bench.root / ".substrate-git" / "trash").list()
    assert (kept.path, (kept.location / "o").read_text()) == (b"dist", "old\n")


def test_a_project_goes_with_all_it_holds(bench: Bench) -> None:
    write(bench.root / "p/src", "src\n")()
    (bench.root / "p/node_modules").mkdir()
    (bench.root / "p/node_modules/m").write_text("m\n")
    bench.settle()
    do(bench, "rm -r p")
    assert not (bench.root / "p").exists()
    bench.undo()
    assert (bench.root / "p/src").read_text() == "src\n"
    assert (bench.root / "p/node_modules/m").read_text() == "m\n"


def test_a_file_that_outgrows_the_cap(bench: Bench) -> None:
    config = bench.root / ".substrate-git/config.toml"
    config.write_text("[exclude]\nmax_file_mib = 1\n")
    do(bench, "head -c 2000000 /dev/zero > a")
    assert (bench.root / "a").stat().st_size == 2_000_000
    bench.undo()
    assert (bench.root / "a").read_text() == "a\n"


# ------------------------------------------------------------------ as the command did it


def test_in_place_stays_the_same_file_and_replaced_becomes_another(bench: Bench) -> None:
    inode = {name: (bench.root / name).stat().st_ino for name in ("a", "b")}
    do(bench, "echo more >> a; sed -i s/b/x/ b")
    assert (bench.root / "a").stat().st_ino == inode["a"]
    assert (bench.root / "b").stat().st_ino != inode["b"]


def test_a_replaced_file_leaves_its_other_names_outside_alone(bench: Bench) -> None:
    outside = bench.root.with_name("store")
    os.link(bench.root / "a", outside)
    do(bench, "sed -i s/a/x/ a")
    assert outside.read_text() == "a\n"
    assert (bench.root / "a").read_text() == "x\n"


def test_stamp_files_keep_make_quiet(bench: Bench) -> None:
    do(bench, "touch -d '2021-02-03' a; touch -d '2022-02-03' d/c")
    assert (bench.root / "a").stat().st_mtime < (bench.root / "d/c").stat().st_mtime
    assert bench.log()[0].commit is None


def test_owners_arrive(bench: Bench) -> None:
    do(bench, "chown 1234:1235 a; echo n > n; chown 1234 n")
    assert (bench.root / "a").stat().st_uid == 1234
    assert (bench.root / "a").stat().st_gid == 1235
    assert (bench.root / "n").stat().st_uid == 1234


def test_set_id_bits_and_devices_stay_in_the_world(bench: Bench) -> None:
    done = do(bench, "mkdir x; cp /bin/true x/su; chmod 6755 x/su; mknod x/null c 1 3; mkfifo x/p")
    assert stat.S_IMODE((bench.root / "x/su").stat().st_mode) == 0o755
    assert not (bench.root / "x/null").exists()
    assert stat.S_ISFIFO((bench.root / "x/p").stat().st_mode)
    assert any("x/null" in note for note in done.notes)
    assert marks(bench.root) == []
    assert is_settled(bench)


def test_moved_directories_carry_no_marks(bench: Bench) -> None:
    do(bench, "mkdir x; mv d x/; mv a x/d/; rm -r empty; mkdir empty")
    assert marks(bench.root) == []
    assert is_settled(bench)


# ------------------------------------------------------------------ held


def test_a_held_world_changes_nothing(bench: Bench) -> None:
    before = tree(bench.root)
    done = do(bench, "echo its > a; rm b", hold=True)
    assert tree(bench.root) == before
    assert done.world_id.startswith("wld_") and done.held
    assert bench.log()[0].commit is None
    assert span()["held"] == "asked for with --hold"


def test_changes_that_run_code_are_named(bench: Bench) -> None:
    (bench.root / ".git").mkdir()
    (bench.root / ".git/config").write_text("[core]\n\tbare = false\n")
    done = do(
        bench,
        "mkdir -p .git/hooks .vscode; echo x > .git/hooks/pre-commit;"
        "echo '{}' > .vscode/tasks.json; printf '[core]\\n\\tfsmonitor = ./x\\n' >> .git/config;"
        "echo x > .git/hooks/a.sample",
    )
    expected = [".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json"]
    assert span()["runs_code"] == expected
    assert any("makes other programs run code" in note for note in done.notes)


@pytest.mark.parametrize(
    "config",
    [
        '[core]\n\tx = "\\\n[y]"\n\tfsmonitor = ./x\n',
        "\ufeff[core]\n\tfsmonitor = ./x\n",
        "[core]\n\tx = a\x0b[y]\n\tfsmonitor = ./x\n",
        "[y] [core] fsmonitor = ./x\n",
        '[hook "x"]\n\tcommand = ./x\n',
        '[submodule "x"]\n\tupdate = !./x\n',
    ],
)
def test_a_git_configuration_cannot_hide_what_it_runs(bench: Bench, config: str) -> None:
    (bench.root / ".git").mkdir()
    (bench.root / "config").write_text(config)
    do(bench, "cp config .git/config")
    assert span()["runs_code"] == [".git/config"]


def test_hooks_and_includes_that_the_configuration_leads_to_are_named(bench: Bench) -> None:
    (bench.root / ".git").mkdir()
    (bench.root / ".git/config").write_text(
        "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../team.cfg\n"
    )
    do(
        bench,
        "mkdir -p tools/hooks; echo x > tools/hooks/pre-commit; echo x > tools/x; echo x > a.pth;"
        "printf '[core]\\n\\tpager = ./x\\n' > team.cfg",
    )
    assert span()["runs_code"] == ["a.pth", "team.cfg", "tools/hooks/pre-commit"]


def test_a_replays_tools_and_another_repository_are_named(bench: Bench) -> None:
    do(bench, "mkdir .ctx sub; echo '{}' > .ctx/config.json; echo 'gitdir: ../y' > sub/.git")
    assert span()["runs_code"] == [".ctx/config.json", "sub/.git"]


def test_policy_holds_what_runs_code(bench: Bench) -> None:
    (bench.root / ".substrate-git/config.toml").write_text("[world]\nhold_code = true\n")
    done = do(bench, "echo 'evil' > .envrc")
    assert not (bench.root / ".envrc").exists()
    assert ".envrc" in done.held


# ------------------------------------------------------------------ a layer on another disk


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    top = tmp_path / "other"
    top.mkdir()
    with mounted(top, *tmpfs_words()):
        yield top


_EVERYTHING = """
echo more >> a; sed -i s/b/x/ b; rm -r d; mkdir -p n/m; echo n > n/m/n; chmod 750 n; ln -sfn b link
rm -r dist; mkdir -p dist/x; echo new > dist/x/o; echo m > node_modules/m; rm node_modules/gone
mkdir -p n/dist; cp /bin/true n/dist/su; chmod 4755 n/dist/su; mkfifo n/p; touch -d 2021-01-01 hard
mkdir swap; echo s > swap/s; rmdir empty
"""


@pytest.mark.parametrize("copied", [False, True])
def test_by_rename_and_by_copy(bench: Bench, other_disk: Path, copied: bool) -> None:
    for name in ("dist/o", "node_modules/m", "node_modules/gone"):
        write(bench.root / name, "old\n")()
    bare = bench.root.with_name("bare")
    subprocess.run(["cp", "-a", str(bench.root), str(bare)], check=True)
    subprocess.run(["bash", "-ec", _EVERYTHING], cwd=bare, check=True)
    os.chmod(bare / "n/dist/su", 0o755)
    place = Place.at(bench.root, environment.current(), None, "ada")
    world = ScriptWorld(bench.root, _EVERYTHING, worlds=other_disk if copied else None)
    done = record_command(place, world, CommandRequest(bench.root, shell="everything"))
    assert done.held == ""
    assert tree(bench.root) == tree(bare)
    now, then = times(bench.root), times(bare)
    assert {p for p in then if abs(now[p] - then[p]) > 30} == set()
    assert marks(bench.root) == []
    assert is_settled(bench)
    kept = {one.path: one.location for one in Trash(bench.root / ".substrate-git/trash").list()}
    assert (kept[RelPath(b"dist")] / "o").read_text() == "old\n"
    assert kept.keys() == {b"dist", b"node_modules/m", b"node_modules/gone"}
    bench.undo()
    assert (bench.root / "d/c").read_text() == "c\n"
    assert (bench.root / "node_modules/gone").read_text() == "old\n"


# ------------------------------------------------------------------ file capabilities

_GIVES_RIGHTS = """
import os
value = bytes.fromhex("0100000200200000" + 12 * "00")
for path in ("new", "n/new", "dist/new", "b"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "ab").write(b"x")
    os.setxattr(path, "security.capability", value)
os.chmod("a", 0o750)
"""


@pytest.mark.parametrize("copied", [False, True])
def test_new_file_capabilities_stay_in_the_world(
    bench: Bench, other_disk: Path, copied: bool
) -> None:
    """They give rights to every user that runs the file, like set-id bits."""
    kept = bench.root / "a"
    capability = "security.capability"
    os.setxattr(kept, capability, bytes.fromhex("0100000200200000" + 12 * "00"))
    place = Place.at(bench.root, environment.current(), None, "ada")
    world = ScriptWorld(
        bench.root, f"python3 -c '{_GIVES_RIGHTS}'", worlds=other_disk if copied else None
    )
    done = record_command(place, world, CommandRequest(bench.root, shell="rights"))
    assert (done.outcome.exit, done.held) == (0, "")
    found = {name for name in ("new", "n/new", "dist/new", "b") if os.listxattr(bench.root / name)}
    assert found == set()
    assert os.listxattr(kept) == [capability]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o750
    told = [note for note in done.notes if "without its file capabilities" in note]
    assert all(any(name in note for note in told) for name in ("new", "n/new", "dist/new", "b"))
    assert not any(note.startswith("a:") or " a " in note for note in told)
