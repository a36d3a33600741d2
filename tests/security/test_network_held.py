"""``--net off`` and ``--net allow:``: what is not listed is not reached, by any way in.

Every attack is proved to be one: the same program reaches its aim where nothing holds it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.world.network.launcher import Ran, compiled, python
from tests.unit.world.network.programs import CONNECT, DATAGRAM, STATIC, THIRTY_TWO
from tests.unit.world.network.stage import RESOLVER, SYSTEM_PYTHON, Stage

pytestmark = pytest.mark.needs("netns")

PUBLIC, PRIVATE = "93.184.216.34", "10.1.2.3"
SERVERS = (
    *(("tcp", PUBLIC, 443), ("udp", PUBLIC, 9), ("tcp", PRIVATE, 443)),
    *(("tcp", "127.0.0.1", 443), ("tcp", "::1", 443), ("tcp", "169.254.169.254", 443)),
)
ZONE = {
    "site.test": [PUBLIC], "other.test": [PUBLIC], "deep.site.test": [PUBLIC],
    "inward.test": [PRIVATE], "loop.test": ["127.0.0.1"], "link.test": ["169.254.169.254"],
    "mixed.test": ["127.0.0.1", PUBLIC], "six.test": ["::1"],
}  # fmt: skip


def reach(net: str, host: str, port: int = 443) -> Ran:
    return Stage(net, python(CONNECT, host, port), SERVERS, ZONE).run()


@pytest.mark.parametrize(
    ("rules", "host", "scope"),
    [
        ("site.test:443", "site.test", "tcp:site.test:443"),
        ("site.test:*", "site.test", "tcp:site.test:443"),
        ("*.site.test:*", "deep.site.test", "tcp:deep.site.test:443"),
        (f"{PUBLIC}:443", PUBLIC, f"tcp:{PUBLIC}:443"),
        (f"{PUBLIC}:*", PUBLIC, f"tcp:{PUBLIC}:443"),
        ("inward.test:443,10.0.0.0/8:443", "inward.test", "tcp:inward.test:443"),
        ("localhost:443", "localhost", "tcp:localhost:443"),
        ("[::1]:443", "::1", "tcp:[::1]:443"),
        ("mixed.test:443", "mixed.test", "tcp:mixed.test:443"),
    ],
)
def test_what_is_listed_is_reached(rules: str, host: str, scope: str) -> None:
    ran = reach(f"allow:{rules}", host)
    assert (ran.status, ran.out) == (0, "hello\n")
    assert (ran.scopes, ran.denied) == ((scope,), ())


@pytest.mark.parametrize(
    ("rules", "host", "port", "denied"),
    [
        ("site.test:443", "other.test", 443, "dns:other.test"),
        ("site.test:80", "site.test", 443, "tcp:site.test:443"),
        ("*.site.test:443", "site.test", 443, "dns:site.test"),
        ("site.test:443", PUBLIC, 443, f"tcp:{PUBLIC}:443"),
        ("inward.test:443", "inward.test", 443, "dns:inward.test"),
        ("loop.test:443", "loop.test", 443, "dns:loop.test"),
        ("link.test:443", "link.test", 443, "dns:link.test"),
        ("six.test:443", "six.test", 443, "dns:six.test"),
        (f"{PUBLIC}:80", PUBLIC, 443, f"tcp:{PUBLIC}:443"),
    ],
)
def test_what_is_not_listed_is_refused_and_reported(
    rules: str, host: str, port: int, denied: str
) -> None:
    assert reach("open", host, port).out == "hello\n"
    ran = reach(f"allow:{rules}", host, port)
    assert ran.status == 1
    assert "hello" not in ran.out
    assert "refused" in ran.out or "not known" in ran.out
    assert (ran.scopes, ran.denied) == ((), (denied,))


@pytest.mark.parametrize("host", ["site.test", PUBLIC, "169.254.169.254"])
def test_off_reaches_nothing(host: str) -> None:
    ran = reach("off", host)
    assert ran.status == 1
    assert ran.scopes == ()
    assert ran.denied == ((f"dns:{host}" if host == "site.test" else f"tcp:{host}:443"),)


@pytest.mark.parametrize("net", ["off", "allow:site.test:443"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0"])
def test_the_machines_own_services_are_out_of_reach(net: str, host: str) -> None:
    assert reach("open", host).out == "hello\n"
    ran = reach(net, host)
    assert ran.status == 1
    assert "refused" in ran.out


@pytest.mark.parametrize("net", ["off", "allow:site.test:443"])
def test_a_command_can_talk_to_itself(net: str) -> None:
    code = """
import socket, threading
listener = socket.create_server(("127.0.0.1", 0))
def serve():
    made, _ = listener.accept()
    made.sendall(b"mine")
