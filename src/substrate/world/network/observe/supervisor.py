"""Looks at each network call of a command, writes its destination down, and lets it go on.

It never refuses anything: what must not be reached is held by the network namespace (`enclosure`).
A call waits about as long as a context switch takes; one that we cannot understand goes on, too.
"""

from __future__ import annotations

import os
import socket
import threading
from functools import cached_property
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.system.linux.seccomp_notify import Listener, Notification, read_memory
from substrate.world.network import name_service, procfs
from substrate.world.network.calls import Call, Target, decode, may_pass_descriptors
from substrate.world.network.enclosure import Enclosure
from substrate.world.network.event_loop import READ, EventLoop
from substrate.world.network.names import Names
from substrate.world.network.resolver_relay import DNS_PORT, ResolverRelay
from substrate.world.network.scopes import ScopeLog, scope

_INTERNET = (socket.AF_INET, socket.AF_INET6)
#: How long after its question for a local address a datagram socket must live to count as used.
_ROUTE_PROBE_S = 0.02
_LONGEST_LOOK_S = 0.3
#: How many replaced sockets can be put back: only those of lookups that are under way matter.
_MOST_REPLACED = 64
_HANG_UP = 0x10 | 0x08


class _Caller(NamedTuple):
    """A notified call's process and socket."""

    note: Notification
    pid: int
    descriptor: int
    own: socket.socket


class _Unproved(NamedTuple):
    """A datagram socket that was connected; whether anything goes over it is not known yet."""

    inode: int
    target: Target
    #: How many datagrams had left its network when it was connected.
    sent: int


