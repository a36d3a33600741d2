"""A daemon of the test's own: its socket, its home, and its certain end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
SUBSTRATE = [sys.executable, "-m", "substrate"]


def until(condition: Callable[[], object], what: str | Callable[[], str] = "it") -> None:
    """`what` may be a function, which is called only if the condition does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        in_time = time.monotonic() < deadline
        assert in_time, f"{what() if callable(what) else what} never happened"
        time.sleep(0.02)


class Daemon:
    """`substrate` with a daemon behind it; it starts by itself, or by `serve`."""

    def __init__(self, base: Path, workspace: Path, env: Mapping[str, str] | None = None) -> None:
        """`base` holds the daemon, which may be shared; the rest is this test's."""
        self.workspace = workspace
        self.program = SUBSTRATE
        self._started: list[subprocess.Popen[bytes]] = []
        self.socket = base / "daemon" / "s.sock"
        self.directory = base / "daemon" / "s.agent"
        self.trace = Path((env or os.environ)["SUBSTRATE_HOME"]) / "trace.jsonl"
        self.env = {
            **os.environ,
            "SUBSTRATE_DAEMON": "on",
            "SUBSTRATE_SOCKET": str(self.socket),
            "SUBSTRATE_DAEMON_IDLE_S": "120",
            **(env or {}),
        }

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """A call that goes on: pipes all around, no terminal in reach."""
        given: dict[str, Any] = {
            "cwd": self.workspace, "env": self.env, "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True,
        }  # fmt: skip
        given.update(options)
        process = subprocess.Popen([*self.program, *words], **given)
        self._started.append(process)
        return process

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        stdin = options.pop("input", None)
        if stdin is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*words, **options)
        out, err = process.communicate(stdin, timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def serve(self) -> Daemon:
        """Start it and wait until it answers."""
        self.start("daemon", "serve", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.state, "a daemon")
        return self

    def state(self) -> dict[str, Any] | None:
        done = self.run("daemon", "status", "--json")
        said = json.loads(done.stdout)
        return said if done.returncode == 0 else None

    @property
    def pid(self) -> int:
        """Of the daemon that serves now; 0 if none does."""
        try:
            return int(json.loads((self.directory / "state.json").read_text())["pid"])
        except FileNotFoundError:
            return 0

    def serves(self) -> bool:
        """Whether a command goes through the daemon now: it counts what it serves."""
        for _ in range(5):  # what another process took may be counted a moment later
            before = self.state()
            assert self.run("-c", "true").returncode == 0
            after = self.state()
            # One for the question, one for the command.
            if before and after and after["served"] - before["served"] == 2:
                return True
        return False

    def runners(self) -> list[int]:
        """The daemon's children that run commands now, as pids of this machine."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            # The HTTP server has another working directory.
            return [
                int(child)
                for child in children
                if Path(f"/proc/{child}/cwd").samefile(self.workspace)
            ]
        except OSError:
            return []  # it ended in between

    def worlds(self) -> list[Path]:
        """The directories of this workspace's worlds: beside its history, and those that no
        command uses yet, elsewhere."""
        beside = self.workspace / ".substrate-git" / "worlds"
        elsewhere = Path(self.env["SUBSTRATE_HOME"], "worlds")
        found = list(beside.iterdir()) if beside.is_dir() else []
        return found + [path for path in elsewhere.glob("*") if self._is_ours(path)]

    def _is_ours(self, world: Path) -> bool:
        try:
            root = json.loads((world / "meta.json").read_text())["root"]
        except OSError:  # being made, or going
            return False
        return bool(root == str(self.workspace))

    def spans(self) -> list[dict[str, Any]]:
        if not self.trace.exists():
            return []
        return [json.loads(line) for line in self.trace.read_text().splitlines()]

    def completed(self) -> list[dict[str, Any]]:
        return [span for span in self.spans() if span["event_type"] == "command_complete"]

    def end(self) -> None:
        """Stop it, and make sure that it is gone."""
        self.run("daemon", "stop")
        for pid in pids_with(f"SUBSTRATE_SOCKET={self.socket}"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._started:
            process.wait(PATIENCE_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def pids_with(entry: str) -> list[int]:
    """Processes of ours whose environment holds `entry`: the test's own, and no others."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if entry.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


def is_in_foreground(name: str, cwd: str) -> bool:
    """Whether a program of that name runs there and has the terminal."""
    for found in Path("/proc").glob("[0-9]*"):
        try:
            if (found / "comm").read_text() == f"{name}\n" and os.readlink(found / "cwd") == cwd:
                fields = (found / "stat").read_text().rpartition(")")[2].split()
                return fields[2] == fields[5]  # its process group is the terminal's
        except OSError:
            continue
    return False


@contextmanager
def daemon_in(base: Path, env: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    """A separate place for one daemon; everything started there ends with the context."""
    workspace = base / "project"
    workspace.mkdir()
    daemon = Daemon(base, workspace, env)
    try:
        yield daemon
    finally:
        daemon.end()
