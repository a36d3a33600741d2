"""``--net open``: every destination is written down, by the name that the program used.

Each test runs in a network namespace of its own, with its own servers and its own DNS.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from tests.unit.world.network.launcher import compiled, python, run
from tests.unit.world.network.programs import CONNECT, DATAGRAM, RING, STATIC, THIRTY_TWO
from tests.unit.world.network.stage import RESOLVER, SYSTEM_PYTHON, Stage

pytestmark = pytest.mark.needs("netns")

PUBLIC = "93.184.216.34"
SERVERS = (
    *(("tcp", PUBLIC, 443), ("udp", PUBLIC, 9), ("tcp", "127.0.0.1", 8000)),
    *(("tcp", "::1", 8000), ("udp", "::1", 9), ("tcp", "192.0.2.7", 443)),
)
ZONE = {"site.test": [PUBLIC], "two.test": [PUBLIC, "192.0.2.7"], "here.test": ["127.0.0.1"]}


def stage(argv: list[str]) -> Stage:
    return Stage("open", argv, SERVERS, ZONE)


@pytest.mark.parametrize(
    ("host", "port", "scope"),
    [
        ("site.test", 443, "tcp:site.test:443"),
        ("SITE.test", 443, "tcp:site.test:443"),
        ("two.test", 443, "tcp:two.test:443"),
        ("here.test", 8000, "tcp:here.test:8000"),
        ("localhost", 8000, "tcp:localhost:8000"),
        (PUBLIC, 443, f"tcp:{PUBLIC}:443"),
        ("127.0.0.1", 8000, "tcp:127.0.0.1:8000"),
        ("::1", 8000, "tcp:[::1]:8000"),
    ],
)
def test_a_connection_is_known_by_what_the_program_called_it(
    host: str, port: int, scope: str
) -> None:
    ran = stage(python(CONNECT, host, port)).run()
    assert (ran.status, ran.out) == (0, "hello\n")
    assert ran.scopes == (scope,)
    assert ran.notice == ""


def test_the_same_address_is_distinguished_by_the_asker() -> None:
    by_name = " ".join(f"'{word}'" for word in python(CONNECT, "localhost", 8000)[:-3])
    script = f"{by_name} '{CONNECT}' localhost 8000; {by_name} '{CONNECT}' 127.0.0.1 8000"
    ran = stage(["sh", "-c", script]).run()
    assert ran.out == "hello\nhello\n"
    assert ran.scopes == ("tcp:localhost:8000", "tcp:127.0.0.1:8000")


@pytest.mark.parametrize("how", ["connect", "sendto", "sendmsg"])
@pytest.mark.parametrize("host", [PUBLIC, "::1"])
def test_datagrams(how: str, host: str) -> None:
    ran = stage(python(DATAGRAM, host, 9, how)).run()
    assert ran.out == "hello x\n"
    assert ran.scopes == (f"udp:[{host}]:9" if ":" in host else f"udp:{host}:9",)


def test_asking_for_a_route_is_not_reaching_anything() -> None:
    code = """
import socket
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.connect(("93.184.216.34", 80))
print(made.getsockname()[0] != "")
made.close()
"""
    ran = stage(python(code)).run()
    assert ran.out == "True\n"
    assert ran.scopes == ()


@pytest.mark.needs("gcc-static")
@pytest.mark.parametrize("way", ["u", "c", "t"])
def test_a_static_program_with_its_own_dns_client(tmp_path: Path, way: str) -> None:
    program = compiled(tmp_path, "static", STATIC, "-static", "-w")
    ran = stage([program, RESOLVER, "site.test", "443", way]).run()
    assert (ran.status, ran.out) == (0, "hello")
    assert ran.scopes == ("tcp:site.test:443",)


@pytest.mark.needs("gcc-static")
def test_a_resolver_that_the_system_does_not_use_is_a_destination(tmp_path: Path) -> None:
    program = compiled(tmp_path, "static", STATIC, "-static", "-w")
    ran = stage([program, RESOLVER, "site.test", "443", "c"])._replace(nameservers=()).run()
    assert ran.scopes == (f"udp:{RESOLVER}:53", "tcp:site.test:443")


@pytest.mark.needs("gcc-static")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs linux: x86 only")
@pytest.mark.parametrize("way", ["socketcall", "connect"])
def test_the_32_bit_door_is_watched_as_well(tmp_path: Path, way: str) -> None:
    program = compiled(tmp_path, "short", THIRTY_TWO, "-static", "-no-pie", "-w")
    ran = stage([program, PUBLIC, "443", way]).run()
    if ran.status in (errno.ENOSYS, -11):
        assert ran.scopes == ()  # this kernel has no such door
    else:
        assert (ran.status, ran.out, ran.scopes) == (0, "hello", (f"tcp:{PUBLIC}:443",))


@pytest.mark.needs("gcc-static")
def test_there_is_no_ring_to_connect_through(tmp_path: Path) -> None:
    program = compiled(tmp_path, "ring", RING, "-static", "-w")
    assert stage([program]).run().out == f"{errno.ENOSYS}\n"


def test_a_hundred_connections_at_once() -> None:
    code = """
