"""Hostile clients of the sockets: other users, nonsense, floods. Refused, bounded, and survived."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.daemon_http import Answer, connected, drained, raw, request
from tests.daemons import Daemon, daemon_in, until

pytestmark = pytest.mark.needs("linux")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("daemon")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as started:
        yield started.serve()


@pytest.fixture(autouse=True)
def still_up(daemon: Daemon) -> Iterator[None]:
    """After each attack: the same processes serve, and have not grown."""
    assert request(daemon.socket, "GET", "/v1/capabilities").status == 200
    before = daemon.state()
    assert before
    yield
    until(lambda: _answers(daemon))
    after = daemon.state()
    assert after
    assert (after["pid"], after["server_pid"]) == (before["pid"], before["server_pid"])
    for pid in (after["pid"], after["server_pid"]):
        assert _resident_mib(pid) < 250


def _answers(daemon: Daemon) -> bool:
    try:
        return request(daemon.socket, "GET", "/v1/capabilities").status == 200
    except (OSError, HTTPException):  # it is still busy with the crowd
        return False


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def execute(daemon: Daemon, body: object) -> Answer:
    return request(daemon.socket, "POST", "/v1/execute", body)


# ------------------------------------------------------------------ identity

_AS_NOBODY = """
import os, socket, sys
fd = os.open(sys.argv[1], os.O_PATH)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
kind = socket.SOCK_SEQPACKET if sys.argv[2] == "watch.sock" else socket.SOCK_STREAM
s = socket.socket(socket.AF_UNIX, kind)
s.settimeout(20)
try:
    s.connect(f"/proc/self/fd/{fd}/{sys.argv[2]}")
    s.sendall(sys.argv[3].encode())
    print("answer", s.recv(100))
except OSError as error:
    print("error", error.__class__.__name__)
"""

_GET = "GET /v1/capabilities HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _as_nobody(directory: Path, name: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(directory), name, _GET],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip


@pytest.mark.needs("other-user")
def test_another_user_cannot_connect(daemon: Daemon) -> None:
    for path in (daemon.socket, daemon.directory / "door.sock", daemon.directory / "watch.sock"):
        assert _as_nobody(path.parent, path.name) == "error PermissionError"


@pytest.mark.needs("other-user")
def test_another_user_is_refused_even_if_the_modes_let_it_in(daemon: Daemon) -> None:
    for path in (daemon.socket, daemon.directory / "door.sock", daemon.directory / "watch.sock"):
        modes = path.parent.stat().st_mode
        path.chmod(0o666)
        path.parent.chmod(0o755)
        try:
            said = _as_nobody(path.parent, path.name)
            assert said in ("answer b''", "error ConnectionResetError", "error BrokenPipeError")
        finally:
            path.chmod(0o600)
            path.parent.chmod(modes)


@pytest.mark.needs("other-user")
def test_a_client_does_not_trust_another_users_daemon(daemon: Daemon, tmp_path: Path) -> None:
    """A directory that others can write to may contain another user's socket."""
    daemon.directory.chmod(0o777)
    served = Path(daemon.directory, "state.json").read_text()
    try:
        done = daemon.run("-c", "echo ran", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, b"ran\n")
    finally:
        daemon.directory.chmod(0o700)
    assert Path(daemon.directory, "state.json").read_text() == served


_STOP = """
import sys
from pathlib import Path
from substrate.daemon.server.lifecycle import ask
try:
    print("answer", ask(Path(sys.argv[1]), b"stop"))
except (OSError, EOFError) as error:
    print("error")
"""


