"""Damage and full disks: a clear message, the right exit code, and the workspace untouched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from substrate.graph.parse.facts_cache import EXTRACTOR_VERSION
from tests.capabilities import present
from tests.contract.program import Done, Program
from tests.mounts import mounted, tmpfs_words
from tests.unit.history import damage
from tests.unit.history.workbench import Bench, tree


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a history, packed and loose."""
    base = tmp_path_factory.mktemp("history")
    project = base / "project"
    project.mkdir()
    program = Program(project, {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")})
    (project / "a").write_bytes(b"0\n" * 100)
    program.sh("head -c 3000 /dev/urandom > noise; echo 1 > b")
    program("compact").went_well()
    program.sh("echo 2 > b; echo c > c")
    return project


@pytest.fixture
def substrate(history: Path, tmp_path: Path) -> Program:
    """A copy of it, to be hurt, adopted: the home that made the original is another one."""
    shutil.copytree(history, tmp_path / "project", symlinks=True)
    program = Program(tmp_path / "project")
    program("history", "adopt").went_well()
    return program


CALLS = (
    *(["log"], ["show", "@"], ["status"], ["undo", "--dry-run"]),
    *(["rollback", "--to", "@~1", "--dry-run"], ["checkpoint"], ["compact", "--dry-run"]),
)

EVERY_DAMAGE: dict[str, Callable[[Bench], None]] = {
    **damage.LEDGER_DAMAGE,
    **damage.REF_DAMAGE,
    **damage.PACK_DAMAGE,
    "bit flipped in a loose object": lambda bench: damage.flip_bit(damage.loose_objects(bench)[0]),
    "objects gone": lambda bench: _remove(damage.store_dir(bench) / ".git/objects"),
    "index gone": lambda bench: _remove(damage.store_dir(bench) / "index"),
    "repository gone": lambda bench: _remove(damage.store_dir(bench) / ".git"),
}


def _empty(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(0o600)
        path.write_bytes(b"")


def _remove(path: Path) -> None:
    subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.mark.parametrize("name", EVERY_DAMAGE)
def test_damage(substrate: Program, name: str) -> None:
    """Each call works, or fails in words; none touches a file; a repair makes all well."""
    bench = Bench(substrate.cwd)
    EVERY_DAMAGE[name](bench)
    before = tree(substrate.cwd)
    checked = substrate("fsck", "--json")
    assert checked.status == 6, checked.errors
    assert checked.document["problems"]
    for words in CALLS:
        _works_or_is_clear(substrate, words)
        assert tree(substrate.cwd) == before, words
    mended = substrate("fsck", "--repair", "--json").went_well().document
    # A deed above may have mended it on the way: a missing HEAD is written again.
    assert mended["extent"] in ("refs", "rebuilt") or name == "HEAD removed"
    assert tree(substrate.cwd) == before
    substrate("fsck").went_well()
    substrate.sh("echo after > b")
    substrate("undo").went_well()
    assert tree(substrate.cwd) == before


#: As the daemon does in the background: no user hears what it says.
_SILENT = """
from pathlib import Path
from substrate.recorder.checkpoints_sessions import mark_checkpoint
from substrate.recorder.session_context import Place
from substrate.system import environment
mark_checkpoint(Place.at(Path.cwd(), environment.current(), None, "ada"))
"""


@pytest.mark.parametrize("first", ["a question", "a process without a user"])
def test_objects_that_were_emptied_are_mended_from_the_ledger(
    substrate: Program, first: str
) -> None:
    """So a disk that was lost without a reboot leaves them."""
    _empty(damage.loose_objects(Bench(substrate.cwd)))
    before = tree(substrate.cwd)
    if first == "a question":
        substrate("fsck").went_well()
    else:
        subprocess.run([sys.executable, "-c", _SILENT], cwd=substrate.cwd, check=True)
    said = "were lost with the disk, and are written again"
    assert said in substrate.sh("echo after > b").errors
    assert said not in substrate("undo").went_well().errors, "it is said once"
    assert tree(substrate.cwd) == before


def _works_or_is_clear(program: Program, words: list[str]) -> None:
    done = program(*words)
    if done.status != 0:
        done.is_clear(done.status)
        assert done.status in (4, 6), done.errors


@pytest.mark.parametrize("name", ["ledger garbage", "pack truncated", "HEAD emptied"])
def test_a_command_in_a_damaged_workspace(substrate: Program, name: str) -> None:
    """It runs and is recorded, or does not run at all and says why."""
    EVERY_DAMAGE[name](Bench(substrate.cwd))
    before = tree(substrate.cwd)
    done = substrate("-c", "echo ran > made")
    if done.status == 0:
        assert substrate.json("show", "@")["changed_files"] == ["made"]
    else:
        done.is_clear(125)
        assert tree(substrate.cwd) == before


class TestUndoOfWhatIsLost:
    def test_it_changes_nothing(self, substrate: Program) -> None:
        """The content to be restored is damaged: nothing is half restored."""
        substrate.sh("echo gone > a; rm noise; rm c")
        for pack in damage.packs(Bench(substrate.cwd)):
            damage.flip_bit(pack, 200)
            damage.flip_bit(pack)
        before = tree(substrate.cwd)
        substrate("undo").is_clear(6, "fsck")
        assert tree(substrate.cwd) == before


@contextmanager
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own, and so one of blocks of 1 kB: what SQLite maps has holes there."""
    if not present("loop-devices"):
        pytest.skip("needs loop-devices")
    image, top = tmp_path / "image", tmp_path / "loop"
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-b", "1024", str(image)], check=True)
    top.mkdir()
    with mounted(top, "-o", "loop", str(image)):
        (top / "project").mkdir()
        yield top


def fill(disk: Path, leave: int = 0) -> Path:
    """Take all the room that is left, but for `leave` bytes."""
    room = os.statvfs(disk)
    filler = disk / "filler"
    size = max(0, room.f_bavail * room.f_frsize - leave)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return filler


class TestFullDisk:
    """A workspace on a disk of a few megabytes."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        top = tmp_path / "disk"
        top.mkdir()
        with mounted(top, *tmpfs_words(size="6m", mode="0700")):
            (top / "project").mkdir()
            yield top

    def write(self, path: Path, size: int) -> None:
        path.write_bytes(os.urandom(size))

    @pytest.mark.needs("mounts")
    @pytest.mark.parametrize("leave", [0, 50_000, 200_000])
    def test_recording(self, disk: Path, leave: int) -> None:
        program = Program(disk / "project")
        self.write(disk / "project/big", 500_000)
        program.sh("echo 1 > a")
        filler = fill(disk, leave + 480_000)
        done = program("--no-world", "-c", "head -c 390000 /dev/urandom > new && echo 2 > a")
        done.is_clear(125, "could not be recorded", "space")
        state = tree(disk / "project")
        assert b"new" in state
        filler.unlink()
        program.sh("true")
        assert tree(disk / "project") == state
        kinds = [e["kind"] for e in program.json("log")["commands"]]
        assert kinds == ["command", "command", "command", "baseline"]
        recorded = program.json("log")["commands"][1]
        assert sorted(recorded["changed_files"]) == ["a", "new"], "it is still the command's"
        program("undo", recorded["command_id"]).went_well()
        assert (disk / "project/a").read_bytes() == b"1\n"
        program("fsck").went_well()

    @pytest.mark.needs("mounts", "overlay", "root")
    @pytest.mark.parametrize("leave", [40_000, 100_000])
    def test_recording_from_a_world(self, disk: Path, leave: int) -> None:
        """The tree stays as it was; what the command did waits, and arrives when there is room."""
        program = Program(disk / "project")
        program.sh("echo 1 > a")
        before = tree(disk / "project")
        filler = fill(disk, leave + 480_000)
        line = "head -c 390000 /dev/urandom > new && echo 2 > a"
        done = program("--world", "-c", line)
        assert "space" in done.errors or "no room" in done.errors
        assert tree(disk / "project") == before
        filler.unlink()
        [world] = program.json("world", "list")["worlds"]
        program("world", "apply", world["world_id"]).went_well()
        assert (disk / "project/a").read_bytes() == b"2\n"
        assert (disk / "project/new").stat().st_size == 390_000
        program("undo").went_well()
        assert tree(disk / "project") == before
        program("fsck").went_well()

    @pytest.mark.needs("mounts", "overlay", "root")
    @pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
    def test_the_world_that_fills_the_disk_is_listed_and_discarded(
        self, disk: Path, tmp_path: Path, kind: str
    ) -> None:
        with nullcontext(disk) if kind == "tmpfs" else ext4(tmp_path) as top:
            program = Program(top / "project")
            program.sh("echo 1 > a")
            before = tree(top / "project")
            done = program("--world", "-c", "echo 2 > a; head -c 60000000 /dev/zero > big")
            assert done.status != 0
            fill(top)
            [world] = program.json("world", "list")["worlds"]
            program("log").went_well()
            program("world", "discard", world["world_id"]).went_well()
            assert program.json("world", "list")["worlds"] == []
            assert tree(top / "project") == before
            program.sh("echo 2 > a")
            program("fsck").went_well()

    @pytest.mark.needs("mounts")
    def test_no_room_for_a_first_record(self, disk: Path) -> None:
        self.write(disk / "project/big", 2_000_000)
        before = tree(disk / "project")
        filler = fill(disk, 300_000)
        program = Program(disk / "project")
        program("-c", "true").is_clear(125, "space")
        assert tree(disk / "project") == before
        filler.unlink()
        program.sh("echo 1 > a")
        program("fsck").went_well()

    @pytest.mark.needs("mounts")
    @pytest.mark.parametrize("leave", [0, 20_000, 300_000])
    def test_undo(self, disk: Path, leave: int) -> None:
        program = Program(disk / "project")
        for name in ("one", "two"):
            self.write(disk / "project" / name, 400_000)
        whole = tree(disk / "project")
        program.sh("rm one two; echo 1 > a")
        before = tree(disk / "project")
        filler = fill(disk, leave)
        done = program("undo")
        done.is_clear(5, "space")
        assert tree(disk / "project") == before, "all or nothing"
        filler.unlink()
        program("undo").went_well()
        assert tree(disk / "project") == whole
        program("fsck").went_well()

    @pytest.mark.needs("mounts")
    @pytest.mark.parametrize("leave", [40_000, 100_000])
    def test_compact(self, disk: Path, leave: int) -> None:
        program = Program(disk / "project")
        for _ in range(3):
            program.sh("head -c 400000 /dev/urandom > big")
        before = tree(disk / "project")
        commits = program.json("stats")["commits"]
        filler = fill(disk, leave)
        program("compact").is_clear(5, "space")
        assert tree(disk / "project") == before
        filler.unlink()
        program("fsck").went_well()
        assert program.json("stats")["commits"] == commits
        program("compact").went_well()
        program("fsck").went_well()
        program("undo").went_well()

    @pytest.mark.needs("mounts")
    def test_questions_on_a_full_disk(self, disk: Path) -> None:
        program = Program(disk / "project")
        program.sh("echo 1 > a")
        fill(disk)
        for words in (["log"], ["show", "@"], ["status"], ["stats"], ["diff", "@", "--stat"]):
            _works_or_told_full(program, words)

    @pytest.mark.needs("mounts")
    def test_a_home_without_room(self, disk: Path, tmp_path: Path) -> None:
        """The trace cannot be written: the command is still recorded, or does not run."""
        project = tmp_path / "project"
        project.mkdir()
        fill(disk)
        program = Program(project, {"SUBSTRATE_HOME": str(disk / "home")})
        done = program("-c", "echo 1 > a")
        assert "Traceback" not in done.errors
        if done.status == 0:
            assert program.json("log")["commands"][0]["changed_files"] == ["a"]
        else:
            done.is_clear(125, "space")
            if (project / "a").exists():
                roomy = Program(project)
                roomy.sh("true")
                assert ["a"] in [e["changed_files"] for e in roomy.json("log")["commands"]]


@pytest.mark.needs("mounts", "loop-devices")
class TestHolesUnderAMapping:
    """A byte written into a hole of a full disk would kill the process (SIGBUS)."""

    @pytest.fixture
    def disk(self, tmp_path: Path) -> Iterator[Path]:
        with ext4(tmp_path) as top:
            yield top

    def test_a_command_and_a_question(self, disk: Path) -> None:
        for leave in (9_000, 20_000, 36_000, 46_000):
            project = disk / f"project{leave}"
            project.mkdir()
            program = Program(project)
            program.sh("echo 1 > a")
            filler = fill(disk, leave)
            program("-c", "echo 2 > a").is_clear(125, "space")
            _works_or_told_full(program, ["log"])
            filler.unlink()
            program.sh("true")  # it settles what had no room
            program("fsck").went_well()

    def test_an_index_of_the_code(self, disk: Path) -> None:
        project = disk / "project"
        body = "".join(f"def f{n}():\n    return g{n}()\n\n\n" for n in range(40))
        for number in range(30):
            (project / f"m{number}.py").write_text(body + f"N = {number}\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost"]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            subprocess.run([*git, *words], cwd=project, check=True)
        _ctx(project, "init").went_well()
        for leave in (12_000, 40_000, 47_000, 54_000):
            shutil.rmtree(project / ".ctx/graph", ignore_errors=True)
            if leave == 12_000:
                _as_an_older_release_left_it(project / ".ctx/graph/cache")
            filler = fill(disk, leave)
            done = _ctx(project, "index")
            assert done.status == 5 and "space" in done.errors, (leave, done)
            filler.unlink()
        _ctx(project, "index").went_well()


def _ctx(project: Path, *words: str) -> Done:
    run = "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"
    return Program(project).start([sys.executable, "-c", run, *words], None, b"", {})


def _as_an_older_release_left_it(cache: Path) -> None:
    """A cache with a log, and so with an index of it."""
    cache.mkdir(parents=True)
    database = sqlite3.connect(cache / f"facts-v{EXTRACTOR_VERSION}.db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE facts (key BLOB PRIMARY KEY, facts BLOB)")
    database.close()


def _works_or_told_full(program: Program, words: list[str]) -> None:
    done = program(*words)
    if done.status != 0:
        done.is_clear(5, "space")


class TestBadSettings:
    @pytest.mark.parametrize("where", ["workspace", "home"])
    def test_are_named_with_their_file(
        self, substrate: Program, private_environment: Path, where: str
    ) -> None:
        home = private_environment / ".substrate"
        file = {"workspace": substrate.cwd / ".substrate-git", "home": home}[where] / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("[retention]\ncheckpionts = 3\n")
        before = tree(substrate.cwd)
        substrate("log").is_clear(2, str(file), "retention.checkpoints")
        substrate("-c", "echo x > made").is_clear(125, str(file))
        assert tree(substrate.cwd) == before


class TestLocks:
    def test_a_lock_of_a_dead_process_is_no_lock(self, substrate: Program) -> None:
        """Whatever the lock file contains, only a living holder counts."""
        for text in (
            b"",
            b"garbage",
            b'{"pid": 1, "boot": "another", "start": "", "purpose": "x"}',
        ):
            (substrate.cwd / ".substrate-git/lock").write_bytes(text)
            substrate("undo", "--dry-run").went_well()
