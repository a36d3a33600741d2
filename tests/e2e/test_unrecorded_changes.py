"""Where no history is kept a span still says what changed, and how that is known."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from substrate.model import ABSENT, Change, Kind, Node, RelPath
from substrate.recorder.command import saved_small_files
from substrate.workspace.scan import stat_listing
from tests.contract.as_user import NOBODY
from tests.contract.program import AS_USER
from tests.crash.oracle import Cli


@pytest.fixture
def far() -> Iterator[Path]:
    """Where another user may pass."""
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        yield base
    finally:
        shutil.rmtree(base)


@pytest.fixture(params=["home", "sticky"])
def cli(request: pytest.FixtureRequest, tmp_path: Path) -> Cli:
    """A home directory (with our own files in it), and one like /tmp."""
    place = tmp_path / "place"
    place.mkdir()
    if request.param == "home":
        return Cli(place, place)
    place.chmod(0o1777)
    home = tmp_path / "elsewhere"
    home.mkdir()
    return Cli(place, home)


def last_span(cli: Cli) -> dict[str, Any]:
    lines = (cli.home / ".substrate" / "trace.jsonl").read_text().splitlines()
    span: dict[str, Any] = json.loads(lines[-1])
    assert span["event_type"] == "command_complete"
    return span


def names(cli: Cli, kind: str) -> list[str]:
    return [path.removeprefix(f"{cli.workspace}/") for path in last_span(cli)["fs_diff"][kind]]


def test_writes_mods_and_deletes_are_listed(cli: Cli) -> None:
    (cli.workspace / "d").mkdir()
    for name in ("changed", "gone", "d/same"):
        (cli.workspace / name).write_text("one\n")
    cli.ok("-c", "echo two >> changed; rm gone; mkdir -p n/deep; echo x > n/deep/f; ln -s f l")
    assert names(cli, "writes") == ["l", "n/deep/f"]
    assert names(cli, "mods") == ["changed"]
    assert names(cli, "deletes") == ["gone"]
    span = last_span(cli)
    assert span["fs_diff"]["truncated"] is False and span["isolation"]["strategy"] == "direct"
    assert "other processes" in span["fs_diff_note"]


def test_our_own_files_are_not_the_commands(cli: Cli) -> None:
    cli.ok("-c", "true")
    cli.ok("-c", "true")
    assert last_span(cli)["fs_diff"] == {
        "writes": [], "mods": [], "deletes": [], "truncated": False,
    }  # fmt: skip


def test_where_the_command_starts_comes_first_and_a_cut_list_says_so(cli: Cli) -> None:
    many = cli.workspace / "a-many"
    many.mkdir()
    for n in range(stat_listing.MOST_ENTRIES + 1):
        (many / str(n)).touch()
    (cli.workspace / "z").mkdir()
    cli.spawn(["git", "init", "-q"])  # so that z belongs to it
    cli.ok("-C", "z", "-c", "echo x > here")
    assert names(cli, "writes") == ["z/here"]
    span = last_span(cli)
    assert span["fs_diff"]["truncated"] is True and "only the first" in span["fs_diff_note"]


def test_a_removed_directory_is_listed_by_its_files(cli: Cli) -> None:
    (cli.workspace / "d" / "e").mkdir(parents=True)
    (cli.workspace / "d" / "e" / "f").write_text("x")
    cli.ok("-c", "rm -r d")
    assert names(cli, "deletes") == ["d/e/f"]


def test_a_touched_file_is_not_a_change(cli: Cli) -> None:
    for name in ("touched", "same", "mode"):
        (cli.workspace / name).write_text("one\n")
    cli.ok("-c", "touch touched; echo one > same; chmod 600 mode")
    assert (names(cli, "writes"), names(cli, "mods")) == ([], ["mode"])


def test_the_former_content_of_small_files_is_kept(cli: Cli) -> None:
    (cli.workspace / "d").mkdir()
    for name in ("changed", "gone", "d/below", "same"):
        (cli.workspace / name).write_text(f"{name}\n")
    done = cli("-c", "echo two >> changed; rm -r gone d")
    where = Path(last_span(cli)["kept_in"])
    assert {str(p.relative_to(where)): p.read_text() for p in where.rglob("*") if p.is_file()} == {
        name: f"{name}\n" for name in ("changed", "gone", "d/below")
    }
    assert where.is_relative_to(cli.home / ".substrate" / "trash")
    assert not any(path.stat().st_mode & 0o077 for path in (where, where / "d", where.parent))
    assert f"changed, d/below, gone is kept in {where}".encode() in done.stderr


@pytest.mark.needs("other-user")
def test_what_only_another_user_can_change_is_not_kept(far: Path) -> None:
    """Seen: a file of root's that root changed in `/tmp` was copied, and named as the command's."""
    shared, home = far / "shared", far / "home"
    for path in (shared, home):
        path.mkdir()
    shared.chmod(0o1777)
    os.chown(home, NOBODY, NOBODY)
    for name, uid, mode in (("roots", 0, 0o644), ("open", 0, 0o666), ("own", NOBODY, 0o444)):
        (shared / name).write_text("1\n")
        (shared / name).chmod(mode)
        os.chown(shared / name, uid, uid)
    old_trash = home / "s" / "trash"
    old_trash.mkdir(parents=True, mode=0o755)
    for path in (old_trash.parent, old_trash):
        os.chown(path, NOBODY, NOBODY)
    own = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s"), "SUBSTRATE_DAEMON": "off"}
    running = subprocess.Popen(
        [sys.executable, "-c", AS_USER, str(NOBODY), "-c", "echo begun; read line"], cwd=shared,
        env={**os.environ, **own},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdout is not None and running.stdout.readline() == b"begun\n"
    for name in ("roots", "open", "own"):
        (shared / name).write_text("22\n")
    _, said = running.communicate(b"\n")
    assert running.returncode == 0
    [where] = old_trash.iterdir()
    assert sorted(os.listdir(where)) == ["open", "own"]
    assert b"open, own is kept in" in said and b"perhaps by another process" in said
    assert old_trash.stat().st_mode & 0o077 == 0


def test_large_files_and_hidden_directories_are_not_kept(cli: Cli) -> None:
    (cli.workspace / "large").write_bytes(b"x" * (saved_small_files.MOST_BYTES_EACH + 1))
    (cli.workspace / ".hidden").mkdir()
    (cli.workspace / ".hidden" / "file").write_text("1\n")
    cli.ok("-c", "rm -r large .hidden")
    assert names(cli, "deletes") == [".hidden/file", "large"]
    assert "kept_in" not in last_span(cli)


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    change = Change(RelPath(b"a"), Node(Kind.FILE, 0o644, b"1"), ABSENT)
    for number in range(60):
        before = {RelPath(b"a"): b"x"}
        assert saved_small_files.keep(tmp_path, f"c-{number:03}", before, [change]) == [b"a"]
    assert sorted(os.listdir(tmp_path / "trash")) == [f"c-{n:03}" for n in range(10, 60)]


def test_a_link_is_not_followed_and_a_pipe_not_waited_for(cli: Cli) -> None:
    secret = cli.home / "secret"
    secret.write_text("s\n")
    (cli.workspace / "link").symlink_to(secret)
    os.mkfifo(cli.workspace / "pipe")
    cli.ok("-c", "rm link pipe")
    assert names(cli, "deletes") == ["link", "pipe"]
    assert "kept_in" not in last_span(cli)


#: Like ssh-agent or tmux: it keeps running, and answers one call.
SERVER = """
import socket
with socket.socket(socket.AF_UNIX) as server:
    server.bind("made")
    server.listen()
    server.settimeout(60)
    server.accept()[0].sendall(b"ok")