threading.Thread(target=serve).start()
print(socket.create_connection(listener.getsockname()).recv(4).decode())
"""
    ran = Stage(net, python(code)).run()
    assert ran.out == "mine\n"
    assert ran.denied == ()


def test_datagrams_are_relayed_or_refused() -> None:
    send = python(DATAGRAM, PUBLIC, 9, "connect")
    allowed = Stage(f"allow:{PUBLIC}:9", send, SERVERS).run()
    assert (allowed.out, allowed.scopes) == ("hello x\n", (f"udp:{PUBLIC}:9",))
    refused = Stage("allow:site.test:9", send, SERVERS, ZONE).run()
    assert refused.status == 1
    assert (refused.scopes, refused.denied) == ((), (f"udp:{PUBLIC}:9",))


@pytest.mark.needs("gcc-static")
@pytest.mark.parametrize("way", ["u", "c", "t"])
def test_a_program_with_its_own_resolver_is_held(tmp_path: Path, way: str) -> None:
    program = compiled(tmp_path, "static", STATIC, "-static", "-w")
    allowed = Stage("allow:site.test:443", [program, RESOLVER, "site.test", "443", way],
                    SERVERS, ZONE).run()  # fmt: skip
    assert (allowed.status, allowed.out) == (0, "hello")
    assert allowed.scopes == ("tcp:site.test:443",)
    refused = Stage("allow:site.test:443", [program, RESOLVER, "other.test", "443", way],
                    SERVERS, ZONE).run()  # fmt: skip
    assert refused.status == 5
    assert refused.denied == ("dns:other.test",)


@pytest.mark.needs("gcc-static")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs linux: x86 only")
def test_the_32_bit_door_is_held(tmp_path: Path) -> None:
    program = compiled(tmp_path, "short", THIRTY_TWO, "-static", "-no-pie", "-w")
    for net in ("off", "allow:site.test:443"):
        ran = Stage(net, [program, PUBLIC, "443", "socketcall"], SERVERS, ZONE).run()
        assert ran.status != 0
        assert "hello" not in ran.out


def test_much_is_relayed_both_ways_unharmed() -> None:
    code = """
import hashlib, socket, threading
made = socket.create_connection(("site.test", 443))
assert made.recv(6, socket.MSG_WAITALL) == b"hello\\n"
data = bytes(range(256)) * 65536
threading.Thread(target=lambda: (made.sendall(data), made.shutdown(socket.SHUT_WR))).start()
back = b""
while more := made.recv(1 << 20): back += more
print(back == data)
"""
    assert Stage("allow:site.test:443", python(code), SERVERS, ZONE).run().out == "True\n"


def test_fifty_relays_at_once() -> None:
    code = """
import socket, threading
def reach():
    made = socket.create_connection(("site.test", 443), timeout=30)
    if made.recv(5, socket.MSG_WAITALL) == b"hello": done.append(1)
done = []
threads = [threading.Thread(target=reach) for _ in range(50)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(done))
"""
    assert Stage("allow:site.test:*", python(code), SERVERS, ZONE).run().out == "50\n"


@pytest.mark.needs("other-user")
def test_an_ordinary_user_is_held_and_served_alike() -> None:
    def as_user(net: str, host: str) -> Ran:
        argv = [SYSTEM_PYTHON, "-c", CONNECT, host, "443"]
        return Stage(net, argv, SERVERS, ZONE, uid=65534).run()

    assert as_user("allow:site.test:443", "site.test").out == "hello\n"
    refused = as_user("allow:site.test:443", PUBLIC)
    assert (refused.status, refused.denied) == (1, (f"tcp:{PUBLIC}:443",))
    assert as_user("off", PUBLIC).status == 1


def test_a_namespace_that_cannot_be_had_is_an_error_and_nothing_runs() -> None:
    """A namespace inside which no further one may be made."""
    ran = Stage("off", ["echo", "ran"], no_namespaces=True).run()
    assert ran.status == 99
    assert "not started: " in ran.out
    assert "unshare" in ran.out


def test_allowed_refused_and_unanswered_are_distinguished() -> None:
    """An allowed host without a listener on the port is neither reached nor refused."""
    code = """
import socket
for host, port in (("site.test", 443), ("site.test", 444), ("other.test", 443)):
    try:
        made = socket.create_connection((host, port), timeout=20)
        print(made.recv(5))
    except OSError:
        print("failed")
"""
    ran = Stage("allow:site.test:*", python(code), SERVERS, ZONE).run()
    assert ran.out == "b'hello'\nfailed\nfailed\n"
    assert ran.scopes == ("tcp:site.test:443",)
    assert ran.failed == ("tcp:site.test:444",)
    assert ran.denied == ("dns:other.test",)
