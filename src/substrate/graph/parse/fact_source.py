"""Facts of blobs: from the cache, or extracted, in child processes if there are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from substrate.graph.parse.blob_facts import (
    Facts,
    Links,
    Outline,
    decode_facts,
    decode_links,
    decode_outline,
    encode_facts,
    outline_of,
)
from substrate.graph.parse.facts_cache import DAMAGED, Cache, Packer, packer, row_key
from substrate.graph.parse.languages import name_key
from substrate.objects.git import Repository, TreeEntry
from substrate.system.process import map_forked, processors

#: The key of symbolic links: their content is a path, not source.
LINK_KEY = "@link"
_LINK_MODE = b"120000"
#: Each child process imports the parsers again: a second one pays off beyond this many files.
_FEW = 16


class Wanted(NamedTuple):
    """A path and its blob."""

    path: bytes
    oid: bytes
    key: str


def wanted(path: bytes, mode: bytes, oid: bytes) -> Wanted:
    return Wanted(path, oid, LINK_KEY if mode == _LINK_MODE else name_key(path))


def failed_facts(data: bytes) -> Facts:
    """The facts of a file whose parsing killed a process: size and lines, no symbols."""
    from substrate.graph.parse.extract_facts import extract

    facts = extract("", data)
    facts.trouble = "the parser crashed"
    return facts


def _packed(item: tuple[str, bytes]) -> bytes:
    from substrate.graph.parse.extract_facts import extract

    key, data = item
    return packer().compress(encode_facts(extract(key, data)))


def _packed_without(item: tuple[str, bytes]) -> bytes:
    return packer().compress(encode_facts(failed_facts(item[1])))


class FactSource:
    """Facts of a few files. Child processes, which may crash, parse what is not in the cache."""

    def __init__(self, cache: Cache, repository: Repository) -> None:
        self._cache = cache
        self._repository = repository
        self._unpacker = Unpacker()
        self._known: dict[tuple[bytes, str], Facts] = {}
        self._outlines: dict[tuple[bytes, str], Outline | None] = {}

    def get(self, oid: bytes, key: str) -> Facts:
        if (oid, key) not in self._known:
            found = self._cache.get(oid, key)
            if found is None:
                self._read([(oid, key)])
            else:
                self._known[oid, key] = found
        return self._known[oid, key]

    def outline(self, oid: bytes, key: str) -> Outline | None:
        """What other files may use of this one: decoded without its calls, which are the most."""
        if (oid, key) not in self._outlines:
            self._outlines[oid, key] = self._outline(oid, key)
        return self._outlines[oid, key]

    def _outline(self, oid: bytes, key: str) -> Outline | None:
        packed = self._cache.get_packed([(oid, key)]).get(row_key(oid, key))
        if packed is not None and (oid, key) not in self._known:
            with suppress(*DAMAGED):
                return self._unpacker.outline(packed)
        return outline_of(self.get(oid, key))

    def read_ahead(self, wanted: Iterable[Wanted]) -> None:
        """Load the facts of these paths together, before they are needed."""
        pairs = dict.fromkeys((one.oid, one.key) for one in wanted)
        there = self._cache.get_packed(pairs)
        self._read([pair for pair in pairs if row_key(*pair) not in there])

    def _read(self, pairs: list[tuple[bytes, str]]) -> None:
        if not pairs:
            return
        blobs = self._repository.read_blobs([oid for oid, _ in pairs])
        items = ((key, data) for (_, key), (_, data) in zip(pairs, blobs, strict=True))
        workers = processors() if len(pairs) > _FEW else 1
        made = list(
            map_forked(_packed, items, workers=workers, rescue=_packed_without, isolate=True)
        )
        for pair, packed in zip(pairs, made, strict=True):
            self._known[pair] = self._unpacker.facts(packed)
        rows = zip(pairs, made, strict=True)
        self._cache.put_packed([(row_key(*pair), packed) for pair, packed in rows])


Batch = list[tuple[Wanted, bytes | None, bytes | None]]
#: Bytes of content, and files, that one child gets at a time.
_BATCH_BYTES = 192 << 10
_BATCH_FILES = 128


def batches(
    entries: Iterable[TreeEntry],
    cache: Cache,
    repository: Repository,
    progress: Callable[[int], None],
) -> Iterator[Batch]:
    """Runs of paths, each with its cached facts or its content; one git process reads all."""
    window: list[Wanted] = []
    done = 0
    for entry in entries:
        window.append(wanted(entry.path, entry.mode, entry.oid))
        if len(window) == 1024:
            yield from _filled(window, cache, repository)
            done += len(window)
            progress(done)
            window = []
    yield from _filled(window, cache, repository)
    progress(done + len(window))


def _filled(window: list[Wanted], cache: Cache, repository: Repository) -> Iterator[Batch]:
    packed = cache.get_packed((one.oid, one.key) for one in window)
    missing = [one for one in window if row_key(one.oid, one.key) not in packed]
    contents = repository.read_blobs([one.oid for one in missing])
    batch: Batch = []
    size = 0
    for one in window:
        known = packed.get(row_key(one.oid, one.key))
        data = None if known is not None else next(contents)[1]
        batch.append((one, known, data))
        size += len(data) if data is not None else 0
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class Unpacker:
    """A stored row -> facts."""

    def __init__(self) -> None:
        self._decompress = Packer().decompress

    def facts(self, packed: bytes | memoryview) -> Facts:
        return decode_facts(self._decompress(packed))

    def links(self, packed: bytes | memoryview) -> Links:
        return decode_links(self._decompress(packed))

    def outline(self, packed: bytes | memoryview) -> Outline | None:
        return decode_outline(self._decompress(packed))
