"""The way out of a network namespace that has none: fake addresses, listeners, a relay.

In the namespace every address is on ``lo`` and nothing leaves. A name on the list is given an
address of its own from a range meant for benchmarks; listeners stand at that address only. What
connects there is dialled from here, after the name was resolved and the result checked. Whatever
else a program tries meets a closed port, or a name that does not exist.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from typing import NamedTuple

from substrate.system.linux import netns
from substrate.world.network import dns, name_service
from substrate.world.network.datagram_relay import DatagramRelay
from substrate.world.network.dial import dial
from substrate.world.network.event_loop import READ, EventLoop
from substrate.world.network.resolver_socket import receive_query, send_reply
from substrate.world.network.rules import Policy, is_loopback, parse_address
from substrate.world.network.scopes import ScopeLog, scope
from substrate.world.network.stream_relay import StreamRelay, abort_on_close

#: RFC 2544: not routed anywhere, so no program means something else by it.
OWN_ADDRESS, _PREFIX = "198.18.0.1", 15
_FIRST_FAKE = int(IPv4Address("198.18.1.0"))
_LAST_FAKE = int(IPv4Address("198.19.255.254"))
#: How many of each kind are made ahead, in the namespace: what lies there cannot be made later.
POOL = ((b"t", 48), (b"u", 24), (b"T", 8), (b"U", 8))
_BACKLOG = 128
_DNS_PORT = 53
_OWN = (OWN_ADDRESS, "0.0.0.0", "::")


class Verdict(NamedTuple):
    """What becomes of a destination that a program is about to use."""

    #: ``inside``: the namespace's own; ``relayed``: we stand there, and write down what arrives;
    #: ``denied``.
    way: str
    #: The host as the program named it.
    host: str


def make_sockets(policy: Policy) -> list[socket.socket]:
    """In the namespace, before exec: set it up, and make what the other side will need."""
    netns.unshare(netns.CLONE_NEWNET)
    netns.loopback_up()
    if policy.mode == "off":
        return []
    netns.add_address(OWN_ADDRESS, _PREFIX)
    netns.every_address_is_ours()
    made = netns.resolver_sockets()
    for letter, count in POOL:
        family, kind = netns.KINDS[letter]
        with suppress(OSError):  # no IPv6 here
            made += [socket.socket(family, kind) for _ in range(count)]
    return made


class Enclosure:
    """The supervisor's side. All of it runs in the loop's thread, but for lookups."""

    def __init__(
        self, loop: EventLoop, policy: Policy, log: ScopeLog, sockets: list[socket.socket]
    ) -> None:
        self._loop = loop
        self._policy = policy
        self._log = log
        self._spare: dict[tuple[int, int], list[socket.socket]] = {}
        self._own: list[socket.socket] = []
        self._fakes: dict[str, str] = {}
        self._names: dict[str, str] = {}
        #: (protocol, address, port) that somebody stands at already.
        self._standing: set[tuple[str, str, int]] = set()
        self._called: dict[tuple[str, str, int], str] = {}
        self._streams: set[StreamRelay] = set()
        self._datagrams: list[DatagramRelay] = []
        for each in sockets:
            each.setblocking(False)
            self._sort_in(each)
        for rule in policy.rules:
            network = rule.network
            if network is None or network.num_addresses > 1 or rule.port is None:
                continue  # where somebody stands there is seen when a program goes there
            if not is_loopback(network.network_address):
                self._stand(str(network.network_address), rule.port)

    def _sort_in(self, each: socket.socket) -> None:
        if each.getsockname()[1] == 0:
            self._spare.setdefault((each.family, each.type), []).append(each)
            return
        self._own.append(each)
        if each.type == socket.SOCK_DGRAM:
            self._loop.watch(each.fileno(), READ, lambda _: self._query(each))
        else:
            self._loop.watch(each.fileno(), READ, lambda _: self._accept_query(each))

    @property
    def has_no_resolver(self) -> bool:
        """``off``: not even a wrong answer."""
        return self._policy.mode == "off"

    def refuse_name(self, name: str) -> None:
        """A name was looked up that nothing here could resolve."""
        self._log.denied(f"dns:{name.rstrip('.').lower()}")

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        for datagrams in self._datagrams:
            datagrams.close()
        for each in self._own:
            self._loop.forget(each.fileno())
            each.close()
        for pool in self._spare.values():
            for each in pool:
                each.close()

    def prepare(self, protocol: str, address: str, port: int, called: str) -> Verdict:
        """A program is about to use this destination: stand there, if it may be reached.

        `called` is what it calls the address: the same, or a name from the hosts file. It is for
        the account only; the address decides.
        """
        name = self._names.get(address)
        plain = parse_address(address)
        if name is not None:
            allowed = self._policy.may_reach_name(name, port)
        else:
            allowed = plain is not None and self._policy.may_reach_address(plain, port)
        if allowed and protocol in ("tcp", "udp"):
            self._called[protocol, address, port] = called
            self._stand(address, port)
            return Verdict("relayed", name or called)
        if port == _DNS_PORT and self._policy.mode == "allow":
            return Verdict("relayed", address)  # our resolver: it writes down what it refuses
        if address in _OWN or (plain is not None and is_loopback(plain)):
            return Verdict("inside", address)
        return Verdict("denied", name or called)

    # -- names

    def _query(self, stub: socket.socket) -> None:
        query = receive_query(stub)
        if query is not None:
            self._resolve(query.message, lambda answer: send_reply(stub, query, answer))

    def _accept_query(self, stub: socket.socket) -> None:
        """DNS over TCP: one question, one answer."""
        try:
            near, _ = stub.accept()
        except OSError:
            return
        near.settimeout(5.0)
        threading.Thread(target=self._serve_stream, args=(near,), daemon=True).start()

    def _serve_stream(self, near: socket.socket) -> None:
        with near, suppress(OSError, struct.error):
            size = struct.unpack(">H", near.recv(2, socket.MSG_WAITALL))[0]
            message = near.recv(size, socket.MSG_WAITALL)
            answered = threading.Event()

            def send(answer: bytes) -> None:
                with suppress(OSError):
                    near.sendall(struct.pack(">H", len(answer)) + answer)
                answered.set()

            self._loop.call_soon(lambda: self._resolve(message, send))
            answered.wait(30.0)

    def _resolve(self, message: bytes, send: Callable[[bytes], None]) -> None:
        question = dns.parse_question(message)
        if question is None:
            return
        if not self._policy.may_name(question.name):
            self.refuse_name(question.name)
            send(dns.reply(message, question, dns.NXDOMAIN))
            return
        if question.type != dns.TYPE_A:
            send(dns.reply(message, question, dns.NOERROR))
            return

        def found(addresses: tuple[str, ...]) -> None:
            name = question.name
            if not addresses or not self._may_lead(addresses):
                if addresses:
                    self.refuse_name(name)
                send(dns.reply(message, question, dns.NXDOMAIN))
                return
            fake = self._fake(name)
            send(dns.reply(message, question, dns.NOERROR, (fake,)))

        self._look_up(question.name, found)

    def _may_lead(self, addresses: tuple[str, ...]) -> bool:
        """Whether one of the addresses may be dialled: else the name might as well not exist."""
        plain = [found for found in map(parse_address, addresses) if found is not None]
        return any(map(self._policy.may_lead_to, plain))

    def _fake(self, name: str) -> str:
        fake = self._fakes.get(name)
        if fake is None:
            number = _FIRST_FAKE + len(self._fakes)
            if number > _LAST_FAKE:
                return str(IPv4Address(_LAST_FAKE))  # never stood at: refused
            fake = self._fakes[name] = str(IPv4Address(number))
            self._names[fake] = name
            for port in self._policy.ports_of(name):
                self._stand(fake, port)
        return fake

    def _look_up(self, name: str, found: Callable[[tuple[str, ...]], None]) -> None:
        """In a thread of its own: a resolver may take its time."""

        def ask() -> None:
            answer = name_service.look_up(name)
            addresses = answer.addresses if answer is not None else ()
            self._loop.call_soon(lambda: found(addresses))

        threading.Thread(target=ask, daemon=True).start()

    # -- listeners

    def _stand(self, address: str, port: int) -> None:
        """Listen at `address`, for connections and for datagrams."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for protocol, kind in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            key = (protocol, address, port)
            pool = self._spare.get((family, kind), [])
            if key in self._standing or not pool:
                continue
            own = pool.pop()
            try:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                own.bind((address, port))
                if kind == socket.SOCK_STREAM:
                    own.listen(_BACKLOG)
            except OSError:
                own.close()  # the command stands there itself
                continue
            self._standing.add(key)
            self._own.append(own)
            self._serve(own, address, port)

    def _serve(self, own: socket.socket, address: str, port: int) -> None:
        if own.type == socket.SOCK_STREAM:
            self._loop.watch(own.fileno(), READ, lambda _: self._accept(own, address, port))
            return
        relay = DatagramRelay(
            self._loop, own, lambda found: self._destination("udp", address, port, found), port
        )
        self._datagrams.append(relay)

    def _accept(self, own: socket.socket, address: str, port: int) -> None:
        try:
            near, _ = own.accept()
        except OSError:
            return

        def found(target: str | None) -> None:
            if target is None:
                _refuse(near)
            else:
                dial(self._loop, target, port, lambda far: self._dialled(near, far))

        self._destination("tcp", address, port, found)

    def _destination(
        self, protocol: str, address: str, port: int, done: Callable[[str | None], None]
    ) -> None:
        """The real address behind `address`, checked; None if it may not be reached."""
        name = self._names.get(address)
        if name is None:
            plain = parse_address(address)
            allowed = plain is not None and self._policy.may_reach_address(plain, port)
            if allowed:
                called = self._called.get((protocol, address, port), address)
                self._log.used(scope(protocol, called, port))
            done(address if allowed else None)
            return

        def found(addresses: tuple[str, ...]) -> None:
            for text in addresses:
                plain = parse_address(text)
                if plain is not None and self._policy.may_dial(plain, port):
                    self._log.used(scope(protocol, name, port))
                    done(text)
                    return
            self._log.denied(scope(protocol, name, port))
            done(None)

        self._look_up(name, found)

    def _dialled(self, near: socket.socket, far: socket.socket | None) -> None:
        if far is None:
            _refuse(near)
        else:
            self._streams.add(StreamRelay(self._loop, near, far, closed=self._streams.discard))


def _refuse(near: socket.socket) -> None:
    abort_on_close(near)
    near.close()