@pytest.mark.needs("root")
def test_a_caller_that_has_fewer_rights_cannot_stop_it(daemon: Daemon) -> None:
    """A command in a world does not even see the door; one in a sandbox is not heard."""
    words = [sys.executable, "-c", _STOP, str(daemon.directory / "door.sock")]
    done = daemon.run("run", "--", *words)
    assert done.stdout == b"error\n"
    sandboxed = subprocess.run(
        ["setpriv", "--no-new-privs", *words], capture_output=True, check=True, env=daemon.env
    )
    assert sandboxed.stdout == b"error\n"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "10.0.0.1"},
        {"Host": "localhost", "Origin": "http://evil.example"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "localhost", "Origin": "http://localhost.evil.example"},
        {"Host": "[::1", "Origin": "http://["},
        {"Host": "evil.example@localhost"},
        {"Host": "localhost", "Origin": "file://"},
        {"Host": "localhost", "Origin": "evil.example"},
    ],
)
def test_a_web_page_gets_nothing(daemon: Daemon, headers: dict[str, str], tmp_path: Path) -> None:
    body = {"cmd": "touch ran", "cwd": str(tmp_path)}
    answer = request(daemon.socket, "POST", "/v1/execute", body, headers)
    assert (answer.status, answer.error["kind"]) == (403, "refused")
    assert not (tmp_path / "ran").exists()


def test_two_hosts_are_one_too_many(daemon: Daemon) -> None:
    said = raw(
        daemon.socket,
        b"GET /v1/capabilities HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
        b"Connection: close\r\n\r\n",
    )
    assert said.split(b"\r\n")[0].split()[1] in (b"400", b"403")


def test_a_request_with_two_lengths_hides_no_other(daemon: Daemon) -> None:
    hidden = b"GET /v1/capabilities HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = raw(
        daemon.socket,
        b"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Length: %d\r\n\r\n0\r\n\r\n" % (len(hidden) + 5) + hidden,
    )
    assert said.split(b"\r\n")[0].split()[1] in (b"400", b"403")
    assert said.count(b"HTTP/1.1 ") == 1


# ------------------------------------------------------------------ what it says

MALFORMED = [
    b"\r\n\r\n\r\n",
    b"\0" * 1000 + b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /v1/capabilities HTTP/1.1\r\nHost localhost\r\n\r\n",
    b"GET /v1/capabilities HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
    b"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/execute HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    b"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 500,
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_nonsense_is_an_error_and_the_end_of_the_connection(daemon: Daemon, data: bytes) -> None:
    with connected(daemon.socket) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was closed while we were still talking
        said = drained(connection)
    assert not said or said.split(b" ")[1][:1] in (b"4", b"5")


def test_noise(daemon: Daemon) -> None:
    noise = random.Random(7)
    for _ in range(30):
        with connected(daemon.socket) as connection:
            try:
                connection.sendall(noise.randbytes(noise.randrange(1, 5000)))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            drained(connection)


def test_noise_at_the_door(daemon: Daemon) -> None:
    noise = random.Random(8)
    heads = [b"", b"SBD1", b"SBD1\xff\xff\xff\xff", b"SBD1\x00\x00\x00\x05run\x00\x00"]
    for number in range(24):
        with connected(daemon.directory / "door.sock") as connection:
            try:
                connection.sendall(heads[number % 4] + noise.randbytes(noise.randrange(0, 2000)))
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            assert drained(connection) == b""


def test_a_large_body_is_refused_unread(daemon: Daemon) -> None:
    big = b'{"cmd": "true", "x": "' + b"a" * 3_000_000 + b'"}'
    try:
        answer = request(daemon.socket, "POST", "/v1/execute", big)
        assert answer.status == 413
    except (ConnectionResetError, BrokenPipeError):
        pass  # it did not wait for the rest


def test_a_body_without_an_end(daemon: Daemon) -> None:
    with connected(daemon.socket) as connection:
        connection.sendall(
            b"POST /v1/execute HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        sent = 0
        try:
            while sent < 64 * 1024 * 1024:
                connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
                sent += 0x10000
        except OSError:
            pass
        assert sent < 16 * 1024 * 1024


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"cmd": "true", "env": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"cmd": ' + b"9" * 100_000 + b"}",
    ],
    ids=["brackets", "objects", "forty", "digits"],
)
def test_deep_or_heavy_json_is_refused(daemon: Daemon, body: bytes) -> None:
    answer = execute(daemon, body)
    assert (answer.status, answer.error["kind"]) == (400, "usage")


