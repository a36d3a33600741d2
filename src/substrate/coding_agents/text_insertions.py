"""Text to which something was added, and where: so that the addition can be removed exactly."""

from __future__ import annotations

from typing import NamedTuple


class Extended(NamedTuple):
    """A text and the ranges in it that were inserted; without them it is the original text."""

    text: str
    #: Start and length of each inserted range, in order, apart from each other.
    inserted: tuple[tuple[int, int], ...] = ()
    #: The objects and arrays that had to be added, by their keys.
    containers: tuple[tuple[str, ...], ...] = ()

    def insert(self, at: int, addition: str) -> Extended:
        """The text with `addition` at offset `at`."""
        length = len(addition)
        ranges: list[tuple[int, int]] = []
        for start, size in self.inserted:
            if start <= at <= start + size:  # within a range of ours, or at its edge
                ranges.append((start, size + length))
                length = 0
            else:
                ranges.append((start + (len(addition) if start > at else 0), size))
        if length:
            ranges.append((at, length))
        text = self.text[:at] + addition + self.text[at:]
        return self._replace(text=text, inserted=tuple(_joined(sorted(ranges))))

    @property
    def original(self) -> str:
        """The text without the inserted ranges."""
        return without_ranges(self.text, self.inserted)


def without_ranges(text: str, ranges: tuple[tuple[int, int], ...]) -> str:
    """`text` with the ranges cut out."""
    for start, size in sorted(ranges, reverse=True):
        text = text[:start] + text[start + size :]
    return text


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that touch each other become one."""
    joined: list[tuple[int, int]] = []
    for start, size in ranges:
        if joined and joined[-1][0] + joined[-1][1] == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + size)
        else:
            joined.append((start, size))
    return joined


def newline_of(text: str) -> str:
    """How the lines of `text` end."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
