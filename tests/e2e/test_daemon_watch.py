"""The daemon watches: what others change is recorded as theirs, in order, and costs no scan."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import PATIENCE_S, Daemon, daemon_in, pids_with, until

pytestmark = [pytest.mark.needs("linux"), pytest.mark.needs("overlay")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("shared")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as daemon:
        daemon.serve()
        yield base


@pytest.fixture
def daemon(shared: Path, tmp_path: Path) -> Daemon:
    """The shared daemon, watching a workspace of the test's own."""
    workspace = tmp_path / "project"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/a").write_bytes(b"one\n")
    (workspace / "src/b").write_bytes(b"one\n")
    found = Daemon(shared, workspace)
    done(found, "true")
    until(lambda: watching(found)["watched"], "watching")
    return found


def done(daemon: Daemon, command: str, *options: str) -> dict[str, Any]:
    """Run it; its span."""
    ran = daemon.run("run", *options, "--", "sh", "-c", command)
    assert ran.returncode == 0, ran.stderr
    return daemon.completed()[-1]


def watching(daemon: Daemon) -> dict[str, Any]:
    """What the watcher says about the daemon's workspace."""
    state = daemon.state()
    assert state is not None
    for one in state["watching"]:
        if one["workspace"] == str(daemon.workspace):
            return dict(one)
    return {"watched": False, "suspects": 0, "why_not": "never heard of"}


def log(daemon: Daemon) -> list[dict[str, Any]]:
    """Oldest first."""
    said = daemon.run("log", "--json")
    return list(reversed(json.loads(said.stdout)["commands"]))


def kinds(daemon: Daemon) -> list[str]:
    return [entry["kind"] for entry in log(daemon)]


def changed(daemon: Daemon, entry: dict[str, Any]) -> set[str]:
    said = json.loads(daemon.run("diff", entry["command_id"], "--json").stdout)
    return {one["path"] for one in said["files"]}


def is_settled(daemon: Daemon) -> bool:
    found = watching(daemon)
    return bool(found["watched"]) and found["suspects"] == 0


def test_an_edit_before_a_command_is_recorded_before_it(daemon: Daemon) -> None:
    (daemon.workspace / "src/a").write_bytes(b"by hand\n")
    (daemon.workspace / "fresh/deep").mkdir(parents=True)
    (daemon.workspace / "fresh/deep/c").write_bytes(b"by hand\n")
    span = done(daemon, "echo two >> src/a; echo two > src/b")
    assert span["base_known"] == "watched"
    assert kinds(daemon) == ["baseline", "command", "external", "command"]
    *_, outside, command = log(daemon)
    assert changed(daemon, outside) == {"src/a", "fresh/deep/c"}
    assert changed(daemon, command) == {"src/a", "src/b"}
    assert command["substrate_git_commit"] == span["substrate_git_commit"]
    daemon.run("undo")
    assert (daemon.workspace / "src/a").read_bytes() == b"by hand\n"


def asked(daemon: Daemon, *words: str) -> dict[str, Any]:
    said = daemon.run(*words, "--json")
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout))


@pytest.mark.needs("strace")
def test_checkpoint_and_undo_of_a_watched_tree_need_no_scan(daemon: Daemon, tmp_path: Path) -> None:
    """Proved by the names that the call looks at."""
    (daemon.workspace / "src/quiet").write_bytes(b"1\n")
    done(daemon, "echo two >> src/a")
    until(lambda: is_settled(daemon), "the end of its looking")
    (daemon.workspace / "src/c").write_bytes(b"by hand\n")
    seen = tmp_path / "seen"
    traced = ["strace", "-f", "-qq", "-o", str(seen), "-e", "trace=%file"]
    daemon.program = [*traced, *daemon.program]
    assert asked(daemon, "checkpoint")["base_known"] == "watched"
    daemon.program = daemon.program[len(traced) :]
    assert b'"c"' in seen.read_bytes()
    assert b'"quiet"' not in seen.read_bytes(), "a scan looks at every file"
    assert changed(daemon, log(daemon)[-1]) == {"src/c"}, "the edit by hand comes before the mark"
    undone = asked(daemon, "undo")
    assert (undone["base_known"], undone["restored"]) == ("watched", ["src/a"])
    assert (daemon.workspace / "src/a").read_bytes() == b"one\n"
    assert (daemon.workspace / "src/c").read_bytes() == b"by hand\n"
    rehearsed = asked(daemon, "redo", "--dry-run")
    assert (rehearsed["base_known"], rehearsed["restored"]) == ("watched", ["src/a"])
    assert asked(daemon, "rollback", "--checkpoint", "1", "--exact")["base_known"] == "scanned"


