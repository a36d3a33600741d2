"""What users do by mistake, and what their directories hold: a clear answer, and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.program import AS_USER, Program
from tests.mounts import mounted
from tests.unit.history.workbench import tree

NOBODY = 65534


@pytest.fixture
def substrate(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    return Program(project)


def spans(private_environment: Path) -> list[dict[str, object]]:
    trace = private_environment / ".substrate/trace.jsonl"
    return [json.loads(line) for line in trace.read_text().splitlines()]


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory that other users can reach, as pytest's own are not."""
    base = Path(tempfile.mkdtemp(prefix="substrate-test-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


class TestPlaces:
    def test_not_a_directory(self, substrate: Program, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"")
        substrate("-C", str(file), "log").is_clear(4, "is not a directory")
        substrate("-C", str(file), "-c", "true").is_clear(125, "is not a directory")
        substrate("-C", str(tmp_path / "gone"), "log").is_clear(4, "does not exist")

    def test_the_current_directory_was_removed(self, substrate: Program) -> None:
        gone = substrate.cwd / "gone"
        gone.mkdir()
        script = 'rmdir "$PWD"; exec "$0" -m substrate log'
        done = substrate.start(["sh", "-c", script, sys.executable], gone, b"", {})
        done.is_clear(5, "no longer there")

    def test_the_root_of_the_file_system(
        self, substrate: Program, private_environment: Path
    ) -> None:
        done = substrate("-c", "echo ran", cwd=Path("/")).went_well()
        assert done.out == b"ran\n"
        assert "no history is kept here" in done.errors
        assert "file system" in done.errors
        start, complete = spans(private_environment)
        assert (start["event_type"], complete["event_type"]) == (
            "command_start", "command_complete",
        )  # fmt: skip
        assert complete["exit"] == 0
        assert not Path("/.substrate-git").exists()
        for verb in ("undo", "log", "checkpoint", "compact"):
            refused = substrate(verb, "--json", cwd=Path("/")).is_clear(5, "no history is kept")
            assert refused.error["kind"] == "history-refused"

    def test_the_home_directory(self, substrate: Program, private_environment: Path) -> None:
        home = private_environment
        done = substrate("-c", "echo ran > made; exit 3", cwd=home)
        assert done.status == 3
        assert (home / "made").exists()
        assert "home directory" in done.errors
        assert not (home / ".substrate-git").exists()
        substrate("undo", cwd=home).is_clear(5, "home directory")
        assert "home directory" in substrate("status", cwd=home).went_well().text

    def test_a_project_below_the_home_directory(
        self, substrate: Program, private_environment: Path
    ) -> None:
        project = private_environment / "project"
        project.mkdir()
        substrate("-c", "echo x > made", cwd=project).went_well()
        substrate("undo", cwd=project).went_well()
        assert not (project / "made").exists()

    @pytest.mark.needs("other-user")
    def test_a_workspace_of_another_user(self, shared_directory: Path) -> None:
        project = shared_directory / "project"
        project.mkdir(mode=0o777)
        project.chmod(0o777)
        home = shared_directory / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        program = Program(
            project, {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s")}, uid=NOBODY
        )
        done = program("-c", "echo ran > made; echo out").went_well()
        assert done.out == b"out\n"
        assert "another user" in done.errors
        assert (project / "made").exists()
        assert not (project / ".substrate-git").exists()
        program("undo").is_clear(5, "another user")
        assert len((home / "s/trace.jsonl").read_text().splitlines()) == 2

    @pytest.mark.needs("other-user")
    def test_a_history_of_another_user_in_a_workspace_of_ours(self, shared_directory: Path) -> None:
        """Root made the store once; the owner gets words, not a crash."""
        project = shared_directory / "project"
        project.mkdir()
        home = shared_directory / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s")}
        Program(project, {**env, "SUBSTRATE_HOME": str(home / "root")}).sh("echo x > made")
        os.chown(project, NOBODY, NOBODY)
        program = Program(project, env, uid=NOBODY)
        program("log").is_clear(5)
        program("-c", "true").is_clear(125, "belongs to another user")

    @pytest.mark.needs("other-user")
    def test_a_graph_of_another_user(self, shared_directory: Path) -> None:
        subprocess.run(["git", "init", "-q", shared_directory], check=True)
        (shared_directory / ".ctx").mkdir(mode=0o700)
        by_ctx = AS_USER.replace("cli.main import substrate as", "cli.ctx import ctx as")
        assert by_ctx != AS_USER
        for verb in ("index", "symbols"):
            done = subprocess.run(
                [sys.executable, "-c", by_ctx, str(NOBODY), verb],
                cwd=shared_directory, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 5, done.stderr
            assert f"{shared_directory}/.ctx is closed to you: it belongs to uid 0" in done.stderr
            assert "hint: work in a clone of your own" in done.stderr

    @pytest.mark.needs("other-user")
    def test_a_workspace_that_may_not_be_written(self, shared_directory: Path) -> None:
        project = shared_directory / "project"
        project.mkdir()
        (project / "a").write_bytes(b"0")
        os.chown(project, NOBODY, NOBODY)
        project.chmod(0o555)
        home = shared_directory / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        program = Program(
            project, {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s")}, uid=NOBODY
        )
        done = program("-c", "cat a").went_well()
        assert done.out == b"0"
        assert "cannot be written" in done.errors
        program("undo").is_clear(5, "cannot be written")

    def test_a_file_where_the_store_should_be(self, substrate: Program) -> None:
        (substrate.cwd / ".substrate-git").write_bytes(b"mine")
        substrate("-c", "echo x > made").is_clear(125, "in the way")
        assert (substrate.cwd / ".substrate-git").read_bytes() == b"mine"
        assert not (substrate.cwd / "made").exists()

    @pytest.mark.needs("symlinks")
    def test_a_link_where_the_store_should_be(self, substrate: Program, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (substrate.cwd / ".substrate-git").symlink_to(elsewhere)
        substrate("-c", "echo x > made").is_clear(125, "in the way")
        substrate("undo").is_clear(5, "is a link")
        assert not (substrate.cwd / "made").exists()
        assert list(elsewhere.iterdir()) == []


class TestNestedStores:
    def test_the_nearest_one_counts(self, substrate: Program) -> None:
        substrate.sh("mkdir inner; echo outer > a")
        inner = Program(substrate.cwd / "inner")
        subprocess.run(["git", "init", "-q"], cwd=inner.cwd, check=True)
        assert inner.json("status")["workspace"] == str(substrate.cwd), "a store beats a .git"
        shutil.copytree(substrate.cwd / ".substrate-git", inner.cwd / ".substrate-git")
        assert inner.json("status")["workspace"] == str(inner.cwd)

    def test_one_inside_is_left_alone_and_out(self, substrate: Program) -> None:
        inner = Program(substrate.cwd / "inner")
        inner.cwd.mkdir()
        inner.sh("echo 1 > a")
        before = tree(inner.cwd / ".substrate-git")
        substrate.sh("echo 2 > inner/a; echo 3 > b")
        assert sorted(substrate.json("log")["commands"][0]["changed_files"]) == ["b", "inner/a"]
        substrate("undo").went_well()
        assert (inner.cwd / "a").read_bytes() == b"1\n"
        assert tree(inner.cwd / ".substrate-git") == before
        listing = substrate.json("status")["excluded"]
        assert {"path": "inner/.substrate-git", "reason": "metadata"} in listing

    def test_from_a_subdirectory(self, substrate: Program) -> None:
        substrate.sh("mkdir -p d/e; echo 1 > d/e/f; echo 1 > g")
        below = Program(substrate.cwd / "d/e")
        below("undo", "--path", "f").went_well()
        assert not (below.cwd / "f").exists()
        assert (substrate.cwd / "g").exists()
        assert not (below.cwd / ".substrate-git").exists()


class TestIds:
    def test_what_is_unknown_comes_with_the_list_to_look_in(self, substrate: Program) -> None:
        substrate.sh("echo 1 > a")
        substrate("show", "c-nobody").is_clear(4, "`substrate log` lists them")
        substrate("log", "--session", "s-nobody").is_clear(4, "`substrate session list` lists")
        substrate("recover", "show", "nothing").is_clear(4, "`substrate recover list`")

    def test_a_file_in_the_place_of_an_id(self, substrate: Program) -> None:
        substrate.sh("echo 1 > a")
        substrate("undo", "a").is_clear(4, "substrate undo --path a")
        substrate("show", "a").is_clear(4, "substrate log --path a")
        substrate("diff", "a").is_clear(4, "substrate diff @ a")
        substrate("blame", ".").is_clear(4, "error: . is a directory")
        assert (substrate.cwd / "a").exists()

    def test_show_alone_shows_the_last_command(self, substrate: Program) -> None:
        substrate.sh("echo 1 > a")
        substrate.sh("echo 2 > a")
        assert substrate.json("show") == substrate.json("show", "@")
        assert substrate.json("show")["command"] == "echo 2 > a"

    def test_unknown_ambiguous_undone_and_nothing_left(self, substrate: Program) -> None:
        substrate.sh("echo 1 > a")
        substrate.sh("echo 2 > a")
        before = tree(substrate.cwd)
        substrate("undo", "c-nobody").is_clear(4, "matches 'c-nobody'")
        substrate("undo", "c-").is_clear(4, "ambiguous", "more characters")
        substrate("undo", b"\xff\xfe").is_clear(4)
        substrate("undo", "a" * 5000).is_clear(4)
        assert tree(substrate.cwd) == before
        newest = substrate.json("log")["commands"][0]["command_id"]
        substrate("undo").went_well()
        substrate("undo", newest).is_clear(5, "already undone", "redo")
        substrate("undo").went_well()
        substrate("undo").is_clear(4, "nothing to undo")
        assert substrate.json("log")["commands"][0]["kind"] == "undo"


#: Names as bytes, each a trap for something that takes names for text, options or lines.
ODD_NAMES = {
    "newline": b"a\nb", "leading dash": b"-rf", "two dashes": b"--", "invalid UTF-8": b"\xff\xfe",
    "255 bytes": b"n" * 255, "255 bytes of invalid UTF-8": b"\xff" * 255, "blank": b" ",
    "quotes": b"'\"`$(touch pwned)", "backslash": b"a\\b", "escape": b"\x1b[31mred\x07",
    "tab": b"a\tb", "percent": b"%41", "glob": b"*", "pathspec magic": b":(exclude)*",
    "tilde": b"~root", "dots": b"...", "looks like ours": b"tmp-substrate-x",
    "git names": b".gitattributes", "emoji": "\U0001f600".encode(), "carriage return": b"a\r",
    "combining": "e\u0301".encode(), "composed": "\u00e9".encode(), "colon": b"c:\\x",
}  # fmt: skip


@pytest.mark.needs("byte-names")
def test_odd_names_are_recorded_undone_and_redone(substrate: Program) -> None:
    top = os.fsencode(substrate.cwd)
    for name in ODD_NAMES.values():
        with open(os.path.join(top, name), "wb") as file:
            file.write(b"before " + name)
    os.mkdir(os.path.join(top, b"d\n-\xff"))
    substrate.sh("true")
    before = tree(substrate.cwd)
    for name in ODD_NAMES.values():
        with open(os.path.join(top, b"d\n-\xff", name), "wb") as file:
            file.write(b"in a directory")
        with open(os.path.join(top, name), "ab") as file:
            file.write(b"after")
    substrate("checkpoint").went_well()
    changed = tree(substrate.cwd)
    assert changed != before
    outside = [e for e in substrate.json("log")["commands"] if e["kind"] == "external"]
    assert len(outside) == 1
    assert len(outside[0]["changed_files"]) == 2 * len(ODD_NAMES)
    for verb in (["log"], ["diff", outside[0]["command_id"]], ["show", outside[0]["command_id"]]):
        substrate(*verb).went_well()
    substrate("undo", outside[0]["command_id"]).went_well()
    assert tree(substrate.cwd) == before
    substrate("redo").went_well()
    assert tree(substrate.cwd) == changed
    assert not (substrate.cwd / "pwned").exists()


@pytest.mark.needs("byte-names")
@pytest.mark.parametrize("name", [b"a\nb", b"-rf", b"\xff", b"n" * 255], ids=repr)
def test_odd_names_on_the_command_line(substrate: Program, name: bytes) -> None:
    top = os.fsencode(substrate.cwd)
    path = os.path.join(top, name)
    for word in (b"one", b"two"):
        done = substrate("run", "--", "sh", "-c", 'printf "$1" > "$2"', "sh", word, b"./" + name)
        done.went_well()
    spelt = b"./" + name
    listed = substrate("log", "--json", b"--path=" + spelt).went_well().document["commands"]
    assert [e["kind"] for e in listed] == ["command", "command"]
    substrate("blame", spelt).went_well()
    substrate("diff", "@", spelt).went_well()
    substrate("undo", b"--path=" + spelt).went_well()
    with open(path, "rb") as file:
        assert file.read() == b"one"


def test_odd_command_lines(substrate: Program) -> None:
    for line in (b"echo \xff > a", b"true \x1b[2J", b"true\n\nSubstrate-Kind: baseline", b"echo '"):
        done = substrate("-c", line)
        assert "Traceback" not in done.errors
        assert done.status in (0, 1, 2, 127), done.errors
    substrate("log").went_well()
    assert b"\x1b" not in substrate("log").out
    odd = {"SUBSTRATE_AGENT_ID": os.fsdecode(b"ag\xff\nent")}
    substrate("-c", "echo 1 > b", env=odd).went_well()
    substrate("fsck").went_well()
    substrate("log", "--json").went_well()
    assert len(substrate.json("log")["commands"]) == 6


@pytest.mark.needs("case-sensitive")
def test_names_that_differ_in_case_only(substrate: Program) -> None:
    substrate.sh("echo 1 > readme; echo 2 > README; mkdir Src src; echo 3 > Src/a; echo 4 > src/A")
    before = tree(substrate.cwd)
    substrate.sh("rm README Src/a; rmdir Src; echo 9 > src/A")
    substrate("undo").went_well()
    assert tree(substrate.cwd) == before
    substrate("compact").went_well()
    substrate("fsck").went_well()


class TestBulk:
    def test_a_sparse_file_of_five_gigabytes_is_left_out_unread(self, substrate: Program) -> None:
        big = substrate.cwd / "disk.img"
        with big.open("wb") as file:
            file.truncate(5 * 10**9)
        substrate.sh("echo 1 > a")
        store = subprocess.run(
            ["du", "-sk", str(substrate.cwd / ".substrate-git")], capture_output=True, check=True
        )
        assert int(store.stdout.split()[0]) < 2000
        reasons = {e["path"]: e["reason"] for e in substrate.json("status")["excluded"]}
        assert reasons["disk.img"] == "larger than 64 MiB"
        substrate("undo").went_well()
        assert big.stat().st_size == 5 * 10**9
        assert big.stat().st_blocks < 100, "still sparse"

    def test_a_command_that_makes_one(self, substrate: Program) -> None:
        substrate.sh("truncate -s 5G disk.img; echo 1 > a")
        entry = substrate.json("log")["commands"][0]
        assert entry["changed_files"] == ["a"]

    def test_a_file_that_grows_over_the_cap_and_back(self, substrate: Program) -> None:
        substrate.sh("echo small > f; echo 0 > a")
        substrate.sh("truncate -s 100M f; echo 1 > a")
        assert (substrate.cwd / "f").stat().st_size == 100 << 20
        substrate("undo")
        assert (substrate.cwd / "a").read_bytes() == b"0\n"
        assert (substrate.cwd / "f").exists(), "what is left out is not removed"

    @pytest.mark.parametrize(
        "count", [20_000, pytest.param(200_000, marks=pytest.mark.long)], ids=str
    )
    def test_very_many_files_in_one_directory(self, substrate: Program, count: int) -> None:
        many = substrate.cwd / "many"
        many.mkdir()
        for n in range(count):
            os.close(os.open(f"{many}/{n}", os.O_CREAT | os.O_WRONLY, 0o644))
        substrate.sh("echo 1 > many/0; rm many/1; echo new > many/new")
        entry = substrate.json("log")["commands"][0]
        assert sorted(entry["changed_files"]) == ["many/0", "many/1", "many/new"]
        substrate("undo").went_well()
        assert (many / "1").exists()
        assert not (many / "new").exists()
        substrate("fsck").went_well()

    def test_very_deep_directories(self, substrate: Program) -> None:
        substrate.sh("p=.; for i in $(seq 200); do p=$p/d; done; mkdir -p $p; echo 1 > $p/f")
        before = tree(substrate.cwd)
        substrate.sh("rm -r d")
        substrate("undo").went_well()
        assert tree(substrate.cwd) == before
        substrate("fsck").went_well()


@pytest.mark.needs("posix")
def test_special_files_do_not_hang_or_crash(substrate: Program) -> None:
    import socket

    os.mkfifo(substrate.cwd / "fifo", 0o640)
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(substrate.cwd)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        substrate.sh("echo 1 > a")
        substrate.sh("rm fifo; mkfifo other; echo 2 > a")
        substrate("undo")
        assert (substrate.cwd / "a").read_bytes() == b"1\n"
        assert set(substrate.json("status")["specials"]) >= {"socket"}
        substrate("fsck").went_well()


@pytest.mark.needs("posix")
def test_files_that_cannot_be_read(substrate: Program) -> None:
    """Root reads everything; the test is the same for others, where the file is unreadable."""
    secret = substrate.cwd / "secret"
    secret.write_bytes(b"s")
    secret.chmod(0)
    substrate.sh("echo 1 > a")
    substrate.sh("echo 2 > a")
    substrate("undo").went_well()
    assert (substrate.cwd / "a").read_bytes() == b"1\n"
    assert secret.stat().st_mode & 0o777 == 0


class TestWithoutGit:
    """Where nothing needs git, its absence is no matter; where it does, it is named."""

    @pytest.fixture
    def gitless(self, substrate: Program, tmp_path: Path) -> Program:
        bin_dir = tmp_path / "bin"
        bin_dir.mkdir()
        for name in ("sh", "bash", "cat", "rm"):
            found = shutil.which(name)
            if found:
                (bin_dir / name).symlink_to(found)
        return Program(substrate.cwd, {"PATH": str(bin_dir)})

    def test_recording_and_undo_work(self, gitless: Program) -> None:
        gitless.sh("echo 1 > a")
        gitless.sh("echo 2 > a; echo x > b")
        assert len(gitless.json("log")["commands"]) == 3
        gitless.json("show", "@")
        gitless.json("diff", "@")
        gitless("diff", "@", "--stat").went_well()
        gitless("undo").went_well()
        assert (gitless.cwd / "a").read_bytes() == b"1\n"
        gitless("redo").went_well()
        gitless("checkpoint").went_well()
        gitless("rollback", "--to", "@~1").went_well()
        gitless("status").went_well()
        gitless("stats").went_well()

    def test_git_is_named_where_it_is_needed(self, gitless: Program) -> None:
        (gitless.cwd / "a").write_bytes(b"1\n2\n3\n4\n5\n6\n7\n")
        one = gitless.sh("echo 0 > a; echo 2 >> a; echo 3 >> a; cat a > b")
        del one
        target = gitless.json("log")["commands"][0]["command_id"]
        (gitless.cwd / "a").write_bytes(b"0\n2\n3\nmine\n")
        before = tree(gitless.cwd)
        for words in (["compact"], ["undo", target], ["fsck"], ["diff", "@"]):
            told = gitless(*words, "--json") if words[0] != "diff" else gitless(*words)
            told.is_clear(3, "git")
        assert tree(gitless.cwd) == before
        whole = Program(gitless.cwd)
        whole("fsck").went_well()
        whole("log").went_well()


class TestReadOnly:
    @pytest.fixture
    def frozen(self, substrate: Program, tmp_path: Path) -> Iterator[Program]:
        """A project with a history, seen through a read-only mount."""
        subprocess.run(["git", "init", "-q"], cwd=substrate.cwd, check=True)
        substrate.sh("echo 1 > a")
        view = tmp_path / "view"
        view.mkdir()
        with mounted(view, "--bind", str(substrate.cwd)):
            subprocess.run(["mount", "-o", "remount,bind,ro", str(view)], check=True)
            yield Program(view)

    @pytest.mark.needs("mounts")
    def test_it_is_reported_before_the_command_begins(self, frozen: Program) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "substrate", "-c", "cat a"], cwd=frozen.cwd,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
        )  # fmt: skip
        note, output = done.stdout.splitlines()
        assert note.endswith(b"; the command is only traced")
        assert output == b"1"

    @pytest.mark.needs("mounts")
    def test_nothing_runs_where_a_world_is_required(
        self, frozen: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its changes would stay in a world that could never be applied."""
        for option in ("--world", "--hold", "--isolate=guarded"):
            done = frozen("run", option, "--", "echo", "ran")
            assert (done.status, done.out) == (125, b"")
            assert "a world is required" in done.errors
            assert "how it is mounted" in done.errors
        monkeypatch.setenv("SUBSTRATE_WORLD", "enabled")
        done = frozen("-c", "echo ran")
        assert (done.status, done.out) == (125, b"")

    @pytest.mark.needs("mounts")
    def test_commands_run_and_questions_are_answered(self, frozen: Program) -> None:
        before = tree(frozen.cwd, leave_out=())
        done = frozen("-c", "cat a").went_well()
        assert done.out == b"1\n"
        assert "the history that is here cannot go on: it cannot be written to" in done.errors
        assert "stays" in frozen("status").went_well().text
        frozen("undo").is_clear(5)
        frozen("checkpoint").is_clear(5)
        frozen("compact").is_clear(5)
        frozen("log").went_well()
        frozen("show", "@").went_well()
        assert tree(frozen.cwd, leave_out=()) == before