class Supervisor:
    """One command's calls. All of it runs in the loop's thread."""

    def __init__(
        self,
        loop: EventLoop,
        listener: Listener,
        log: ScopeLog,
        names: Names,
        view: procfs.View,
        enclosure: Enclosure | None = None,
    ) -> None:
        """With an `enclosure`, names are its business, and what it refuses is written down.

        `view` is the command's own. A process that has another (a container inside the command)
        has other names and another network, and is not answered from ours.
        """
        self._loop = loop
        self._listener = listener
        self._log = log
        self._names = names
        self._view = view
        self._enclosure = enclosure
        #: Calls with which descriptors may have gone to others.
        self.messages = 0
        self._relay: ResolverRelay | None = None
        self._relay_failed = False
        self._unproved: dict[tuple[int, int], _Unproved] = {}
        #: Replaced sockets: the inode of ours -> the program's own, to put back.
        self._replaced: dict[int, socket.socket] = {}
        loop.watch(listener.descriptor, READ, self._ready)

    @cached_property
    def _resolvers(self) -> frozenset[str]:
        return _system_resolvers()

    def settle(self) -> None:
        """The command is over: a datagram socket that was connected and never asked for its own
        address counts, because that is how a program uses one."""
        for (pid, _), unproved in self._unproved.items():
            self._used(pid, "udp", unproved.target)
        self._unproved.clear()

    def close(self) -> None:
        self._loop.forget(self._listener.descriptor)
        self._listener.close()
        if self._relay is not None:
            self._relay.close()
        for original in self._replaced.values():
            original.close()

    def _ready(self, events: int) -> None:
        if events & _HANG_UP and not events & READ:
            self._loop.forget(self._listener.descriptor)  # the last process with the filter ended
            self._loop.stop()
            return
        note = self._listener.receive()
        if note is None:
            return
        self.messages += may_pass_descriptors(note)  # it waits until we have counted it
        answered = False
        try:
            answered = self._look(note)
        except Exception:  # noqa: BLE001 - whatever it is, the command must go on; it is said
            self._log.unread += 1
        finally:
            if not answered:
                self._listener.go_on(note)

    def _look(self, note: Notification) -> bool:
        """Returns whether the call has had its answer already."""
        call = decode(note, lambda address, size: read_memory(note.tid, address, size))
        if not self._listener.still_valid(note):
            return False
        if not call.readable:
            self._log.unread += 1
            return False
        if call.name == "getsockname":
            self._asked_for_route(note, call)
            return False
        answered = False
        for target in call.targets:
            if target.family == socket.AF_UNIX:
                answered = call.name == "connect" and self._serve_names(note, call, target)
            elif target.family in _INTERNET or target.family == socket.AF_UNSPEC:
                self._internet(note, call, target)
        return answered

    def _internet(self, note: Notification, call: Call, target: Target) -> None:
        pid = procfs.group_of(note.tid)
        if target.family == socket.AF_UNSPEC:
            if call.name == "connect":
                self._dissolve(pid, call.descriptor)
            return
        own = self._listener.borrow_socket(pid, call.descriptor)
        if own is None or own.family not in _INTERNET:
            if own is None:
                self._log.unread += 1
            else:
                own.close()
            return
        with own:
            caller = _Caller(note, pid, call.descriptor, own)
            protocol = _protocol(own)
            if self._enclosure is not None:
                self._enclosed(self._enclosure, caller, call, target)
            elif target.port == DNS_PORT and protocol in ("udp", "tcp"):
                self._dns(caller, protocol, target)
            else:
                self._put_back(caller)
                self._note(caller, call, protocol, target)

    def _note(self, caller: _Caller, call: Call, protocol: str, target: Target) -> None:
        if protocol == "udp" and call.name == "connect":
            self._datagram_connect(caller, target)
        else:
            self._used(caller.pid, protocol, target)

    def _enclosed(self, enclosure: Enclosure, caller: _Caller, call: Call, target: Target) -> None:
        protocol = _protocol(caller.own)
        called = self._names.host(caller.pid, target.host)
        verdict = enclosure.prepare(protocol, target.host, target.port, called)
        if verdict.way == "inside":
            self._note(caller, call, protocol, target)
        elif verdict.way == "denied" and not self._asks_in_vain(protocol, target):
            self._log.denied(scope(protocol, verdict.host, target.port))

    def _asks_in_vain(self, protocol: str, target: Target) -> bool:
        """A question to the system's resolver, whose name was heard already; or a datagram
        socket connected without a port, over which nothing can be sent."""
        if target.port == DNS_PORT and target.host in self._resolvers:
            return True
        return protocol == "udp" and target.port in (0, 65535)

    # -- names

    def _serve_names(self, note: Notification, call: Call, target: Target) -> bool:
        if target.host not in name_service.PATHS:
            return False
        pid = procfs.group_of(note.tid)
        if not pid or name_service.looks_up_its_own_way(pid):
            return False
        if procfs.view_of(pid) != self._view:
            return False
        ours, theirs = socket.socketpair()
        with theirs:
            flags = procfs.descriptor_flags(pid, call.descriptor)
            if flags is None:
                ours.close()
                return False
            theirs.setblocking(not flags & os.O_NONBLOCK)
            put = self._listener.replace_descriptor(
                note, call.descriptor, theirs.fileno(), close_on_exec=bool(flags & os.O_CLOEXEC)
            )
        if not put:
            ours.close()
            return False
        threading.Thread(
            target=name_service.serve,
            args=(ours, lambda name: self._heard(pid, name)),
            daemon=True,
        ).start()
        self._listener.answer(note, 0)
        return True

    def _heard(self, pid: int, name: str) -> name_service.Lookup | None:
        """In a thread of its own. In an enclosure we hear, and the enclosure answers."""
        if self._enclosure is not None:
            listed = name_service.in_hosts_file(name)
            if listed:
                self._names.learn(pid, name, listed)
            elif self._enclosure.has_no_resolver:
                self._enclosure.refuse_name(name)
            return None
        found = name_service.look_up(name)
        if found is not None:
            self._names.learn(pid, name, found.addresses)
        return found

    def _dns(self, caller: _Caller, protocol: str, target: Target) -> None:
        """A resolver is asked: by way of our relay if we can, so that its answer is seen."""
        if self._names.is_known(target.host) and target.host not in self._resolvers:
            return  # Go asks for the route to each address it found by connecting to its port 53
        if target.host not in self._resolvers:
            self._used(caller.pid, protocol, target)
        if os.fstat(caller.own.fileno()).st_ino in self._replaced:
            return
        if procfs.view_of(caller.pid).network != self._view.network:
            return
        relay = self._resolver_relay()
        flags = procfs.descriptor_flags(caller.pid, caller.descriptor)
        if relay is None or flags is None or procfs.in_epoll(caller.pid, caller.descriptor):
            return
        stand_in = relay.replacement(caller.pid, caller.own)
        if stand_in is None:
            return
        with stand_in:
            os.set_blocking(stand_in.fileno(), not flags & os.O_NONBLOCK)
            inode = os.fstat(stand_in.fileno()).st_ino
            put = self._listener.replace_descriptor(
                caller.note, caller.descriptor, stand_in.fileno(),
                close_on_exec=bool(flags & os.O_CLOEXEC),
            )  # fmt: skip
        if put and protocol == "udp":
            if len(self._replaced) >= _MOST_REPLACED:
                self._replaced.pop(next(iter(self._replaced))).close()
            self._replaced[inode] = caller.own.dup()

    def _put_back(self, caller: _Caller) -> None:
        """A datagram socket that asked a resolver now talks to others: it needs its own again."""
        inode = os.fstat(caller.own.fileno()).st_ino
        original = self._replaced.pop(inode, None)
        if original is None:
            return
        with original:
            flags = procfs.descriptor_flags(caller.pid, caller.descriptor) or 0
            self._listener.replace_descriptor(
                caller.note, caller.descriptor, original.fileno(),
                close_on_exec=bool(flags & os.O_CLOEXEC),
            )  # fmt: skip

    def _resolver_relay(self) -> ResolverRelay | None:
        if self._relay is None and not self._relay_failed:
            try:
                self._relay = ResolverRelay(self._loop, self._names.learn)
            except MissingDependencyError:
                self._relay_failed = True
        return self._relay

    # -- datagram sockets: a connect alone sends nothing, and what is written later is not told

    def _datagram_connect(self, caller: _Caller, target: Target) -> None:
        self._dissolve(caller.pid, caller.descriptor)
        if target.port == 0:
            return  # nothing can be sent there
        if caller.own.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST):
            self._used(caller.pid, "udp", target)  # Go's; its questions for a route go to port 53
            return
        unproved = _Unproved(
            os.fstat(caller.own.fileno()).st_ino, target, procfs.datagrams_sent(caller.pid)
        )
        self._unproved[caller.pid, caller.descriptor] = unproved

    def _asked_for_route(self, note: Notification, call: Call) -> None:
        """connect, getsockname, close is how libc sorts addresses: nothing was sent."""
        pid = procfs.group_of(note.tid)
        unproved = self._unproved.pop((pid, call.descriptor), None)
        if unproved is None:
            return
        if unproved.sent != procfs.datagrams_sent(pid):
            self._used(pid, "udp", unproved.target)
            return

        def look_again(after_s: float) -> None:
            """Gone: it was a question. There, and datagrams have left: it is in use."""
            if procfs.socket_inode(pid, call.descriptor) != unproved.inode:
                return
            if unproved.sent != procfs.datagrams_sent(pid):
                self._used(pid, "udp", unproved.target)
                return
            longer = min(2 * after_s, _LONGEST_LOOK_S)
            self._loop.later(longer, lambda: look_again(longer))

        self._loop.later(_ROUTE_PROBE_S, lambda: look_again(_ROUTE_PROBE_S))

    def _dissolve(self, pid: int, descriptor: int) -> None:
        """The socket is connected anew: what went over it before?"""
        unproved = self._unproved.pop((pid, descriptor), None)
        if unproved is not None and unproved.sent != procfs.datagrams_sent(pid):
            self._used(pid, "udp", unproved.target)

    def _used(self, pid: int, protocol: str, target: Target) -> None:
        self._log.used(scope(protocol, self._names.host(pid, target.host), target.port))


def _protocol(own: socket.socket) -> str:
    if own.type == socket.SOCK_STREAM:
        return "sctp" if own.proto == 132 else "tcp"
    if own.type == socket.SOCK_DGRAM:
        return "icmp" if own.proto in (1, 58) else "udp"
    return "ip"


def _system_resolvers() -> frozenset[str]:
    """Asking these is how names are looked up, not what a command wanted to reach."""
    found = {"127.0.0.1", "::1"}  # libc's choice where the file names none
    try:
        with open("/etc/resolv.conf", encoding="utf-8", errors="replace") as file:
            named = [line.split() for line in file if line.startswith("nameserver")]
    except OSError:
        return frozenset(found)
    listed = {words[1].partition("%")[0] for words in named if len(words) > 1}
    return frozenset(listed or found)
