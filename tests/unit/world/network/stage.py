"""A network for one test: a namespace of its own, with addresses, names and servers.

Run as a program: JSON on stdin says what to set up and what to run there (see `Stage`), JSON on
stdout what came of it. A process of its own, because a test runner has threads and the command
is forked; and because nothing here may reach a real network, whatever the machine has.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[4]
sys.path[:0] = [str(ROOT)]

from substrate.system.linux import netns, seccomp_passthrough  # noqa: E402
from substrate.world.network.enclosure import dns  # noqa: E402
from substrate.world.network.observe import supervisor  # noqa: E402
from tests.unit.world.network.launcher import Ran, run, run_with_killed_supervisor  # noqa: E402

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
RESOLVER = "192.0.2.53"
SYSTEM_PYTHON = "/usr/bin/python3"


class Stage(NamedTuple):
    """What a test wants around its command."""

    net: str
    argv: list[str]
    #: (protocol, address, port): each says ``hello`` to every client.
    servers: tuple[tuple[str, str, int], ...] = ()
    #: Names that the DNS server at `RESOLVER` knows.
    zone: Mapping[str, list[str]] = MappingProxyType({})
    #: Lines of ``/etc/hosts``.
    hosts: str = "127.0.0.1 localhost\n"
    nameservers: tuple[str, ...] = (RESOLVER,)
    #: All of it as this user: the supervisor, and the command in a user namespace.
    uid: int | None = None
    #: The supervisor is killed before the command starts.
    kill_supervisor: bool = False
    #: The servers stay until this file is there.
    linger_for: str = ""
    #: The supervisor has a bug.
    plant_fault: bool = False
    #: No network namespace can be made any more.
    no_namespaces: bool = False

    def run(self) -> Ran:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__],
            input=json.dumps({**self._asdict(), "zone": dict(self.zone)}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return Ran(
            answer["status"], answer["out"], tuple(answer["scopes"]), tuple(answer["denied"]),
            answer["notice"], tuple(answer["failed"]),
        )  # fmt: skip


def _become_user(uid: int) -> None:
    """What a user of their own would read from their own install is copied where all can read."""
    for module in (netns, seccomp_passthrough):
        copy = Path(tempfile.mkdtemp()) / "script.py"
        copy.parent.chmod(0o755)
        copy.write_text(Path(str(module.__file__)).read_text())
        module.__file__ = str(copy)
    sys.executable = SYSTEM_PYTHON
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Changing the user makes a process's memory its own secret; exec would undo that.
    assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0


def _set_up(stage: Stage) -> None:
    try:
        netns.unshare(CLONE_NEWNS | netns.CLONE_NEWNET)
    except PermissionError:
        uid, gid = os.getuid(), os.getgid()
        netns.unshare(netns.CLONE_NEWUSER | CLONE_NEWNS | netns.CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    netns.loopback_up()
    for _, address, _ in (*stage.servers, ("dns", RESOLVER, 53)):
        if ":" not in address and not address.startswith("127."):
            netns.add_address(address, 32)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    lines = "".join(f"nameserver {each}\n" for each in stage.nameservers)
    for path, text in (
        ("/etc/hosts", stage.hosts),
        ("/etc/resolv.conf", lines + "options timeout:2 attempts:1\n"),
        ("/etc/nsswitch.conf", "hosts: files dns\npasswd: files\ngroup: files\n"),
    ):
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            file.write(text)
        Path(file.name).chmod(0o644)
        real = os.path.realpath(path)
        assert libc.mount(file.name.encode(), real.encode(), None, MS_BIND, None) == 0, path
        Path(file.name).unlink()


def _serve(stage: Stage) -> int:
    """All servers, in one child; its pid."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell)
        assert os.read(ready, 1) == b"r", "the servers did not start"
        os.close(ready)
        return pid
    try:
        for protocol, address, port in stage.servers:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if protocol == "tcp":
                listener = socket.create_server((address, port), family=family, backlog=256)
                threading.Thread(target=_serve_tcp, args=(listener,)).start()
            else:
                datagrams = socket.socket(family, socket.SOCK_DGRAM)
                datagrams.bind((address, port))
                threading.Thread(target=_serve_udp, args=(datagrams,)).start()
        for target, kind in ((_serve_dns, socket.SOCK_DGRAM), (_serve_dns_tcp, socket.SOCK_STREAM)):
            resolver = socket.socket(socket.AF_INET, kind)
            resolver.bind((RESOLVER, 53))
            if kind == socket.SOCK_STREAM:
                resolver.listen(64)
            threading.Thread(target=target, args=(resolver, stage.zone)).start()
        os.write(tell, b"r")
        signal.pause()
    finally:
        os._exit(1)


def _serve_tcp(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_greet, args=(connection,)).start()


def _greet(connection: socket.socket) -> None:
    """Say hello, then echo everything until the other side ends."""
    with connection:
        try:
            connection.sendall(b"hello\n")
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass


def _serve_udp(datagrams: socket.socket) -> None:
    while True:
        message, sender = datagrams.recvfrom(65536)
        datagrams.sendto(b"hello " + message, sender)


def _serve_dns(resolver: socket.socket, zone: Mapping[str, list[str]]) -> None:
    while True:
        message, sender = resolver.recvfrom(65536)
        answer = _dns_answer(message, zone)
        if answer:
            resolver.sendto(answer, sender)


def _serve_dns_tcp(resolver: socket.socket, zone: Mapping[str, list[str]]) -> None:
    while True:
        connection, _ = resolver.accept()
        with connection:
            size = struct.unpack(">H", connection.recv(2, socket.MSG_WAITALL))[0]
            answer = _dns_answer(connection.recv(size, socket.MSG_WAITALL), zone)
            connection.sendall(struct.pack(">H", len(answer)) + answer)


def _dns_answer(message: bytes, zone: Mapping[str, list[str]]) -> bytes:
    question = dns.parse_question(message)
    if question is None:
        return b""
    if question.name not in zone:
        return dns.reply(message, question, dns.NXDOMAIN)
    wanted = tuple(
        address
        for address in zone[question.name]
        if (":" in address) == (question.type == dns.TYPE_AAAA)
    )
    return dns.reply(message, question, dns.NOERROR, wanted)


def _forbid_namespaces() -> None:
    """In a new user namespace we can set the limit without affecting other processes."""
    uid = os.getuid()
    netns.unshare(netns.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/sys/user/max_net_namespaces").write_text("0")


def _planted(*_: object) -> NoReturn:
    raise KeyError("planted")


def _wait_for(path: str) -> None:
    for _ in range(300):
        if not path or (Path(path).exists() and Path(path).read_text()):
            return
        time.sleep(0.1)


def main() -> None:
    said = json.loads(sys.stdin.read())
    stage = Stage(**said)
    # Few enough that a descriptor kept for every lookup or connection is found out.
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    if stage.uid is not None:
        _become_user(stage.uid)
    _set_up(stage)
    servers = _serve(stage)
    if stage.plant_fault:
        vars(supervisor)["decode"] = _planted
    if stage.no_namespaces:
        _forbid_namespaces()
    try:
        if stage.kill_supervisor:
            ran = run_with_killed_supervisor(stage.net, stage.argv)
        else:
            ran = run(stage.net, stage.argv, user_namespace=stage.uid is not None)
        _wait_for(stage.linger_for)
    finally:
        os.kill(servers, signal.SIGKILL)
        os.waitpid(servers, 0)
    sys.stdout.write(json.dumps(ran._asdict()))


if __name__ == "__main__":
    main()
