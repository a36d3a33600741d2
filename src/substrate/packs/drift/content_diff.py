"""How two contents differ: by line, if both are text of a readable size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from substrate.errors import DamagedStoreError
from substrate.model import Pair, common
from substrate.packs.store import Objects

#: Contents above these are compared by their first difference only.
MAX_BYTES = 2 << 20
MAX_COMPARED_LINES = 50_000
#: Unchanged lines around a change.
_CONTEXT = 3
#: Lines of a diff in a report; the rest is counted.
MAX_LINES = 400

Sign = Literal[" ", "-", "+"]


class Line(NamedTuple):
    sign: Sign
    #: Line numbers from 1; 0 on the side that lacks the line.
    a: int
    b: int
    text: str


class ContentDiff(NamedTuple):
    """Hunks of lines, or a sentence if lines would not help."""

    hunks: tuple[tuple[Line, ...], ...] = ()
    summary: str = ""

    def unified(self) -> str:
        """As `diff -u` writes it, without file names."""
        if not self.hunks:
            return self.summary
        out = []
        for hunk in self.hunks:
            old = [line.a for line in hunk if line.a]
            new = [line.b for line in hunk if line.b]
            out.append(f"@@ -{_span(old)} +{_span(new)} @@")
            out += [line.sign + line.text for line in hunk]
        if self.summary:
            out.append(self.summary)
        return "\n".join(out)


def diff_contents(objects: Objects, ref_a: str, ref_b: str) -> ContentDiff:
    """Compare two objects; "" means no content."""
    try:
        sizes = [objects.size(ref) if ref else 0 for ref in (ref_a, ref_b)]
        if max(sizes) > MAX_BYTES:
            return ContentDiff(summary=_first_difference(objects, ref_a, ref_b, sizes))
        a, b = (objects.read(ref) if ref else b"" for ref in (ref_a, ref_b))
    except DamagedStoreError as error:
        return ContentDiff(summary=error.message)
    try:
        texts = a.decode("utf-8"), b.decode("utf-8")
    except UnicodeDecodeError:
        texts = ("\0", "")
    too_many = max(text.count("\n") for text in texts) > MAX_COMPARED_LINES
    if too_many or "\0" in texts[0] or "\0" in texts[1]:
        return ContentDiff(summary=_first_difference(objects, ref_a, ref_b, sizes))
    return diff_lines(_lines(texts[0]), _lines(texts[1]))


def diff_lines(a: Sequence[str], b: Sequence[str]) -> ContentDiff:
    script = list(_script(a, b, common(a, b)))
    keep = [False] * len(script)
    for n, line in enumerate(script):
        if line.sign != " ":
            low, high = max(0, n - _CONTEXT), min(len(script), n + _CONTEXT + 1)
            keep[low:high] = [True] * (high - low)
    hunks: list[list[Line]] = []
    count = 0
    for n, line in enumerate(script):
        if not keep[n]:
            continue
        count += 1
        if count > MAX_LINES:
            continue
        if not hunks or not n or not keep[n - 1]:
            hunks.append([])
        hunks[-1].append(line)
    rest = f"… and {count - MAX_LINES} more lines" if count > MAX_LINES else ""
    return ContentDiff(tuple(map(tuple, hunks)), rest)


def _script(a: Sequence[str], b: Sequence[str], pairs: Sequence[Pair]) -> list[Line]:
    out: list[Line] = []
    x = y = 0
    for pair in (*pairs, Pair(len(a), len(b))):
        out += [Line("-", n + 1, 0, a[n]) for n in range(x, pair.a)]
        out += [Line("+", 0, n + 1, b[n]) for n in range(y, pair.b)]
        if pair.a < len(a):
            out.append(Line(" ", pair.a + 1, pair.b + 1, a[pair.a]))
        x, y = pair.a + 1, pair.b + 1
    return out


def _lines(text: str) -> list[str]:
    """Lines without newlines; a last line without one is marked: it may be the difference."""
    if not text:
        return []
    lines = text.split("\n")
    last = lines.pop()
    return lines if not last else [*lines, f"{last} (no line end)"]


def _first_difference(objects: Objects, ref_a: str, ref_b: str, sizes: Sequence[int]) -> str:
    told = f"{sizes[0]:,} and {sizes[1]:,} bytes"
    if not ref_a or not ref_b:
        return told
    at = 0
    for x, y in zip(objects.chunks(ref_a), objects.chunks(ref_b), strict=False):
        if x != y:
            pairs = enumerate(zip(x, y, strict=False))
            at += next((n for n, (left, right) in pairs if left != right), min(len(x), len(y)))
            break
        at += len(x)
    return f"{told}; they first differ at byte {at:,}"


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return "0,0"
    return f"{numbers[0]},{len(numbers)}" if len(numbers) > 1 else f"{numbers[0]}"
