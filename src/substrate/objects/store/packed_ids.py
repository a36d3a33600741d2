"""Which objects are in the packs of one directory, fast for any number of packs.

Each command that changes many files adds a pack, until the packs are combined. Every new object is
looked up in all of them, so the ids of small packs are joined and searched together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from substrate.objects.store.packfile import PackIndex

_ID_BYTES = 20
#: In larger packs a binary search is faster than a search through the bytes.
_SMALL_COUNT = 20_000
#: After this many lookups, consider making a table of all ids.
_ASKED_OFTEN = 128
#: A lookup takes as long as adding this many ids to a table.
_QUESTION_COST = 16


class PackedIds:
    """Valid as long as the packs stay the same."""

    def __init__(self, indexes: Iterable[PackIndex]) -> None:
        found = list(indexes)
        self._small = [one for one in found if one.count <= _SMALL_COUNT]
        self._large = [one for one in found if one.count > _SMALL_COUNT]
        self._count = sum(one.count for one in found)
        #: By their first byte, the concatenated ids of all small packs.
        self._joined: dict[int, bytes] = {}
        #: Every id, after so many lookups that a table is faster; and the number of lookups.
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
            at = ids.find(oid, at + 1)  # the match spans two ids
        if at >= 0:
            return True
        return any(one.position(oid) is not None for one in self._large)

    def _make_table(self) -> None:
        """Make the table, if it costs no more than the lookups so far."""
        questions = self._asked * (1 + len(self._large))
        if self._count < questions * _QUESTION_COST:
            self._table = set()
            for one in (*self._small, *self._large):
                self._table.update(one.oids())