import socket, threading
def reach(number):
    made = socket.create_connection(("site.test" if number % 2 else "93.184.216.34", 443))
    assert made.recv(5) == b"hello"
    done.append(number)
done = []
threads = [threading.Thread(target=reach, args=(number,)) for number in range(100)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""
    ran = stage(python(code)).run()
    assert ran.out == "100\n"
    # One process that asked for the name: its numeric connections go by that name, too.
    assert set(ran.scopes) <= {"tcp:site.test:443", f"tcp:{PUBLIC}:443"}
    assert "tcp:site.test:443" in ran.scopes


def test_a_grandchild_is_seen() -> None:
    words = python(CONNECT, "site.test", 443)
    code = f"import subprocess; subprocess.run(['sh', '-c', 'exec \"$@\"', 'sh', *{words!r}])"
    ran = stage(python(code)).run()
    assert (ran.out, ran.scopes) == ("hello\n", ("tcp:site.test:443",))


def test_a_command_outlives_its_supervisor() -> None:
    code = """
import socket
try:
    socket.create_connection(("93.184.216.34", 443))
    print("connected")
except OSError as error:
    print(error.errno)
"""
    ran = stage(python(code))._replace(kill_supervisor=True).run()
    assert ran.out == f"{errno.ENOSYS}\n"


def test_a_supervisor_with_a_bug_costs_the_account_not_the_command() -> None:
    ran = stage(python(CONNECT, PUBLIC, 443))._replace(plant_fault=True).run()
    assert (ran.out, ran.scopes) == ("hello\n", ())
    assert "could not be read" in ran.notice


def test_how_libc_sorts_addresses_is_not_traffic() -> None:
    """It connects a datagram socket to each of them, at the port that was asked for."""
    code = """
import socket
for _ in range(10):
    print(len(socket.getaddrinfo("two.test", 443, type=socket.SOCK_STREAM)))
"""
    ran = stage(python(code)).run()
    assert (ran.out, ran.scopes) == ("2\n" * 10, ())


def test_a_container_inside_keeps_its_own_resolver() -> None:
    """It has another network: its 127.0.0.1 is not ours."""
    code = """
import ctypes, fcntl, os, socket, struct, threading
assert ctypes.CDLL(None).unshare(0x40000000) == 0
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
def serve():
    message, sender = server.recvfrom(512)
    server.sendto(b"own", sender)
threading.Thread(target=serve).start()
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.settimeout(20)
made.connect(("127.0.0.1", 53))
made.send(b"question")
print(made.recv(512).decode())
"""
    assert stage(python(code)).run().out == "own\n"


def test_a_name_that_is_not_there_is_not_there_and_the_next_is_still_heard() -> None:
    code = """
import socket
try:
    socket.getaddrinfo("nowhere.test", 80)
except socket.gaierror as error:
    print(error.errno == socket.EAI_NONAME)
print(socket.create_connection(("localhost", 8000)).recv(5).decode())
"""
    ran = stage(python(code)).run()
    assert (ran.out, ran.scopes) == ("True\nhello\n", ("tcp:localhost:8000",))


def test_many_lookups_do_not_pile_up() -> None:
    """Each uses one of our sockets; no socket is kept for long."""
    code = """
import socket, struct
query = struct.pack(">HHHHHH", 1, 256, 1, 0, 0, 0) + b"\\4site\\4test\\0" + struct.pack(">HH", 1, 1)
for _ in range(600):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(20)
    made.connect(("192.0.2.53", 53))
    made.send(query)
    assert made.recv(512)
    made.close()
made = socket.create_connection(("93.184.216.34", 443))
print(made.recv(5).decode())
"""
    ran = stage(python(code)).run()
    assert (ran.out, ran.scopes, ran.notice) == ("hello\n", ("tcp:site.test:443",), "")


def test_what_is_left_running_keeps_its_network(tmp_path: Path) -> None:
    """It starts when the command is over and its supervisor gone."""
    said = tmp_path / "said"
    later = python(CONNECT, PUBLIC, 443)
    code = f"""
import os, subprocess, sys, time
if os.fork():
    os._exit(0)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2): os.dup2(null, fd)
time.sleep(1)
out = subprocess.run({later!r}, capture_output=True, text=True)
open({str(said)!r}, "w").write(out.stdout + out.stderr[-200:])
"""
    ran = stage(python(code))._replace(linger_for=str(said)).run()
    assert ran.status == 0
    assert said.read_text() == "hello\n"


@pytest.mark.needs("other-user")
@pytest.mark.parametrize(("host", "name"), [("site.test", "site.test"), (PUBLIC, PUBLIC)])
def test_an_ordinary_user_gets_the_same_account(host: str, name: str) -> None:
    argv = [SYSTEM_PYTHON, "-c", CONNECT, host, "443"]
    ran = stage(argv)._replace(uid=65534).run()
    assert (ran.out, ran.scopes, ran.notice) == ("hello\n", (f"tcp:{name}:443",), "")


def test_one_datagram_and_the_end_is_seen() -> None:
    ran = stage(["bash", "-c", f"echo x > /dev/udp/{PUBLIC}/9"]).run()
    assert (ran.status, ran.scopes) == (0, (f"udp:{PUBLIC}:9",))


def test_what_gave_no_answer_was_not_reached() -> None:
    """Refused by the host, without a route, and reached: three lists, each destination in one."""
    code = """
import errno, socket
for host, port in (("127.0.0.1", 8001), ("127.0.0.1", 8000), ("203.0.113.9", 80)):
    made = socket.socket()
    try:
        made.connect((host, port))
        print("reached")
    except OSError as error:
        print(errno.errorcode[error.errno])
    made.close()
"""
    ran = stage(python(code)).run()
    assert ran.out.splitlines()[:2] == ["ECONNREFUSED", "reached"]
    assert ran.out.splitlines()[2] in ("ENETUNREACH", "EHOSTUNREACH")
    assert ran.scopes == ("tcp:127.0.0.1:8000",)
    assert set(ran.failed) == {"tcp:127.0.0.1:8001", "tcp:203.0.113.9:80"}
    assert ran.denied == ()
    assert ran.notice == ""


def test_without_waiting_it_is_the_same() -> None:
    code = """
import select, socket
for port in (8001, 8000):
    made = socket.socket()
    made.setblocking(False)
    made.connect_ex(("127.0.0.1", port))
    select.select([], [made], [], 20)
    print(made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
"""
    ran = stage(python(code)).run()
    assert ran.out == f"{errno.ECONNREFUSED}\n0\n"
    assert ran.scopes == ("tcp:127.0.0.1:8000",)
    assert ran.failed == ("tcp:127.0.0.1:8001",)


def test_one_socket_may_fail_and_then_reach_another() -> None:
    code = """
import socket
made = socket.socket()
print(made.connect_ex(("127.0.0.1", 8001)) != 0)
print(made.connect_ex(("127.0.0.1", 8000)))
print(made.recv(5))
"""
    ran = stage(python(code)).run()
    assert ran.out == "True\n0\nb'hello'\n"
    assert (ran.scopes, ran.failed) == (("tcp:127.0.0.1:8000",), ("tcp:127.0.0.1:8001",))


@pytest.mark.needs("root")
def test_an_abstract_bus_is_refused_where_landlock_cannot() -> None:
    """The supervisor alone, as on a kernel before 6.12; other abstract sockets are allowed."""
    names = ("substrate-test-bus", "substrate-test-other")
    servers = [socket.socket(socket.AF_UNIX) for _ in names]
    for server, name in zip(servers, names, strict=True):
        server.bind("\0" + name)
        server.listen()
    code = """
import socket, sys
for name in sys.argv[1:]:
    print(socket.socket(socket.AF_UNIX).connect_ex("\\0" + name))
"""
    ran = run("open", python(code, *names), abstract=(names[0].encode(),))
    for server in servers:
        server.close()
    assert ran.out == f"{errno.ECONNREFUSED}\n0\n"
    assert ran.denied == (f"unix:@{names[0]}",)
