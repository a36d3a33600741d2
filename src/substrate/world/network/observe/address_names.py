"""Which name an address came from, process by process.

Two programs may mean different things by one address: ``curl localhost`` and, after it,
``curl 127.0.0.1``. So a name counts for the process that asked for it, and for the children that
it forked and that still run the same program.
"""

from __future__ import annotations

import threading

from substrate.world.network.observe import procfs

#: A process that resolves very many names must not fill our memory.
_MOST_ENTRIES = 20_000
_MOST_GENERATIONS = 16


class Names:
    """What was learned from lookups. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: (process, address) -> the name it asked for last.
        self._entries: dict[tuple[int, str], str] = {}
        self._addresses: set[str] = set()

    def learn(self, pid: int, name: str, addresses: tuple[str, ...]) -> None:
        plain = name.rstrip(".").lower()
        if not plain:
            return
        with self._lock:
            if len(self._entries) + len(addresses) > _MOST_ENTRIES:
                self._entries.clear()
                self._addresses.clear()
            for address in addresses:
                self._entries[pid, address] = plain
                self._addresses.add(address)

    def is_known(self, address: str) -> bool:
        """Whether some lookup returned it."""
        return address in self._addresses

    def host(self, pid: int, address: str) -> str:
        """The name `pid` knows `address` by; the address itself if it never asked."""
        if address not in self._addresses:
            return address
        program = procfs.program(pid)
        for _ in range(_MOST_GENERATIONS):
            with self._lock:
                name = self._entries.get((pid, address))
            if name is not None:
                return name
            pid = procfs.parent(pid)
            if pid <= 1 or not program[0] or procfs.program(pid) != program:
                break
        return address
