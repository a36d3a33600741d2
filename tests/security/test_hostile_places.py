"""What a command, or another user, may have put in the way of the next call of Substrate."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.history.reversal import restore
from substrate.recorder.user_git.ref_moves import how_to_put_back
from tests.contract.program import Program

pytestmark = pytest.mark.needs("posix", "symlinks")

NOBODY = 65534
_DIES_IN_UNDO = """
import os
from substrate.cli.main import substrate
from substrate.history.reversal import restore
restore._apply = lambda *_: os._exit(9)
substrate(["undo"])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "place"
    made.mkdir()
    return made


@pytest.fixture
def program(place: Path, tmp_path: Path) -> Program:
    return Program(place, {"SUBSTRATE_HOME": str(tmp_path / "home")})


def git(place: Path, *words: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *settings, *words], cwd=place, check=True, capture_output=True)


@pytest.mark.needs("other-user")
def test_root_carries_out_nothing_that_another_user_announced(
    place: Path, program: Program
) -> None:
    """An announced undo is finished by the next writer: forged, and finished by root, it made
    a setuid file of root's with the other user's bytes in it."""
    (place / "sub").mkdir()
    program("-c", "echo evil > sub/x; chmod 4755 sub/x").went_well()
    program("-c", "rm sub/x").went_well()
    assert hasattr(restore, "_apply")
    assert program.start([sys.executable, "-c", _DIES_IN_UNDO], None, b"", {}).status == 9
    database = sqlite3.connect(place / ".substrate-git/index/history.db")
    assert database.execute("SELECT count(*) FROM intents").fetchone() == (1,)
    database.close()
    for path in (place, *place.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.chown(place / "sub", 0, 0)

    for words in ("log", "undo", "checkpoint", "status", "fsck --repair", "-c true"):
        refused = program(*words.split())
        # No history is kept in another user's directory: a command runs, `status` says so.
        assert refused.status == (0 if words in ("status", "-c true") else 5), words
        assert f"belongs to another user (uid {NOBODY})" in refused.text + refused.errors
    program("history", "reset", "--yes")
    assert (place / ".substrate-git/index/history.db").exists()
    assert os.listdir(place / "sub") == []


def test_a_promisor_remote_runs_no_command(place: Path, program: Program, tmp_path: Path) -> None:
    """`protocol.ext.allow` beats `protocol.allow`, and an older git always fetches what it misses:
    so does this one, asked through a wrapper that takes GIT_NO_LAZY_FETCH away."""
    proof = tmp_path / "ran"
    git(place, "init", "-q")
    for name in "ab":
        (place / name).write_text(name)
        os.utime(place / name, (1e9, 1e9))
    git(place, "add", ".")
    git(place, "config", "core.repositoryformatversion", "1")
    git(place, "config", "extensions.partialClone", "origin")
    git(place, "config", "remote.origin.promisor", "true")
    git(place, "config", "remote.origin.url", f"ext::touch {proof}")
    git(place, "config", "protocol.ext.allow", "always")
    for path in (place / ".git/objects").glob("??/*"):
        path.unlink()
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True)
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {real.stdout.strip()} "$@"\n')
    wrapper.chmod(0o755)
    program.env["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"
    program("-c", "echo c > c").went_well()
    program("diff", "@").went_well()
    assert not proof.exists()


@pytest.mark.parametrize(
    "name",
    [
        "HEAD", "index", "config", "commondir", "packed-refs", "refs/heads/x", "info/exclude",
        "info/attributes", "objects/info/alternates", "../.gitattributes", "../.substrateignore",
    ],
)  # fmt: skip
def test_a_fifo_in_the_users_repository_stops_nothing(
    place: Path, program: Program, name: str
) -> None:
    git(place, "init", "-q")
    (place / "a").write_text("a")
    os.utime(place / "a", (1e9, 1e9))
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "one")
    path = place / ".git" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    program("-c", "echo b > b").went_well()
    program("undo").went_well()
    assert not (place / "b").exists()


def test_fifos_in_the_place_of_objects_are_mended(place: Path, program: Program) -> None:
    program("-c", "echo one > a").went_well()
    program("-c", "echo two > a").went_well()
    for path in (place / ".substrate-git/.git/objects").glob("??/*"):
        path.unlink()
        os.mkfifo(path)
    program("undo").went_well()  # the ledger has the bytes: they are written again
    assert (place / "a").read_text() == "one\n"
    program("fsck").went_well()


