"""Scopes: ``tcp:host:port``, each once, in the order in which they were first asked for."""

from __future__ import annotations

import threading

#: A command that scans a network must not fill the trace.
MOST_SCOPES = 10_000


def scope(protocol: str, host: str, port: int) -> str:
    """The host as the program named it; an IPv6 address is in brackets."""
    shown = f"[{host}]" if ":" in host else host
    return f"{protocol}:{shown}:{port}"


class ScopeLog:
    """What was reached, what was refused, and what did not answer.

    Written by one thread, read by another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, None] = {}
        self._denied: dict[str, None] = {}
        self._failed: dict[str, None] = {}
        #: Calls that could not be read: the process was gone, or its memory is unreadable.
        self.unread = 0

    def used(self, text: str) -> None:
        with self._lock:
            if len(self._used) < MOST_SCOPES:
                self._used.setdefault(text)

    def denied(self, text: str) -> None:
        with self._lock:
            if len(self._denied) < MOST_SCOPES:
                self._denied.setdefault(text)

    def failed(self, text: str) -> None:
        with self._lock:
            if len(self._failed) < MOST_SCOPES:
                self._failed.setdefault(text)

    def scopes(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._used)

    def take(self) -> tuple[str, ...]:
        """What was used since the last call, for a command that continues."""
        with self._lock:
            found = tuple(self._used)
            self._used.clear()
            return found

    def denials(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._denied)

    def failures(self) -> tuple[str, ...]:
        """What was asked for and allowed, and never answered in any attempt."""
        with self._lock:
            return tuple(one for one in self._failed if one not in self._used)

    @property
    def full(self) -> bool:
        return max(map(len, (self._used, self._denied, self._failed))) >= MOST_SCOPES
