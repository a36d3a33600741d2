"""A context that fits a budget: the pieces of code that a task needs, never above the limit.

The limit counts the tokens of the whole resulting text, headers included, by a tokenizer with a
bundled vocabulary (o200k). Tokenizers of other models differ by a few per cent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from substrate.graph.index import Place, Snapshot, SymbolRecord
from substrate.graph.query.relevance import Ranked, rank

#: More pieces are not useful, and their ranking means little.
_MOST_PIECES = 200
#: If fewer tokens are left, do not check hundreds of further candidates.
_SMALLEST_ROOM = 12
_MISSES = 60


class Piece(NamedTuple):
    path: str
    start_line: int
    end_line: int
    symbol: str
    #: Whole, or only the signature.
    form: str
    why: str
    tokens: int
    text: str


class Context(NamedTuple):
    text: str
    tokens: int
    pieces: list[Piece]
    #: How many related symbols did not fit.
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
    """The best pieces first; of a piece that is too large only the signature is included.

    `read_lines` returns a path's lines in the snapshot's commit.
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
    # Joining can change the number of tokens, so count the whole text.
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
        # A quick check by length: most pieces that do not fit need no counting.
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
