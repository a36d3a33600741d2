"""A context that fits a budget: the pieces of code that a task needs, never over the cap.

The count is that of the whole text as it is handed over, headers included, by a tokenizer that
carries its vocabulary (o200k). Other models' tokenizers differ by some per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from substrate.graph.records import SymbolRecord
from substrate.graph.relevance import Ranked, rank
from substrate.graph.snapshot import Place, Snapshot

#: Beyond these nobody reads on, and ranking says little.
_MOST_PIECES = 200
#: A smaller rest is not worth another look at hundreds of candidates.
_SMALLEST_ROOM = 12
_MISSES = 60


class Piece(NamedTuple):
    path: str
    start_line: int
    end_line: int
    symbol: str
    #: Whole, or the signature alone.
    form: str
    why: str
    tokens: int
    text: str


class Context(NamedTuple):
    text: str
    tokens: int
    pieces: list[Piece]
    #: Symbols that had to do with the task and found no room.
    left_out: int


@cache
def _tokenizer() -> Callable[[str], list[int]]:
    import splintr

    encode: Callable[[str], list[int]] = splintr.Tokenizer.from_pretrained(
        "o200k_base"
    ).encode_ordinary
    return encode


def count_tokens(text: str) -> int:
    return len(_tokenizer()(text)) if text else 0


def fill(
    snapshot: Snapshot, task: str, token_cap: int, read_lines: Callable[[bytes], list[str]]
) -> Context:
    """The best pieces first; a piece too large for the room left is told by its signature.

    `read_lines` gives a path's lines as of the snapshot's commit.
    """
    ranked = rank(snapshot, task)
    chosen: list[Piece] = []
    covered: dict[str, list[Place]] = {}
    left = token_cap
    misses = left_out = 0
    for one in ranked[: 5 * _MOST_PIECES]:
        place = _place(snapshot, one.symbol)
        if _is_covered(place, covered):
            continue
        if left < _SMALLEST_ROOM or misses > _MISSES or len(chosen) >= _MOST_PIECES:
            left_out += 1
            continue
        piece = _fitting(snapshot, one, place, left, read_lines)
        if piece is None:
            misses += 1
            left_out += 1
            continue
        chosen.append(piece)
        covered.setdefault(place.path, []).append(place)
        left -= piece.tokens
    # Joining pieces can only be trusted once the whole is counted.
    while chosen and count_tokens(_join(chosen)) > token_cap:
        chosen.pop()
        left_out += 1
    text = _join(chosen)
    return Context(text, count_tokens(text), chosen, left_out)


def _join(pieces: list[Piece]) -> str:
    return "\n".join(piece.text for piece in pieces)


def _place(snapshot: Snapshot, symbol: SymbolRecord) -> Place:
    return snapshot.places(symbol.path_id)[symbol.def_region_id]


def _is_covered(place: Place, covered: dict[str, list[Place]]) -> bool:
    return any(
        there.start_line <= place.start_line and place.end_line <= there.end_line
        for there in covered.get(place.path, ())
    )


def _fitting(
    snapshot: Snapshot, one: Ranked, place: Place, room: int,
    read_lines: Callable[[bytes], list[str]],
) -> Piece | None:  # fmt: skip
    why = _why(snapshot, one)
    head = f"## {place.path}:{place.start_line}-{place.end_line} {one.symbol.fqname} ({why})\n"
    lines = read_lines(snapshot.raw_path(one.symbol.path_id))
    body = "".join(lines[place.start_line - 1 : place.end_line])
    doc = f"    # {one.symbol.docstring}\n" if one.symbol.docstring else ""
    for form, text in (("whole", body), ("signature", f"{one.symbol.signature}\n{doc}")):
        shown = head + text + ("" if text.endswith("\n") else "\n")
        # Every token is one byte at least: most misfits need no counting.
        if len(shown) > 12 * room:
            continue
        tokens = count_tokens(shown) + 1
        if tokens <= room:
            return Piece(
                place.path, place.start_line, place.end_line, one.symbol.fqname, form, why,
                tokens, shown,
            )  # fmt: skip
    return None


def _why(snapshot: Snapshot, one: Ranked) -> str:
    if one.words:
        return "mentions " + ", ".join(one.words[:4])
    through = snapshot.symbols.get(one.through)
    return f"used with {through.fqname}" if through is not None else "nearby in the graph"