def test_brackets_in_text_are_not_depth(daemon: Daemon, tmp_path: Path) -> None:
    cmd = "echo '" + "[{" * 200 + '\\"\\\\' + "'"
    assert execute(daemon, {"cmd": cmd, "cwd": str(tmp_path)}).document["exit"] == 0


# ------------------------------------------------------------------ how it behaves


def test_headers_that_do_not_come_are_not_waited_for(daemon: Daemon) -> None:
    slow = [connected(daemon.socket) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(b"GET /v1/capabilities HTTP/1.1\r\nHo")
        assert request(daemon.socket, "GET", "/v1/capabilities").status == 200
        for connection in slow:  # dripping on does not help
            try:
                connection.sendall(b"s")
            except OSError:
                continue
        for connection in slow:
            assert drained(connection) == b""
    finally:
        for connection in slow:
            connection.close()


def test_more_connections_than_it_takes(daemon: Daemon) -> None:
    crowd = []
    try:
        for _ in range(300):
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            crowd.append(connection)
            fd = os.open(daemon.socket.parent, os.O_PATH)
            try:
                connection.connect(f"/proc/self/fd/{fd}/{daemon.socket.name}")
            except (BlockingIOError, ConnectionRefusedError):
                pass
            finally:
                os.close(fd)
    finally:
        for connection in crowd:
            connection.close()


_UPGRADE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def test_websockets_that_never_start_leave_room_for_others(daemon: Daemon) -> None:
    crowd = []
    try:
        for _ in range(128):
            connection = connected(daemon.socket)
            crowd.append(connection)
            connection.sendall(_UPGRADE)
            assert connection.recv(12).startswith(b"HTTP/1.1 "), "it is answered"
        assert request(daemon.socket, "GET", "/v1/capabilities").status == 200
        # An idle one is closed, and says why.
        assert b"no start came" in drained(crowd[0])
    finally:
        for connection in crowd:
            connection.close()
    assert request(daemon.socket, "GET", "/v1/capabilities").status == 200


def test_too_many_commands_at_once_get_an_answer_to_come_back(
    daemon: Daemon, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    project = tmp_path / "project"
    project.mkdir()
    statuses: list[int] = []

    def one() -> None:
        # The gate is outside the project: inside, each world would have one of its own.
        body = {"cmd": f"read line < {gate}; true", "cwd": str(project)}
        statuses.append(execute(daemon, body).status)

    threads = [threading.Thread(target=one) for _ in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: statuses.count(429) >= 8, "the refusal")
    writers = [os.open(gate, os.O_RDWR)]
    deadline = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        os.write(writers[0], b"go\n" * 24)
        time.sleep(0.1)
    os.close(writers[0])
    for thread in threads:
        thread.join(60)
    assert (statuses.count(200), statuses.count(429)) == (16, 8)
    assert execute(daemon, {"cmd": "true", "cwd": str(tmp_path)}).status == 200


def test_a_reader_that_stops_does_not_make_the_server_grow(daemon: Daemon, tmp_path: Path) -> None:
    with connected(daemon.socket) as connection:
        body = json.dumps({"cmd": "yes", "cwd": str(tmp_path)}).encode()
        head = b"POST /v1/execute/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        connection.recv(1000)
        state = daemon.state()
        assert state
        before = _resident_mib(state["server_pid"])
        time.sleep(2)  # `yes` would have printed gigabytes
        assert _resident_mib(state["server_pid"]) < before + 30
    until(lambda: daemon.completed() and daemon.completed()[-1]["outcome"] == "killed", "its end")


def test_a_cancelled_command_that_no_client_started(daemon: Daemon) -> None:
    for body in ({"span_id": "spn_x"}, {"span_id": None}, {"span_id": {"a": 1}}, {}):
        assert request(daemon.socket, "POST", "/v1/execute/cancel", body).status == 404
