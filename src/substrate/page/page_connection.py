"""A connection to the page; those of other users are closed before they count.

Every user of the machine can connect to 127.0.0.1. A few dozen connections that send nothing would
use up the page's limit.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
from contextlib import suppress

from uvicorn.protocols.http.h11_impl import H11Protocol

#: The kernel's tables of TCP sockets, with the user of each. Only Linux has them.
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _REMOTE, _USER = 1, 2, 7


class PageConnection(H11Protocol):
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        user = user_of(peer, own) if peer and own else None
        # Root may do anything here anyway, and forwards ports (WSL).
        if user is not None and user not in (0, os.geteuid()):
            self._is_refused = True
            transport.abort()
        else:
            super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_refused:
            super().connection_lost(exc)


def user_of(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Whose socket of this machine is the other end; None if the kernel does not say."""
    ends = _written(*peer[:2]), _written(*own[:2])
    for table in _TABLES:
        with suppress(OSError), open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                # A socket of IPv6 that talks IPv4 has the same address behind a prefix.
                if fields[_LOCAL].endswith(ends[0]) and fields[_REMOTE].endswith(ends[1]):
                    return int(fields[_USER])
    return None


def _written(address: str, port: int) -> str:
    """As in the tables: words of four bytes in the machine's own order, in hexadecimal."""
    data = ipaddress.ip_address(address).packed
    words = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