"""


def test_a_server_that_a_command_starts_can_be_reached(cli: Cli) -> None:
    """The reason for having no world in a shared directory: see decision 43."""
    (cli.workspace / "server.py").write_text(SERVER)
    start = f"{sys.executable} server.py >/dev/null 2>&1 & while [ ! -S made ]; do sleep 0.05; done"
    cli.ok("-c", start)
    place = os.open(cli.workspace, os.O_PATH)  # the path of a socket has at most 108 bytes
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"/proc/self/fd/{place}/made")
        assert client.recv(2) == b"ok"
    os.close(place)


@pytest.fixture
def project(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    (root / "node_modules" / "sub").mkdir(parents=True)
    (root / "node_modules" / "sub" / "file").write_text("1\n")
    home.mkdir()
    made = Cli(root, home)
    made.ok("--no-world", "-c", "echo 1 > a")
    return made


def test_excluded_paths_are_listed_without_a_world_too(project: Cli) -> None:
    """Seen: `rm -rf node_modules` had an empty fs_diff."""
    project.ok("--no-world", "-c", "rm -rf node_modules")
    span = last_span(project)
    assert names(project, "deletes") == names(project, "excluded") == ["node_modules"]
    assert (span["changed_files"], span["fs_diff"]["truncated"]) == ([], False)


def test_what_is_not_scanned_without_a_world_is_reported(project: Cli) -> None:
    project.ok("--no-world", "-c", "rm -r node_modules/sub; echo 2 > a")
    span = last_span(project)
    assert (names(project, "mods"), span["fs_diff"]["truncated"]) == (["a"], True)
    assert span["fs_diff_note"].endswith("node_modules")
