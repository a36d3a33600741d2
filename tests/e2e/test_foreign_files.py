"""Files of other users in an ordinary user's own directory: `sudo` and containers leave such files.

What the directory's owner may do without Substrate works in a world too, or the answer says how.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import AS_USER, Program

pytestmark = pytest.mark.needs("other-user")

EOVERFLOW = "Value too large for defined data type"


class Place:
    """A project of an ordinary user, with files in it that belong to root."""

    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        home = base / "home"
        self.env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s"), "SUBSTRATE_DAEMON": "off"}
        self.program = Program(self.root, self.env, uid=NOBODY)
        for directory in (self.root, home):
            directory.mkdir()
            os.chown(directory, NOBODY, NOBODY)

    def put(self, name: str, *, uid: int = 0, gid: int | None = None, mode: int = 0o600) -> Path:
        path = self.root / name
        path.write_text(f"{name}\n")
        path.chmod(mode)
        os.chown(path, uid, uid if gid is None else gid)
        return path

    def seen(self) -> dict[str, tuple[str, int]]:
        """By name, the content and the owner of each file."""
        found = [path for path in self.root.iterdir() if path.is_file()]
        return {path.name: (path.read_text(), path.stat().st_uid) for path in found}

    def on_terminal(self, line: str) -> str:
        """All that a terminal shows of it."""
        leader, follower = pty.openpty()
        started = subprocess.Popen(
            [sys.executable, "-c", AS_USER, str(NOBODY), "-c", line], cwd=self.root,
            stdin=follower, stdout=follower, stderr=follower, env={**os.environ, **self.env},
        )  # fmt: skip
        os.close(follower)
        shown = b""
        while part := _read(leader):
            shown += part
        started.wait()
        os.close(leader)
        return shown.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # EIO: the other end is closed
        return b""


@pytest.fixture
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        yield Place(base)
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize(
    ("line", "gone", "there"),
    [
        ("rm -f roots", ["roots"], []),
        ("mv -f own roots", ["own"], ["roots"]),
        ("cp --remove-destination own roots", [], ["own", "roots"]),
    ],
)
def test_what_the_directorys_owner_may_do_arrives(
    place: Place, line: str, gone: list[str], there: list[str], mode: int
) -> None:
    """Seen: `mv own roots` over a root-owned 0600 file was held for ever, as "keeps changing"."""
    place.put("roots", mode=mode)
    place.put("own", uid=NOBODY)
    place.program("-c", line).went_well()
    assert not any((place.root / name).exists() for name in gone)
    assert all((place.root / name).read_text() == "own\n" for name in there)
    assert place.program.json("world", "list")["worlds"] == []


def test_a_replaced_file_that_history_cannot_read_comes_back(place: Place) -> None:
    place.put("roots")
    place.put("own", uid=NOBODY)
    done = place.program("-c", "mv -f own roots").went_well()
    assert "roots" in done.errors and "recover restore" in done.errors
    command = place.program.json("log")["commands"][0]["command_id"]
    place.program("recover", "restore", command).went_well()
    assert place.seen() == {"roots": ("roots\n", 0)}


def test_undo_and_redo_exchange_the_file_that_history_cannot_read(place: Place) -> None:
    """Seen: undo deleted the new file and left the old one in the trash, with the note that it
    stays; redo then moved the new content to the trash."""
    place.put("roots")
    place.put("own", uid=NOBODY)
    place.program("-c", "mv -f own roots").went_well()
    for _ in range(2):
        plan = place.program("undo", "--dry-run").went_well()
        assert "bring back roots" in plan.text and "give roots" not in plan.text
        done = place.program("undo").went_well()
        assert place.seen() == {"own": ("own\n", NOBODY), "roots": ("roots\n", 0)}
        assert "stays" not in done.errors and "owner" not in done.errors
        place.program("redo").went_well()
        assert place.seen() == {"roots": ("own\n", NOBODY)}
    undone = place.program.json("undo")
    place.program(*undone["recover_with"].split()[1:]).went_well()
    assert place.seen() == {"roots": ("own\n", NOBODY)}


def test_an_undo_that_meets_an_unreadable_file_says_so(place: Place) -> None:
    """Seen: "the workspace changed while this ran; try again", at each try."""
    place.put("own", uid=NOBODY)
    place.program("-c", "rm own").went_well()
    place.put("own")
    place.program("undo").is_clear(1, "own: another user's file", "--take theirs")
    assert place.seen() == {"own": ("own\n", 0)}
    place.program("undo", "--take", "theirs").went_well()
    assert place.seen() == {"own": ("own\n", NOBODY)}
    place.program("redo").went_well()
    assert place.seen() == {"own": ("own\n", 0)}


@pytest.mark.parametrize("line", ["mv -f own roots", "rm -f roots"])
def test_undo_says_that_a_file_has_a_new_owner(place: Place, line: str) -> None:
    place.put("roots", mode=0o644)
    place.put("own", uid=NOBODY)
    place.program("-c", line).went_well()
    assert "roots back to 0:0 (only root can" in place.program("undo", "--dry-run").text
    done = place.program("undo").went_well()
    assert place.seen() == {"own": ("own\n", NOBODY), "roots": ("roots\n", NOBODY)}
    assert "not given back to their owner: roots (0:0)" in done.errors


def test_a_file_that_another_user_put_there_since_is_not_replaced(place: Place) -> None:
    place.put("own", uid=NOBODY)
    place.program("-c", "true").went_well()
    started = subprocess.Popen(
        [sys.executable, "-c", AS_USER, str(NOBODY), "-c", "echo mine > roots; echo done; read x"],
        cwd=place.root, env={**os.environ, **place.env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stdout.readline() == b"done\n"
    place.put("roots")
    _, said = started.communicate(b"\n")
    assert started.returncode == 122 and b"roots" in said
    assert (place.root / "roots").read_text() == "roots\n"


@pytest.mark.parametrize(
    "line", ["chmod 644 roots", "cp own roots", "cat roots", "echo x >> roots"]
)
def test_what_the_owner_may_not_do_fails_alike(place: Place, line: str) -> None:
    roots = place.put("roots")
    place.put("own", uid=NOBODY)
    done = place.program("-c", line)
    assert done.status != 0
    assert (roots.read_text(), roots.stat().st_uid) == ("roots\n", 0)
    assert EOVERFLOW not in done.errors and "note:" not in done.errors


@pytest.mark.parametrize("streams", ["", " 2>&1"])
def test_a_rename_that_a_world_cannot_do_is_explained(place: Place, streams: str) -> None:
    """The program itself prints only what EOVERFLOW means."""
    place.put("roots", mode=0o644)
    started = [sys.executable, "-c", AS_USER, str(NOBODY), "-c", "mv roots other"]
    shell = ["sh", "-c", f'exec "$@"{streams}', "sh", *started]
    done = Program(place.root, place.env).start(shell, None, b"", {})
    assert done.status == 1
    said = done.text + done.errors
    assert "(roots)" in said and "substrate --no-world -c 'mv roots other'" in said
    place.program("--no-world", "-c", "mv roots other").went_well()
    assert (place.root / "other").stat().st_uid == 0


@pytest.mark.parametrize(
    "line", ["mv roots other", "mv ro* other", "echo x >> theirs", "mv theirs other"]
)
def test_it_is_explained_on_a_terminal_too(place: Place, line: str) -> None:
    place.put("roots", mode=0o644)
    place.put("theirs", uid=NOBODY, gid=0, mode=0o644)
    shown = place.on_terminal(line).replace("\r\n", "\n")
    assert EOVERFLOW in shown
    assert f"substrate --no-world -c '{line}'" in shown


def test_a_failure_without_such_files_gets_no_explanation(place: Place) -> None:
    place.put("roots", mode=0o644)
    place.put("own", uid=NOBODY)
    shown = place.on_terminal("ls own /etc/hostname; false")
    assert "own" in shown and "--no-world" not in shown


def test_a_directory_that_cannot_be_renamed_is_explained(place: Place) -> None:
    (place.root / "theirs").mkdir()
    place.put("theirs/file", mode=0o644)
    done = place.program("-c", "mv theirs other")
    assert done.status == 1
    assert "(theirs)" in done.errors and "substrate --no-world -c 'mv theirs other'" in done.errors


def test_undo_does_not_skip_a_change_that_nothing_kept(place: Place) -> None:
    """Seen: `--no-world -c 'mv roots other'` of an unreadable file counted as "changed nothing",
    and undo took back the command before it."""
    place.put("roots")
    place.program("-c", "echo 1 > a").went_well()
    place.program("--no-world", "-c", "mv roots other").went_well()
    place.program("--no-world", "-c", "true").went_well()
    place.program("undo").is_clear(5, "mv roots other")
    assert (place.root / "a").exists()
