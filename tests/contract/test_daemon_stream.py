"""A terminal over a WebSocket."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, unix_connect

from tests.daemon_http import connected
from tests.daemons import Daemon, daemon_in, is_in_foreground, until

pytestmark = pytest.mark.needs("linux")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("daemon")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as started:
        yield started.serve()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


class Terminal:
    """What a terminal program shows, and how it ended."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.shown = b""
        self.end: dict[str, Any] | None = None

    def say(self, kind: str, **fields: object) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def type(self, data: bytes) -> None:
        self.say("stdin", data_b64=base64.b64encode(data).decode())

    def until_shown(self, text: bytes) -> None:
        while text not in self.shown:
            self.step()

    def until_end(self) -> dict[str, Any]:
        while self.end is None:
            self.step()
        return self.end

    def step(self) -> None:
        try:
            message = json.loads(self.connection.recv(timeout=60))
        except TimeoutError:
            raise AssertionError(f"nothing more after {self.shown!r}") from None
        if message["type"] == "stdout":
            self.shown += base64.b64decode(message["data_b64"])
        else:
            assert self.end is None
            self.end = message


@contextmanager
def terminal(daemon: Daemon, **headers: str) -> Iterator[Terminal]:
    with unix_connect(
        None, "ws://localhost/v1/stream", sock=connected(daemon.socket),
        additional_headers=headers, compression=None,
    ) as connection:  # fmt: skip
        yield Terminal(connection)


def test_keys_sizes_and_the_end(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        cmd = "stty size; tty; read -r line; echo got:$line > made; stty size; exit 5"
        tty.say("start", cmd=cmd, cwd=str(project), env={"TERM": "dumb"}, cols=91, rows=17)
        tty.until_shown(b"17 91")
        tty.until_shown(b"/dev/pts/")
        tty.say("resize", cols=50, rows=11)
        tty.type(b"hello\r")
        end = tty.until_end()
    assert b"11 50" in tty.shown
    assert (end["type"], end["code"]) == ("exit", 5)
    assert end["fs_diff"]["writes"] == [str(project / "made")]
    assert end["span_id"].startswith("spn_")
    assert (project / "made").read_text() == "got:hello\n"


def test_ctrl_c_goes_through_the_terminal(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        tty.say("start", cmd="touch made; echo ready; exec sleep 60", cwd=str(project))
        tty.until_shown(b"ready")
        tty.type(b"\x03")
        end = tty.until_end()
    assert (end["code"], end["outcome"]) == (130, "killed")
    assert end["fs_diff"]["writes"] == [str(project / "made")]


def test_job_control_works_inside(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        env = {"TERM": "dumb", "HISTFILE": ""}
        tty.say("start", cmd="PS1='ready> ' bash --norc -i", cwd=str(project), env=env)
        tty.until_shown(b"ready> ")
        tty.type(b"sleep 60\r")
        until(lambda: is_in_foreground("sleep", str(project)), "the job")
        tty.type(b"\x1a")
        tty.until_shown(b"Stopped")
        tty.until_shown(b"sleep 60\r\nready> ")
        tty.type(b"kill -KILL %1; echo made > file; exit 3\rexit 3\r")
        end = tty.until_end()
    assert b"no job control" not in tty.shown
    assert end["code"] == 3
    assert end["fs_diff"]["writes"] == [str(project / "file")]


def test_a_signal_by_name(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        tty.say("start", cmd="echo ready; exec sleep 60", cwd=str(project))
        tty.until_shown(b"ready")
        tty.say("signal", sig="TERM")
        assert tty.until_end()["code"] == 143


def test_closing_hangs_up(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        told = project.parent / "told"  # outside the project, where a world hides nothing
        tty.say("start", cmd=f"touch {told}; sleep 60", cwd=str(project))
        until(told.exists)
    until(lambda: any(span["workspace"] == str(project) for span in daemon.completed()))


@pytest.mark.parametrize(
    "first",
    [
        {"type": "stdin", "data_b64": ""},
        {"type": "start"},
        {"type": "start", "cmd": "true", "cols": 0},
        {"type": "start", "cmd": "true", "cwd": "no"},
        {"cmd": "true"},
    ],
)
def test_a_wrong_start_is_an_error(daemon: Daemon, first: dict[str, Any]) -> None:
    with terminal(daemon) as tty:
        tty.connection.send(json.dumps(first))
        end = tty.until_end()
        assert end["type"] == "error"
        assert end["message"]
        with pytest.raises(ConnectionClosed):
            tty.connection.recv(timeout=60)


def test_a_wrong_message_ends_it(daemon: Daemon, project: Path) -> None:
    with terminal(daemon) as tty:
        tty.say("start", cmd="sleep 60", cwd=str(project))
        tty.say("stdin", data_b64="***")
        assert tty.until_end()["message"].startswith("data_b64")


def test_a_page_from_elsewhere_gets_no_terminal(daemon: Daemon) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}):
        with pytest.raises(InvalidStatus) as refused, terminal(daemon, **headers):
            pass
        assert refused.value.response.status_code == 403
    with terminal(daemon, Origin="http://localhost:8000") as tty:
        tty.say("start", cmd="true", cwd=os.sep + "tmp")
        assert tty.until_end()["code"] == 0
