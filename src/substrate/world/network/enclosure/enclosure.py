"""The way out of a network namespace that has none: fake addresses, listeners, a relay.

In the namespace every address is on ``lo`` and nothing leaves. A name on the list gets its own
address from a range meant for benchmarks, and we listen at that address only. For a connection
to it, we resolve the name, check the result and connect from outside. Anything else a program
tries meets a closed port, or a name that does not exist.
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
from substrate.world.network.enclosure import dns
from substrate.world.network.enclosure.datagram_relay import DatagramRelay
from substrate.world.network.enclosure.dial import dial
from substrate.world.network.enclosure.event_loop import READ, EventLoop
from substrate.world.network.enclosure.resolver_socket import receive_query, send_reply
from substrate.world.network.enclosure.stream_relay import StreamRelay, abort_on_close
from substrate.world.network.observe import ScopeLog, name_service, scope
from substrate.world.network.rules import Policy, is_loopback, parse_address

#: RFC 2544: not routed anywhere, so no program uses it for something else.
OWN_ADDRESS, _PREFIX = "198.18.0.1", 15
_FIRST_FAKE = int(IPv4Address("198.18.1.0"))
_LAST_FAKE = int(IPv4Address("198.19.255.254"))
#: How many sockets of each kind are made ahead, in the namespace: later none can be made there.
POOL = ((b"t", 48), (b"u", 24), (b"T", 8), (b"U", 8))
_BACKLOG = 128
_DNS_PORT = 53
_OWN = (OWN_ADDRESS, "0.0.0.0", "::")


class Verdict(NamedTuple):
    """What happens to a destination that a program is about to use."""

    #: ``inside``: the namespace's own; ``relayed``: we listen there, and record what arrives;
    #: ``denied``.
    way: str
    #: The host as the program named it.
    host: str


def make_sockets(policy: Policy) -> list[socket.socket]:
    """In the namespace, before exec: set it up, and make the sockets for the other side."""
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
    """The supervisor's side. All of it runs in the loop's thread, except lookups."""

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
        #: (protocol, address, port) at which we listen already.
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
                continue  # whether we must listen there shows when a program connects
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
        """``off``: there is no resolver at all."""
        return self._policy.mode == "off"

    def refuse_name(self, name: str) -> None:
        """A name was looked up that cannot be resolved here."""
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
        """A program is about to use this destination: listen there, if it may be reached.

        `called` is the program's name for the address: the address itself, or a name from the hosts
        file. It is only for the account; the address decides.
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
            return Verdict("relayed", address)  # our resolver: it records what it refuses
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
        """Whether one of the addresses may be connected to: otherwise the name is refused."""
        plain = [found for found in map(parse_address, addresses) if found is not None]
        return any(map(self._policy.may_lead_to, plain))

    def _fake(self, name: str) -> str:
        fake = self._fakes.get(name)
        if fake is None:
            number = _FIRST_FAKE + len(self._fakes)
            if number > _LAST_FAKE:
                return str(IPv4Address(_LAST_FAKE))  # we never listen there: refused
            fake = self._fakes[name] = str(IPv4Address(number))
            self._names[fake] = name
            for port in self._policy.ports_of(name):
                self._stand(fake, port)
        return fake

    def _look_up(self, name: str, found: Callable[[tuple[str, ...]], None]) -> None:
        """In its own thread: a resolver may be slow."""

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
                own.close()  # the command itself listens there
                continue
            self._standing.add(key)
            self._own.append(own)
            self._serve(own, address, port)

    def _serve(self, own: socket.socket, address: str, port: int) -> None:
        if own.type == socket.SOCK_STREAM:
            self._loop.watch(own.fileno(), READ, lambda _: self._accept(own, address, port))
            return
        relay = DatagramRelay(
            self._loop, own, lambda done: self._datagrams_to(address, port, done), port
        )
        self._datagrams.append(relay)

    def _accept(self, own: socket.socket, address: str, port: int) -> None:
        try:
            near, _ = own.accept()
        except OSError:
            return

        def found(target: str | None, called: str) -> None:
            if target is None:
                _refuse(near)
            else:
                dial(self._loop, target, port, lambda far: self._dialled(near, far, called))

        self._destination("tcp", address, port, found)

    def _datagrams_to(self, address: str, port: int, done: Callable[[str | None], None]) -> None:
        """A datagram counts as used when it is sent: nothing more is known of it."""

        def found(target: str | None, called: str) -> None:
            if target is not None:
                self._log.used(called)
            done(target)

        self._destination("udp", address, port, found)

    def _destination(
        self, protocol: str, address: str, port: int, done: Callable[[str | None, str], None]
    ) -> None:
        """The real address behind `address`, checked, and its scope; None if it may not be
        reached."""
        name = self._names.get(address)
        if name is None:
            plain = parse_address(address)
            allowed = plain is not None and self._policy.may_reach_address(plain, port)
            called = self._called.get((protocol, address, port), address)
            done(address if allowed else None, scope(protocol, called, port))
            return

        def found(addresses: tuple[str, ...]) -> None:
            for text in addresses:
                plain = parse_address(text)
                if plain is not None and self._policy.may_dial(plain, port):
                    done(text, scope(protocol, name, port))
                    return
            self._log.denied(scope(protocol, name, port))
            done(None, "")

        self._look_up(name, found)

    def _dialled(self, near: socket.socket, far: socket.socket | None, called: str) -> None:
        if far is None:
            self._log.failed(called)
            _refuse(near)
        else:
            self._log.used(called)
            self._streams.add(StreamRelay(self._loop, near, far, closed=self._streams.discard))


def _refuse(near: socket.socket) -> None:
    abort_on_close(near)
    near.close()
