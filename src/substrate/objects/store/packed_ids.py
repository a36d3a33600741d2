"""Which objects the packs of one directory hold, however many packs there are.

Each command that changes many files leaves a pack of its own until they are packed together, and
what it brings is asked for in all of them: so the ids of small packs are looked through as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from substrate.objects.packfile import PackIndex

_ID_BYTES = 20
#: In larger ones halving is quicker than a search through the bytes.
_SMALL_COUNT = 20_000
#: After so many questions it is weighed whether to make a table of all ids.
_ASKED_OFTEN = 128
#: A question takes as long as putting so many ids into a table.
_QUESTION_COST = 16


class PackedIds:
    """Good for as long as the packs stay the same."""

    def __init__(self, indexes: Iterable[PackIndex]) -> None:
        found = list(indexes)
        self._small = [one for one in found if one.count <= _SMALL_COUNT]
        self._large = [one for one in found if one.count > _SMALL_COUNT]
        self._count = sum(one.count for one in found)
        #: By their first byte, the ids of all small packs, one behind the other.
        self._joined: dict[int, bytes] = {}
        #: Every id, once so many were asked for that a table is quicker; and how many were.
        self._table: set[bytes] | None = None
        self._asked = 0

    def has(self, oid: bytes) -> bool:
        if self._table is not None:
            return oid in self._table
        self._asked += 1
        if self._asked % _ASKED_OFTEN == 0:
            self._make_table()
        return self._is_in_one(oid)

    def among(self, oids: Collection[bytes]) -> set[bytes]:
        """Those of `oids` that are in a pack."""
        if self._table is None:
            self._asked += len(oids)
            if self._asked >= _ASKED_OFTEN:
                self._make_table()
        if self._table is not None:
            return self._table.intersection(oids)
        return {oid for oid in oids if self._is_in_one(oid)}

    def _is_in_one(self, oid: bytes) -> bool:
        first = oid[0]
        ids = self._joined.get(first)
        if ids is None:
            ids = self._joined[first] = b"".join([one.bucket(first) for one in self._small])
        at = ids.find(oid)
        while at >= 0 and at % _ID_BYTES:
            at = ids.find(oid, at + 1)  # across two ids
        if at >= 0:
            return True
        return any(one.position(oid) is not None for one in self._large)

    def _make_table(self) -> None:
        """If that costs no more than the questions so far did."""
        questions = self._asked * (1 + len(self._large))
        if self._count < questions * _QUESTION_COST:
            self._table = set()
            for one in (*self._small, *self._large):
                self._table.update(one.oids())