def test_a_checkpoint_has_edits_that_the_kernel_does_not_report(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Through a hard link from outside the tree, and through a memory mapping that stays open."""
    beyond = tmp_path / "beyond"
    beyond.write_bytes(b"linked\n")
    (daemon.workspace / "src/mapped").write_bytes(b"old\n")
    os.link(beyond, daemon.workspace / "src/linked")
    done(daemon, "true")
    until(lambda: is_settled(daemon), "the end of its looking")
    beyond.write_bytes(b"through another name\n")
    asked(daemon, "checkpoint")
    assert changed(daemon, log(daemon)[-1]) == {"src/linked"}
    with (daemon.workspace / "src/mapped").open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 4)
    with mapping:
        for word in (b"new\n", b"two\n"):
            mapping[:] = word
            asked(daemon, "checkpoint")
            assert changed(daemon, log(daemon)[-1]) == {"src/mapped"}
        entries = len(log(daemon))
        asked(daemon, "checkpoint")
        assert len(log(daemon)) == entries, "nothing has changed since"


def test_undo_scans_when_the_watchers_report_is_wrong(daemon: Daemon, tmp_path: Path) -> None:
    lines = [b"%d\n" % number for number in range(20)]
    (daemon.workspace / "src/b").write_bytes(b"".join(lines))
    done(daemon, "sed -i 1s/0/zero/ src/b")
    beyond = tmp_path / "beyond"
    os.link(daemon.workspace / "src/b", beyond)
    done(daemon, "true")
    until(lambda: is_settled(daemon), "the end of its looking")
    with beyond.open("ab") as file:
        file.write(b"through another name\n")
    undone = asked(daemon, "undo")
    assert (undone["base_known"], undone["merged"]) == ("scanned", ["src/b"])
    expected = b"".join([*lines, b"through another name\n"])
    assert (daemon.workspace / "src/b").read_bytes() == expected
    assert kinds(daemon)[-2:] == ["external", "undo"]


def test_edits_of_a_quiet_morning_are_recorded_without_a_command(daemon: Daemon) -> None:
    (daemon.workspace / "src/a").write_bytes(b"first\n")
    until(lambda: len(log(daemon)) == 3, "the first edit in the log")
    (daemon.workspace / "src/b").unlink()
    until(lambda: len(log(daemon)) == 4, "the second one")
    assert kinds(daemon) == ["baseline", "command", "external", "external"]
    _, _, first, second = log(daemon)
    assert (changed(daemon, first), changed(daemon, second)) == ({"src/a"}, {"src/b"})
    assert first["ts"] < second["ts"]
    assert watching(daemon)["recorded"] >= second["ts"]


def test_an_edit_under_one_name_of_a_file_is_found_under_the_other(daemon: Daemon) -> None:
    os.link(daemon.workspace / "src/a", daemon.workspace / "other-name")
    done(daemon, "true")
    until(lambda: is_settled(daemon), "the end of its looking")
    with (daemon.workspace / "other-name").open("ab") as file:
        file.write(b"more\n")
    until(lambda: len(log(daemon)) == 5, "the edit in the log")
    assert changed(daemon, log(daemon)[-1]) == {"src/a", "other-name"}


def test_our_own_changes_are_not_external_edits(daemon: Daemon) -> None:
    """A command's change comes into the tree, and an undo's: the watcher sees both."""
    span = done(daemon, "mkdir -p made/by; seq 300 | xargs -I_ touch made/by/_; rm src/b")
    assert span["base_known"] == "watched"
    done(daemon, "chmod 700 src; echo x >> src/a")
    daemon.run("undo")
    done(daemon, "true", "--no-world")
    until(lambda: is_settled(daemon), "the end of its looking")
    assert kinds(daemon) == ["baseline", "command", "command", "command", "undo", "command"]


def test_a_command_on_the_real_files_is_not_an_outside_edit(daemon: Daemon) -> None:
    go = daemon.workspace / "go"
    os.mkfifo(go)
    script = "echo direct > src/a; touch made; cat go > /dev/null"
    running = daemon.start("run", "--no-world", "--", "sh", "-c", script)
    until((daemon.workspace / "made").exists, "its change")
    assert done(daemon, "true")["base_known"] == "assumed", "whose edits these are is not known yet"
    go.write_bytes(b"now")
    running.communicate(timeout=60)
    assert running.returncode == 0
    direct = next(entry for entry in log(daemon) if "echo direct" in entry["command"])
    assert {"src/a", "made"} <= changed(daemon, direct)
    until(lambda: is_settled(daemon), "the end of its looking")
    assert "external" not in [e["kind"] for e in log(daemon) if "src/a" in changed(daemon, e)]


def test_other_rules_and_a_tree_that_moved_are_watched_again(daemon: Daemon) -> None:
    (daemon.workspace / ".substrateignore").write_bytes(b"*.log\n")
    (daemon.workspace / "src/x.log").write_bytes(b"left out\n")
    (daemon.workspace / "src/y").write_bytes(b"not left out\n")
    until(lambda: is_settled(daemon) and len(log(daemon)) == 3, "the new rules")
    assert changed(daemon, log(daemon)[-1]) == {".substrateignore", "src/y"}
    (daemon.workspace / "src/z.log").write_bytes(b"left out\n")
    assert done(daemon, "true")["base_known"] == "watched"
    assert len(log(daemon)) == 4

    elsewhere = daemon.workspace.with_name("elsewhere")
    daemon.workspace.rename(elsewhere)
    daemon.workspace.mkdir()
    assert done(daemon, "true")["base_known"] == "scanned", "another place under the same name"
    moved = Daemon(daemon.directory.parents[1], elsewhere)
    assert done(moved, "true")["base_known"] == "assumed"
    until(lambda: watching(moved)["watched"], "watching under the new name")


def test_a_caller_that_is_not_ours_is_not_answered(daemon: Daemon) -> None:
    """A process that could report its edits as recorded could hide them."""
    asking = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.connect(sys.argv[1]); s.send(b'S'); print(len(s.recv(65536)))"
    )
    words = [sys.executable, "-c", asking, str(daemon.directory / "watch.sock")]
    assert subprocess.run(words, capture_output=True, check=True).stdout != b"0\n"
    sandboxed = subprocess.run(
        ["setpriv", "--no-new-privs", *words], capture_output=True, check=False
    )
    assert sandboxed.stdout in (b"", b"0\n"), "closed without a word"
    assert (daemon.directory / "watch.sock").stat().st_mode & 0o777 == 0o600
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as rude:
        rude.connect(str(daemon.directory / "watch.sock"))
        rude.send(b"\xff" * 5000)
        assert rude.recv(10) == b""
    until(lambda: done(daemon, "true")["base_known"] == "watched", "an answer to who is ours")


def test_a_watcher_that_dies_is_replaced_and_one_whose_daemon_dies_goes(tmp_path: Path) -> None:
    with daemon_in(tmp_path) as own:
        own.serve()
        done(own, "true")
        until(lambda: watching(own)["watched"], "watching")
        state = own.state()
        assert state is not None
        os.kill(state["watcher_pid"], signal.SIGKILL)
        (own.workspace / "f").write_bytes(b"meanwhile\n")
        assert done(own, "true")["base_known"] in ("assumed", "watched")
        until(lambda: done(own, "true")["base_known"] == "watched", "another watcher")
        assert ["f"] in [sorted(changed(own, e)) for e in log(own) if e["kind"] == "external"]
        os.kill(own.pid, signal.SIGKILL)
        until(lambda: not pids_with(f"SUBSTRATE_SOCKET={own.socket}"), "the end of all of it")


def test_an_editor_and_three_agents_at_once(daemon: Daemon) -> None:
    """Each has its own files: no work is attributed to another, and none is lost."""
    root = daemon.workspace
    for name in ("by-hand", "c0", "c1", "c2"):
        (root / name).mkdir()
    stop = threading.Event()
    saved: dict[str, bytes] = {}

    def edit() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name, text = f"by-hand/f{number % 5}", b"%d\n" % number
            if number % 3:
                (root / name).write_bytes(text)
            else:  # as most editors do it
                (root / "by-hand/.new").write_bytes(text)
                (root / "by-hand/.new").rename(root / name)
            saved[name] = text
            stop.wait(0.03)

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        for round_ in range(4):
            calls = [
                daemon.start(
                    "--session", f"s-{n}", "-c", f"echo {round_} >> c{n}/log; date > c{n}/d"
                )
                for n in range(3)
            ]
            for call in calls:
                assert call.communicate(timeout=PATIENCE_S)[1] == b""
                assert call.returncode == 0
    finally:
        stop.set()
        editor.join()
    until(lambda: is_settled(daemon), "the end of its looking")
    for entry in log(daemon)[1:]:
        tops = {path.split("/")[0] for path in changed(daemon, entry)}
        if entry["kind"] == "external":
            assert tops <= {"by-hand", "c0", "c1", "c2"}
            assert not any(path.startswith("c") for path in changed(daemon, entry) if "/" in path)
        elif tops:
            assert tops == {"c" + entry["session_id"].removeprefix("s-")}
    assert {name: (root / name).read_bytes() for name in saved} == saved
    assert [(root / f"c{n}/log").read_text() for n in range(3)] == ["0\n1\n2\n3\n"] * 3
    said = json.loads(daemon.run("status", "--json").stdout)
    assert said["outside_changes"] == []
    assert daemon.run("fsck").returncode == 0
