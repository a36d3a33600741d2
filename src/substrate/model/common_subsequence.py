"""The longest common subsequence of two lists, exactly and fast enough for 10,000 steps.

Bit-parallel (Hyyrö 2004): one row of the usual table is one big integer, and Python adds those at
machine speed. A row's bit is 0 where the length grows:

    B =  a b c          after A's `b`:  1 0 1     the common subsequence "b" ends at B's 2nd item
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

#: Largest table to keep, in bits; longer lists are first cut at items that occur once in each.
_MAX_BITS = 400_000_000


class Pair(NamedTuple):
    """Positions of two items that belong together."""

    a: int
    b: int


def common(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Pairs of equal items, increasing in both lists: as many pairs as possible."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    pairs = [Pair(n, n) for n in range(start)]
    inner = _inner(a[start : len(a) - end], b[start : len(b) - end])
    pairs += [Pair(x + start, y + start) for x, y in inner]
    pairs += [Pair(len(a) - n, len(b) - n) for n in range(end, 0, -1)]
    return pairs


def gaps(pairs: Sequence[Pair], len_a: int, len_b: int) -> list[tuple[range, range]]:
    """The items between the pairs, as one range per side, wherever either range is not empty."""
    found = []
    before = Pair(-1, -1)
    for pair in (*pairs, Pair(len_a, len_b)):
        left, right = range(before.a + 1, pair.a), range(before.b + 1, pair.b)
        if left or right:
            found.append((left, right))
        before = pair
    return found


def _inner(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    # An item that the other list lacks cannot be in a pair.
    shared = set(a) & set(b)
    at_a = [n for n, item in enumerate(a) if item in shared]
    at_b = [n for n, item in enumerate(b) if item in shared]
    short_a, short_b = [a[n] for n in at_a], [b[n] for n in at_b]
    if len(short_a) * len(short_b) <= _MAX_BITS:
        found = _by_bits(short_a, short_b)
    else:
        found = _by_unique(short_a, short_b)
    return [Pair(at_a[x], at_b[y]) for x, y in found]


def _by_bits(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    if not a or not b:
        return []
    masks: dict[Hashable, int] = {}
    for n, item in enumerate(b):
        masks[item] = masks.get(item, 0) | (1 << n)
    ones = (1 << len(b)) - 1
    row, rows = ones, []
    for item in a:
        matches = masks[item]
        row = ((row + (row & matches)) | (row & ~matches)) & ones
        rows.append(row)
    pairs = []
    x, y = len(a), len(b)
    while x and y:
        if rows[x - 1] >> (y - 1) & 1:
            y -= 1
            continue
        x -= 1
        if not x or rows[x - 1] >> (y - 1) & 1:
            y -= 1
            pairs.append(Pair(x, y))
    pairs.reverse()
    return pairs


def _by_unique(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """For very long lists: the longest increasing run of items that occur once on each side."""
    once_a, once_b = _once(a), _once(b)
    candidates = [Pair(x, once_b[item]) for item, x in once_a.items() if item in once_b]
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for number, pair in enumerate(candidates):
        at = bisect_left(ends, pair.b)
        ends[at : at + 1] = [pair.b]
        last[at : at + 1] = [number]
        before.append(last[at - 1] if at else -1)
    chain = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(candidates[number])
        number = before[number]
    chain.reverse()
    return chain


def _once(items: Sequence[Hashable]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    twice: set[Hashable] = set()
    for n, item in enumerate(items):
        if item in found:
            twice.add(item)
        found[item] = n
    return {item: n for item, n in found.items() if item not in twice}
