"""The network of real commands: by the command line, in the worlds that this machine can have.

The servers are this test's own, on the machine's loopback. Escapes from ``--net off`` are tried
in every tier, and each is proved to be a way out where the network is open.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.needs("netns"), pytest.mark.needs("overlay")]

CONNECT = """
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20).recv(5).decode())
"""
TIERS = ("workspace", "guarded", "full")


class Done(NamedTuple):
    status: int
    out: str
    err: str
    span: dict[str, Any]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "file").write_text("text\n")
    return root


@pytest.fixture
def server() -> Iterator[int]:
    """A server that says hello to every client; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"hello")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def substrate(workspace: Path, *words: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "substrate", *words],
        cwd=workspace,
        capture_output=True,
        text=True,
        env={**os.environ, "SUBSTRATE_DAEMON": "off"},
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    trace = Path(os.environ["SUBSTRATE_HOME"], "trace.jsonl")
    lines = trace.read_text().splitlines() if trace.exists() else ["{}"]
    return Done(done.returncode, done.stdout, done.stderr, json.loads(lines[-1]))


def python(code: str, *words: object) -> list[str]:
    return ["python3", "-c", code, *map(str, words)]


def test_a_command_is_watched_unless_asked_otherwise(workspace: Path, server: int) -> None:
    done = substrate(workspace, "run", "--", *python(CONNECT, "localhost", server))
    assert (done.status, done.out) == (0, "hello\n"), done.err
    assert done.span["scopes_used"] == [f"tcp:localhost:{server}"]
    assert done.span["isolation"]["network"] == "open"
    assert "net_denied" not in done.span


def test_off_is_enforced_and_reported(workspace: Path, server: int) -> None:
    done = substrate(workspace, "run", "--net", "off", "--", *python(CONNECT, "127.0.0.1", server))
    assert done.status == 1
    assert "refused" in done.err
    assert done.span["isolation"]["network"] == "off"
    denied = substrate(workspace, "run", "--net", "off", "--", *python(CONNECT, "192.0.2.1", 80))
    assert denied.span["net_denied"] == ["tcp:192.0.2.1:80"]
    assert denied.span["scopes_used"] == []


def test_allow_reaches_what_it_lists_and_changes_arrive(workspace: Path, server: int) -> None:
    code = CONNECT + "open('made', 'w').write('x')"
    net = f"allow:127.0.0.1:{server}"
    done = substrate(workspace, "run", "--net", net, "--", *python(code, "127.0.0.1", server))
    assert (done.status, done.out) == (0, "hello\n"), done.err
    assert done.span["scopes_used"] == [f"tcp:127.0.0.1:{server}"]
    assert done.span["isolation"]["network"] == net
    assert (workspace / "made").read_text() == "x"


@pytest.mark.parametrize("net", ["off", "allow:example.com:443"])
def test_without_a_world_nothing_that_must_be_held_is_run(workspace: Path, net: str) -> None:
    done = substrate(workspace, "run", "--no-world", "--net", net, "--", "touch", "made")
    assert done.status == 125
    assert "--net" in done.err
    assert "hint: " in done.err
    assert not (workspace / "made").exists()


def test_inside_a_world_nothing_that_must_be_held_is_run(workspace: Path) -> None:
    nested = [sys.executable, "-m", "substrate", "run", "--net", "off", "--", "touch", "made"]
    done = substrate(workspace, "run", "--", *nested)
    assert done.status == 125
    assert not (workspace / "made").exists()


def test_words_that_are_not_understood_run_nothing(workspace: Path) -> None:
    done = substrate(workspace, "run", "--net", "closed", "--", "touch", "made")
    assert done.status == 125
    assert "--net" in done.err
    assert not (workspace / "made").exists()


#: Each prints "out" if it got out; argv: the port of the server, the abstract name.
ATTACKS = {
    "another process's namespace": """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    try:
        fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except OSError:
        continue
    libc.setns(fd, 0x40000000)
    try:
        if socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).recv(5) == b"hello":
            print("out"); break
    except OSError:
        pass
""",
    "an inherited socket": """
import os, socket, sys
for fd in range(3, 256):
    try:
        made = socket.socket(fileno=os.dup(fd))
        made.connect(("127.0.0.1", int(sys.argv[1])))
        if made.recv(5) == b"hello": print("out"); break
    except OSError:
        pass
else:
    try:
        if socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).recv(5) == b"hello":
            print("out")
    except OSError:
        pass
""",
    "an abstract unix socket": """
import socket, sys
made = socket.socket(socket.AF_UNIX)
try:
    made.connect("\\0" + sys.argv[2])
    if made.recv(5) == b"hello": print("out")
except OSError:
    pass
""",
    "a route of its own": """
import os, socket, subprocess, sys
for words in ("link set lo up", "link add veth0 type veth", "route add default dev lo",
              "addr add 127.0.0.1/8 dev lo"):
    try:
        subprocess.run(["ip", *words.split()], capture_output=True)
    except OSError:
        pass
try:
    if socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).recv(5) == b"hello":
        print("out")
except OSError:
    pass
""",
}


@pytest.fixture
def abstract() -> Iterator[str]:
    """A server at an abstract address, which only a network namespace keeps apart."""
    name = f"substrate-test-{os.getpid()}-{os.urandom(4).hex()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(8)

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"hello")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield name
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


@pytest.mark.parametrize("attack", ATTACKS)
def test_there_is_no_way_out_of_off(
    workspace: Path, server: int, abstract: str, attack: str
) -> None:
    argv = python(ATTACKS[attack], server, abstract)
    bare = substrate(workspace, "run", "--no-world", "--", *argv)
    assert bare.out == "out\n", "the attack is none"
    for tier in TIERS:
        held = substrate(workspace, "run", "--isolate", tier, "--net", "off", "--", *argv)
        assert held.span["isolation"]["tier"] == tier
        assert "out" not in held.out, (tier, held)
