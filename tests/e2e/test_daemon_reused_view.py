"""Commands that walk a tree and change nothing share a view; the next command sees every change,
and whichever process is killed, nothing is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon_in, pids_with, until

pytestmark = [pytest.mark.needs("linux", "world-overlay"), pytest.mark.speed_layer]

#: Long enough to be taken for a walk.
_WALK = "sleep 0.04; find . -type f | sort; cat $(find . -type f | sort)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        for number in range(5):
            (started.workspace / f"d{number}").mkdir()
            (started.workspace / f"d{number}" / "file").write_text(f"{number}\n")
        started.serve()
        yield started


def _warm(daemon: Daemon) -> int:
    # From elsewhere: a call from here would be served by the process that waits with the view.
    done = daemon.run("daemon", "status", "--json", cwd=daemon.workspace.parent)
    return int(json.loads(done.stdout)["warm"]) if done.returncode == 0 else 0


def _walk(daemon: Daemon, may_say: bytes = b"") -> bytes:
    done = daemon.run("-c", _WALK)
    assert done.returncode == 0
    assert done.stderr in (b"", may_say)
    return bytes(done.stdout)


def _bare(daemon: Daemon) -> bytes:
    line = _WALK.replace("find .", "find . -path ./.substrate-git -prune -o").replace(
        "-type f", "-type f -print"
    )
    return subprocess.run(
        ["bash", "-c", line], cwd=daemon.workspace, check=True, capture_output=True
    ).stdout


def _until_warm(daemon: Daemon, may_say: bytes = b"") -> None:
    """It takes some walks and a moment for the watch, and no mount must happen in between."""
    before = _warm(daemon)

    def is_warm() -> bool:
        assert _walk(daemon, may_say) == _bare(daemon)
        return _warm(daemon) > before

    until(is_warm, "a view that is used again")


def _edit(daemon: Daemon, chance: random.Random) -> None:
    where = daemon.workspace / f"d{chance.randint(0, 4)}"
    name = where / f"f{chance.randint(0, 2)}"
    kind = chance.randint(0, 5)
    if kind == 0:
        name.write_text(f"{chance.random()}\n")
    elif kind == 1:
        name.unlink(missing_ok=True)
    elif kind == 2:
        name.with_name("aside").write_text(f"{chance.random()}\n")
        name.with_name("aside").rename(name)
    elif kind == 3:
        aside = daemon.workspace / "aside"
        where.rename(aside)
        where.mkdir()
        aside.rename(where / f"moved{chance.randint(0, 999)}")
    elif kind == 4 and name.exists():
        outside = daemon.workspace.parent / "outside"
        outside.unlink(missing_ok=True)
        os.link(name, outside)
        with outside.open("a") as file:
            file.write("more\n")
    elif kind == 5:
        # Through Substrate itself: its own apply is an edit like any other.
        assert daemon.run("-c", f"echo {chance.random()} > d0/own").returncode == 0


def test_what_is_changed_is_seen_by_the_next_command(daemon: Daemon) -> None:
    _until_warm(daemon)
    chance = random.Random(4)
    for number in range(25):
        if number % 3 == 0:
            _walk(daemon)
        _edit(daemon, chance)
        assert _walk(daemon) == _bare(daemon), number
    _until_warm(daemon)
    assert daemon.run("daemon", "stop").returncode == 0
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all")
    assert list((daemon.workspace / ".substrate-git" / "worlds").iterdir()) == []


def test_a_git_status_leaves_a_view_that_is_used_again(daemon: Daemon) -> None:
    env = {**daemon.env, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for path in daemon.workspace.glob("*/file"):
        os.utime(path, (1, 1))  # or git would look at them again and again
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=daemon.workspace, env=env, check=True)
    line = "sleep 0.04; git status --short --untracked-files=no"
    before = _warm(daemon)
    answers = set()

    def is_warm() -> bool:
        answers.add(daemon.run("-c", line, env=env).stdout)
        return _warm(daemon) >= before + 3

    until(is_warm, "three of them")
    assert len(answers) == 1
    (daemon.workspace / "d0" / "file").write_text("another\n")
    said = daemon.run("-c", line, env=env).stdout
    assert b"AM d0/file\n" in said
    # A command that does change something brings nothing of the others along.
    assert daemon.run("-c", "echo new > new").returncode == 0
    span = daemon.completed()[-1]
    assert span["changed_files"] == ["new"]
    assert "excluded_changes" not in span


def test_an_append_while_a_command_runs_blocks_nothing(daemon: Daemon) -> None:
    """A view goes on by the size it has looked up: `cp` takes no more than that. All else does."""
    _until_warm(daemon)
    signs = daemon.workspace.parent
    line = (
        f"cat d*/file > /dev/null; touch {signs}/ready;"
        f" until test -e {signs}/go; do sleep 0.02; done;"
        " cat d0/file; cp d0/file d0/copy;"
        " cp d1/file d1/new && echo mine >> d1/new && mv d1/new d1/file;"
        " mv d2/file d2/moved; echo mine >> d3/file; cp d4/file d4/new && mv d4/new d4/file"
    )
    running = daemon.start("-c", line)
    until((signs / "ready").exists, "a command that has looked")
    for number in range(5):
        with (daemon.workspace / f"d{number}" / "file").open("a") as file:
            file.write("theirs\n")
    (signs / "go").touch()
    out, _ = running.communicate()
    assert out == b"0\ntheirs\n"
    # As of the start of the command, or as of now: nothing in between.
    assert (daemon.workspace / "d0" / "copy").read_text() in ("0\n", "0\ntheirs\n")
    span = daemon.completed()[-1]
    for number in range(5):
        kept = (daemon.workspace / f"d{number}" / "file").read_text()
        assert "theirs\n" in kept, number
        if number in (1, 3) and "mine\n" not in kept:
            assert f"d{number}/file" in span["conflicts"], number
            shown = daemon.run("recover", "show", span["command_id"], f"d{number}/file")
            assert b"mine\n" in shown.stdout, "the command's own version can be had"
    assert (daemon.workspace / "d2" / "moved").read_text() == "2\ntheirs\n"
    assert _walk(daemon) == _bare(daemon)
    assert daemon.run("fsck").returncode == 0


def _waiting(daemon: Daemon) -> list[str]:
    """The worlds that wait, each with the number of its process in its name."""
    return [world.name for world in daemon.worlds() if world.name.startswith("ahead-")]


def _sockets(pid: int) -> set[str]:
    links = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it closes one, or ends, as we look
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                links.add(os.readlink(one))
    return {link for link in links if link.startswith("socket:")}


def _door(daemon: Daemon) -> set[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    here = str(daemon.directory)
    return {f"socket:[{line.split()[6]}]" for line in lines if here in line and "door" in line}


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_one_out_of_date_gives_way_before_the_next_call(daemon: Daemon) -> None:
    _until_warm(daemon)
    until(lambda: len(_waiting(daemon)) == 1, "the next one")
    (before,) = _waiting(daemon)
    spare = int(before.split("-")[1])
    (daemon.workspace / "d0" / "file").write_text("another\n")

    def is_another() -> bool:
        names = _waiting(daemon)
        return len(names) == 1 and names != [before] and bool(_children(spare))

    until(is_another, "a new one")
    assert _waiting(daemon)[0].startswith(f"ahead-{spare}-"), "of the same process"
    until(lambda: _sockets(daemon.pid) & _door(daemon), "a daemon with a door")
    for child in _children(spare):
        assert not _sockets(child) & _door(daemon), "a world must not hold the daemon's door"
    assert _walk(daemon) == _bare(daemon)


def _victims(daemon: Daemon) -> list[int]:
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


#: Printed if the process that accepted the call was killed before it began: on a busy machine a
#: kill may take effect late.
_SAID = b"substrate: warn: shell world-agent exec failed, running direct\n"


def test_whichever_is_killed_nothing_is_left_and_nothing_is_stale(daemon: Daemon) -> None:
    chance = random.Random(7)
    for number in range(6):
        _until_warm(daemon, _SAID)
        if number % 2:
            _edit(daemon, chance)
        victims = [daemon.pid] if number == 3 else [chance.choice(_victims(daemon))]
        if number == 5:
            victims = _victims(daemon)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        assert _walk(daemon, _SAID) == _bare(daemon), number
    daemon.end()
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all")
    without = {**daemon.env, "SUBSTRATE_DAEMON": "off"}
    assert daemon.run("-c", "true", env=without).returncode == 0
    assert list((daemon.workspace / ".substrate-git" / "worlds").iterdir()) == []
    assert daemon.run("world", "list", "--json").stdout.count(b"wld_") == 0