@pytest.mark.parametrize("name", ["", "journal", "trash", ".git/objects/pack", ".git/refs/heads"])
def test_no_link_in_the_store_leads_out_of_it(
    place: Path, program: Program, tmp_path: Path, name: str
) -> None:
    """Compaction removed unknown files in the pack directory, which may be foreign files."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    program("-c", "echo one > a").went_well()
    spot = f"{place}/.substrate-git/{name}".rstrip("/")
    attack = f"mv {spot} {tmp_path}/aside; ln -s {outside} {spot}; echo two > a"
    ran = program("--no-world", "-c", attack)
    assert "is a link" in ran.errors
    for words in ("compact", "undo", "-c true", "fsck --repair", "log"):
        assert "is a link" in program(*words.split()).errors
    assert os.listdir(outside) == ["precious"]
    os.unlink(spot)
    os.rename(tmp_path / "aside", spot)
    program("undo").went_well()
    assert (place / "a").read_text() == "one\n"


@pytest.mark.needs("overlay", "root")
def test_in_a_world_the_store_cannot_be_reached(place: Path, program: Program) -> None:
    program("-c", "echo one > a").went_well()
    before = sorted(os.listdir(place / ".substrate-git"))
    attack = "cat .substrate-git/lock; rm -rf .substrate-git; mkdir .substrate-git; echo x > b"
    ran = program("--world", "-c", f"{attack}; echo forged > .substrate-git/lock").went_well()
    assert "No such file" in ran.errors
    assert ".substrate-git: the place of Substrate's own store" in ran.errors
    assert sorted(os.listdir(place / ".substrate-git")) == before
    assert (place / "b").read_text() == "x\n"
    program("fsck").went_well()


def test_the_exclude_file_is_not_written_through_a_linked_directory(
    place: Path, program: Program, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    git(place, "init", "-q")
    for path in (place / ".git/info").iterdir():
        path.unlink()
    (place / ".git/info").rmdir()
    (place / ".git/info").symlink_to(outside)
    program("-c", "echo b > b").went_well()
    assert os.listdir(outside) == []


@pytest.mark.parametrize("name", ["refs/heads/$(reboot)", "refs/heads/a;b", "refs/heads/`x`"])
def test_the_commands_to_paste_hold_no_command_of_a_refs_name(name: str) -> None:
    effect = {"refs": {name: [None, "1" * 40]}, "head": [f"ref: {name}", "ref: refs/heads/main"]}
    remove, head = how_to_put_back(effect)
    assert shlex.split(remove, posix=True) == ["git", "update-ref", "-d", name, "1" * 40]
    assert shlex.split(head) == ["git", "symbolic-ref", "HEAD", name]
    assert f"'{name}'" in remove
    assert f"'{name}'" in head


@pytest.mark.needs("other-user")
def test_root_opens_no_store_that_another_user_filled(place: Path, program: Program) -> None:
    """A directory of root's that every user may write to (``tmp`` of an unpacked system), renamed:
    its own owner said nothing about what is in it."""
    program("-c", "echo one > x").went_well()
    store = place / ".substrate-git"
    os.chown(place, NOBODY, NOBODY)
    for path in store.rglob("*"):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    store.chmod(0o1777)
    for words in ("log", "undo", "checkpoint", "fsck --repair"):
        refused = program(*words.split())
        assert refused.status == 5, words
        assert "another user" in refused.errors or "other users" in refused.errors, words
    program("-c", "echo unrecorded > x").went_well()
    assert b"unrecorded" not in (store / "index/history.db").read_bytes()
    assert (place / "x").read_text() == "unrecorded\n"


def ctx(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "from substrate.cli.ctx import ctx; import sys; sys.exit(ctx(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=place, capture_output=True, text=True, check=False
    )


@pytest.fixture
def indexed(place: Path) -> Path:
    git(place, "init", "-q")
    (place / "a.py").write_text("def f(): pass\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "$(touch proof)")
    assert ctx(place, "init").returncode == 0
    return place


@pytest.mark.parametrize("name", ["manifests/commits.jsonl", "manifests/paths.jsonl", "cache/x"])
def test_a_link_in_the_code_graph_leads_nowhere(indexed: Path, tmp_path: Path, name: str) -> None:
    """What is appended holds a commit's message: in a shell's startup file it would be run."""
    startup = tmp_path / "bashrc"
    startup.write_text("# ours\n")
    (indexed / ".ctx/graph" / name).symlink_to(startup)
    done = ctx(indexed, "index")
    assert done.returncode != 0
    assert "is a link and in the way" in done.stderr
    assert startup.read_text() == "# ours\n"


@pytest.mark.needs("other-user")
def test_root_writes_into_no_graph_of_another_user(indexed: Path) -> None:
    os.chown(indexed / ".ctx", NOBODY, NOBODY)
    for verb in ("index", "symbols"):
        done = ctx(indexed, verb)
        assert done.returncode == 5
        assert f"belongs to another user (uid {NOBODY})" in done.stderr
