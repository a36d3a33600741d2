"""The names that libc looks up, by taking the place of its name service cache daemon.

Before glibc reads ``/etc/hosts`` or asks a resolver, it asks nscd over a unix socket, and we see
that connect. So the name arrives here just as the program spelled it, even a name that no DNS
server is ever asked for, such as ``localhost``. We look it up as any program would, with the
machine's own configuration, and answer; libc itself looks up what we cannot answer. On systems
whose libc does not ask nscd, `resolver_relay` still sees what goes over the wire.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

PATHS = ("/var/run/nscd/socket", "/run/nscd/socket")
_VERSION = 2
_GETHOSTBYNAME, _GETHOSTBYNAME6, _GETAI = 4, 5, 14
_HOST_NOT_FOUND = 1
_LONGEST_NAME = 1025
_READ_TIMEOUT_S = 5.0
#: Variables with which a program changes its own lookups: then it must do them itself.
_OWN_WAYS = (b"RES_OPTIONS=", b"HOSTALIASES=", b"LOCALDOMAIN=")


class Lookup(NamedTuple):
    """The addresses of a name, as getaddrinfo reports them."""

    addresses: tuple[str, ...]
    canonical: str


#: Gets a name, and may know its addresses.
Answerer = Callable[[str], "Lookup | None"]


def serve(connection: socket.socket, answerer: Answerer) -> None:
    """Answer one question and hang up. Run it in its own thread: a lookup may take seconds.

    If the connection ends without an answer, libc acts as if nscd did not run: it looks up itself.
    """
    with connection:
        connection.settimeout(_READ_TIMEOUT_S)
        try:
            asked = _read_question(connection)
            if asked is None:
                return
            kind, name = asked
            found = answerer(name)
            if kind == _GETAI and found is not None:
                connection.sendall(_answer(found))
        except OSError:
            return


def looks_up_its_own_way(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read(1 << 20).split(b"\0")
    except OSError:
        return True
    return any(variable.startswith(_OWN_WAYS) for variable in variables)


def in_hosts_file(name: str) -> tuple[str, ...]:
    """The addresses that the machine's hosts file has for a name; they need no resolver."""
    try:
        with open("/etc/hosts", encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.partition("#")[0].split() for line in file]
    except OSError:
        return ()
    wanted = name.rstrip(".").lower()
    return tuple(row[0] for row in rows if wanted in (word.lower() for word in row[1:]))


def _read_question(connection: socket.socket) -> tuple[int, str] | None:
    version, kind, size = struct.unpack("=iii", _exactly(connection, 12))
    if version != _VERSION or not 1 < size <= _LONGEST_NAME:
        return None
    if kind not in (_GETHOSTBYNAME, _GETHOSTBYNAME6, _GETAI):
        return None  # users, groups, services: libc reads its own files
    key = _exactly(connection, size)
    return kind, key.rstrip(b"\0").decode("utf-8", "surrogateescape")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def look_up(name: str) -> Lookup | None:
    """Look up as any program of this machine would; no addresses if there is no such name, None
    if that is uncertain, or if an answer has no room for it."""
    # In bytes: Python would import its tables for international names, and alter the name.
    raw = name.encode("utf-8", "surrogateescape")
    try:
        rows = socket.getaddrinfo(raw, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except socket.gaierror as error:
        # Only a definite "no such name" is passed on; after any other error libc may try by itself.
        return Lookup((), name) if error.errno == socket.EAI_NONAME else None
    except OSError:
        return None
    addresses = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
    if any("%" in address for address in addresses):
        return None  # the answer has no room for a link-local address's interface
    canonical = next((row[3] for row in rows if row[3]), name)
    return Lookup(addresses, canonical)


def _answer(found: Lookup) -> bytes:
    if not found.addresses:
        return struct.pack("=6i", _VERSION, 0, 0, 0, 0, _HOST_NOT_FOUND)
    raw = [
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
        for text in found.addresses
    ]
    families = bytes(socket.AF_INET6 if ":" in text else socket.AF_INET for text in found.addresses)
    canonical = found.canonical.encode("utf-8", "surrogateescape") + b"\0"
    joined = b"".join(raw)
    header = struct.pack("=6i", _VERSION, 1, len(raw), len(joined), len(canonical), 0)
    return header + joined + families + canonical
