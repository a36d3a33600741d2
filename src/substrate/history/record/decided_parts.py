"""What the user has decided about single paths of a held world; the ledger keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate.history.store import Detail
from substrate.model import RelPath


class DecidedParts(NamedTuple):
    #: Excluded paths that were applied. Recorded paths are not listed: the world's base has them.
    applied: tuple[RelPath, ...] = ()
    #: Discarded paths: they stay in the layer, and applying the whole world leaves them out.
    discarded: tuple[RelPath, ...] = ()

    def to_payload(self) -> Detail:
        """For an intent; nothing if no path is decided."""
        named = {"applied": self.applied, "discarded": self.discarded}
        return {"parts": {k: [p.hex() for p in v] for k, v in named.items()}} if any(self) else {}

    @classmethod
    def from_payload(cls, payload: Detail) -> DecidedParts:
        kept = payload.get("parts")
        found = kept if isinstance(kept, dict) else {}
        return cls(_paths(found.get("applied")), _paths(found.get("discarded")))

    def with_applied(self, paths: Iterable[RelPath]) -> DecidedParts:
        return self._replace(applied=tuple(sorted({*self.applied, *paths})))

    def with_discarded(self, paths: Iterable[RelPath]) -> DecidedParts:
        return self._replace(discarded=tuple(sorted({*self.discarded, *paths})))


def _paths(record: object) -> tuple[RelPath, ...]:
    return tuple(RelPath(bytes.fromhex(str(one))) for one in record or ())  # type: ignore[attr-defined]
