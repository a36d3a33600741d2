"""What a child process makes of its files, and how it passes the result to the parent.

The lines of a whole tree go from the children to the parent, which only writes them to disk. So
each child joins them by file of the snapshot, and they are passed on without a copy.
"""

from __future__ import annotations

from pickle import PickleBuffer
from typing import NamedTuple

from substrate.graph.index.path_section import counted_section
from substrate.graph.index.splice import Sections
from substrate.graph.parse import (
    DAMAGED,
    Batch,
    Facts,
    Unpacker,
    Wanted,
    encode_facts,
    extract_all,
    failed_facts,
    packer,
)
from substrate.system.process import map_forked

#: Bytes for a file, passed between processes: see `map_forked`.
Handed = bytes | memoryview | PickleBuffer


class BatchRead(NamedTuple):
    """A child's result for a batch. Without any rows: a cached row was damaged."""

    table: Sections
    #: The lines for the first three files, and their numbers.
    lines: tuple[Handed, ...] = ()
    counts: tuple[int, ...] = ()
    #: The stored form of their facts, concatenated; the length of each, and whether it is new.
    packed: Handed = b""
    sizes: tuple[int, ...] = ()
    new: tuple[bool, ...] = ()


def read_batch(batch: Batch) -> BatchRead:
    """Parse what is not in the cache, and write every line that depends on one file only."""
    # Do one kind of work for all files, then the next: its code stays in the CPU caches.
    unpack, compress = Unpacker().facts, packer().compress
    new = iter(extract_all([(one.key, data or b"") for one, known, data in batch if known is None]))
    try:
        facts = [unpack(known) if known is not None else next(new) for _, known, _ in batch]
    except DAMAGED:
        return BatchRead(Sections())
    pairs = [(one, said) for (one, _, _), said in zip(batch, facts, strict=True)]
    packed = [
        known if known is not None else compress(encode_facts(said))
        for (_, known, _), said in zip(batch, facts, strict=True)
    ]
    return _told(pairs, packed, tuple([known is None for _, known, _ in batch]))


def _told(
    pairs: list[tuple[Wanted, Facts]], packed: list[bytes], new: tuple[bool, ...]
) -> BatchRead:
    table = Sections()
    counted = [counted_section(one.path, one.oid, one.key, facts) for one, facts in pairs]
    sections = [section for section, _ in counted]
    for (one, _), section in zip(pairs, sections, strict=True):
        table.append(one.path, section)
    table.defined = b"".join([section.defined for section in sections])
    table.mentioned = b"".join([section.mentioned for section in sections])
    lines = [b"".join([section.chunks[at] for section in sections]) for at in range(3)]
    return BatchRead(
        table,
        tuple(map(PickleBuffer, lines)),
        tuple(map(sum, zip(*[lines for _, lines in counted], strict=True))),
        PickleBuffer(b"".join(packed)),
        tuple(map(len, packed)),
        new,
    )


def rescue(batch: Batch) -> BatchRead:
    """After a child died on this batch: read each file in a separate child."""
    if len(batch) == 1:
        one, _, data = batch[0]
        facts = failed_facts(data or b"")
        # Cached, so that no later command crashes on it.
        return _told([(one, facts)], [packer().compress(encode_facts(facts))], (True,))
    singles = [[item] for item in batch]
    parts = list(map_forked(read_batch, singles, workers=2, rescue=rescue))
    damaged = next((part for part in parts if not part.sizes), None)
    return damaged or _joined(parts)


def _joined(parts: list[BatchRead]) -> BatchRead:
    table = Sections()
    names = [table.extend(part.table, 0, len(part.table)) for part in parts]
    table.defined = b"".join([defined for defined, _, _ in names])
    table.mentioned = b"".join([mentioned for _, mentioned, _ in names])
    return BatchRead(
        table,
        tuple([b"".join([part.lines[at] for part in parts]) for at in range(3)]),
        tuple([sum(part.counts[at] for part in parts) for at in range(3)]),
        b"".join([part.packed for part in parts]),
        tuple([size for part in parts for size in part.sizes]),
        tuple([new for part in parts for new in part.new]),
    )
