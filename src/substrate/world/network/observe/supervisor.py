"""Looks at each network call of a command, records its destination, and lets it continue.

It enforces nothing: the network namespace does that (`enclosure`). It also refuses abstract
sockets of buses, which stops a program, but not an attacker: a thread can change the name between
our check and the kernel's. A call waits about as long as a context switch takes; a call that we
cannot understand continues, too.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from functools import cached_property
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.system.linux import Listener, Notification, read_memory
from substrate.world.network.enclosure import DNS_PORT, READ, Enclosure, EventLoop, ResolverRelay
from substrate.world.network.observe import name_service, procfs
from substrate.world.network.observe.address_names import Names
from substrate.world.network.observe.attempts import Attempts, copy_of
from substrate.world.network.observe.network_scopes import ScopeLog, scope
from substrate.world.network.observe.network_syscalls import (
    Call,
    Target,
    decode,
    may_pass_descriptors,
)
from substrate.world.process import RefusedWrites

_INTERNET = (socket.AF_INET, socket.AF_INET6)
#: How long a datagram socket must live after asking for its local address to count as used.
_ROUTE_PROBE_S = 0.02
_LONGEST_LOOK_S = 0.3
#: How many replaced sockets can be put back: only those of current lookups matter.
_MOST_REPLACED = 64
_HANG_UP = 0x10 | 0x08


class _Caller(NamedTuple):
    """A notified call's process and socket."""

    note: Notification
    pid: int
    descriptor: int
    own: socket.socket


class _Unproved(NamedTuple):
    """A datagram socket that was connected; whether anything is sent over it is not known yet."""

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
        command: int,
        enclosure: Enclosure | None = None,
        *,
        abstract: frozenset[str] = frozenset(),
        writes: RefusedWrites | None = None,
    ) -> None:
        """With an `enclosure`, that handles names, and its refusals are recorded.

        `command` is its first process. A process with another view (a container inside the
        command) has other names and another network, and is not answered from ours.
        """
        self._loop = loop
        self._listener = listener
        self._log = log
        self._names = names
        self._command = command
        self._view = procfs.view_of(command)
        self._enclosure = enclosure
        #: Abstract sockets that lead out of the world, written ``@name``.
        self._abstract = abstract
        self._writes = writes
        #: Calls that may have passed descriptors to other processes.
        self.messages = 0
        self._relay: ResolverRelay | None = None
        self._relay_failed = False
        self._unproved: dict[tuple[int, int], _Unproved] = {}
        self._attempts = Attempts(loop, log)
        #: Replaced sockets: the inode of ours -> the program's own, to put back.
        self._replaced: dict[int, socket.socket] = {}
        loop.watch(listener.descriptor, READ, self._ready)

    @cached_property
    def _resolvers(self) -> frozenset[str]:
        return _system_resolvers()

    def settle(self, *, is_over: bool = True) -> None:
        """The command, or one line of a shell, has ended.

        A datagram socket that was connected and never asked for its own address counts as used,
        because that is how programs use one.
        """
        for (pid, _), unproved in self._unproved.items():
            self._used(pid, "udp", unproved.target)
        self._unproved.clear()
        self._attempts.settle(is_over=is_over)

    def close(self) -> None:
        self._attempts.close()
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
        self.messages += may_pass_descriptors(note)  # the call waits until we have counted it
        answered = False
        try:
            answered = self._look(note)
        except Exception:  # noqa: BLE001 - the command must go on in any case; the account says so
            self._log.unread += 1
        finally:
            if not answered:
                self._listener.go_on(note)

    def _look(self, note: Notification) -> bool:
        """Returns whether the call has been answered already."""
        if self._writes is not None and self._writes.look(note):
            return False
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
                if target.host in self._abstract:
                    self._log.denied(f"unix:{target.host}")
                    self._listener.fail(note, errno.ECONNREFUSED)
                    return True
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
        elif protocol == "tcp":
            host = self._names.host(caller.pid, target.host)
            self._attempts.follow(caller.own, scope(protocol, host, target.port))
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
        """Whether it is a question to the system's resolver, whose name is already known; or a
        datagram socket connected without a port, over which nothing can be sent."""
        if target.port == DNS_PORT and target.host in self._resolvers:
            return True
        return protocol == "udp" and target.port in (0, 65535)

    # -- names

    def _own_view(self) -> procfs.View:
        """The command's. Until its exec an ordinary user cannot read it: the world's processes
        are hidden from tracers."""
        if self._view == procfs.UNREADABLE:
            self._view = procfs.view_of(self._command)
        return self._view

    def _serve_names(self, note: Notification, call: Call, target: Target) -> bool:
        if target.host not in name_service.PATHS:
            return False
        pid = procfs.group_of(note.tid)
        if not pid or name_service.looks_up_its_own_way(pid):
            return False
        if procfs.view_of(pid) != self._own_view():
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
        """In its own thread. In an enclosure we only listen, and the enclosure answers."""
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
        """A program asks a resolver: use our relay if possible, so that we see the answer."""
        if self._names.is_known(target.host) and target.host not in self._resolvers:
            return  # Go asks for the route to each address it found by connecting to its port 53
        if target.host not in self._resolvers:
            self._used(caller.pid, protocol, target)
        if os.fstat(caller.own.fileno()).st_ino in self._replaced:
            return
        if procfs.view_of(caller.pid).network != self._own_view().network:
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
            self._replaced[inode] = copy_of(caller.own)

    def _put_back(self, caller: _Caller) -> None:
        """A datagram socket that asked a resolver now talks to others: put its own socket back."""
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

    # -- datagram sockets: a connect alone sends nothing, and later writes are not reported

    def _datagram_connect(self, caller: _Caller, target: Target) -> None:
        self._dissolve(caller.pid, caller.descriptor)
        if target.port == 0:
            return  # nothing can be sent there
        if caller.own.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST):
            self._used(caller.pid, "udp", target)  # Go's; it asks for routes with port 53
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
            """Closed: it only asked for a route. Open, and datagrams were sent: it is in use."""
            if procfs.socket_inode(pid, call.descriptor) != unproved.inode:
                return
            if unproved.sent != procfs.datagrams_sent(pid):
                self._used(pid, "udp", unproved.target)
                return
            longer = min(2 * after_s, _LONGEST_LOOK_S)
            self._loop.later(longer, lambda: look_again(longer))

        self._loop.later(_ROUTE_PROBE_S, lambda: look_again(_ROUTE_PROBE_S))

    def _dissolve(self, pid: int, descriptor: int) -> None:
        """The socket is connected again: record the earlier target if anything was sent."""
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
