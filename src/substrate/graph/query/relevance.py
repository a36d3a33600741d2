"""Which symbols matter for a task: its words in names and comments, then the graph around them.

BM25 finds symbols that mention the task's words; a random walk from those (personalised PageRank,
by forward push, so that only the neighbourhood is visited) finds what they work with. Results are
sorted by score and then by id: the same query always has the same answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

from substrate.graph.index import Snapshot, SymbolRecord

_WORD = re.compile(r"[A-Za-z0-9]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+")
_COMMON = """
a an and are as at be by for from has in into is it its not of on or so that the this to when
which with add fix make change bug should must does do if then than
"""
_STOP = frozenset(_COMMON.split())
_K1, _B = 1.2, 0.6
_NAME_WEIGHT, _PATH_WEIGHT = 3, 1
_SEEDS = 40
#: How far the walk goes: the probability of a return to a seed, and the smallest push to make.
_RETURN, _SMALLEST = 0.25, 1e-5


class Ranked(NamedTuple):
    symbol: SymbolRecord
    score: float
    #: Words of the task that its text contains.
    words: tuple[str, ...]
    #: For symbols found only by the graph: the neighbour that led here.
    through: str


def words_of(text: str) -> list[str]:
    """``readHTTPReply_v2`` -> read, http, reply, v2; without plural s and common endings."""
    found = []
    for word in _WORD.findall(text):
        parts = _HUMPS.findall(word)
        found += [_stem(part.lower()) for part in parts]
        if len(parts) > 1:
            found.append(_stem(word.lower()))
    return [word for word in found if word not in _STOP and len(word) > 1]


def _stem(word: str) -> str:
    """``retries``, ``retried`` and ``retry`` are one word, roughly."""
    for ending in ("ing", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word[:-1] if word[-1:] in ("i", "y", "e") and len(word) > 3 else word


def rank(snapshot: Snapshot, task: str) -> list[Ranked]:
    """Every symbol related to the task, best first."""
    text_scores, matched = _bm25(snapshot, task)
    if not text_scores:
        return []
    best = sorted(text_scores, key=lambda i: (-text_scores[i], i))[:_SEEDS]
    total = sum(text_scores[i] for i in best)
    seeds = {i: text_scores[i] / total for i in best}
    near = _neighbours(snapshot)
    walked, through = _walk(seeds, near)
    top_text = max(text_scores.values())
    top_walk = max(walked.values(), default=1.0) or 1.0
    scores = {
        i: 0.6 * text_scores.get(i, 0.0) / top_text + 0.4 * walked.get(i, 0.0) / top_walk
        for i in text_scores.keys() | walked.keys()
    }
    return [
        Ranked(snapshot.symbols[i], score, matched.get(i, ()), through.get(i, ""))
        for i, score in sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        if snapshot.symbols[i].kind != "module"
    ]


def _bm25(snapshot: Snapshot, task: str) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
    wanted = {stem: word.lower() for word in _WORD.findall(task) for stem in words_of(word)}
    documents: dict[str, Counter[str]] = {}
    lengths: dict[str, int] = {}
    holders: Counter[str] = Counter()
    paths: dict[str, list[str]] = {}
    for symbol_id, symbol in snapshot.symbols.items():
        if symbol.kind == "module":
            continue
        path_words = paths.setdefault(symbol.path_id, words_of(snapshot.path_of(symbol)))
        words = words_of(symbol.name) * _NAME_WEIGHT + path_words * _PATH_WEIGHT
        words += words_of(symbol.docstring) + words_of(symbol.signature)
        lengths[symbol_id] = len(words)
        hits = Counter(word for word in words if word in wanted)
        if hits:
            documents[symbol_id] = hits
            holders.update(hits.keys())
    average = sum(lengths.values()) / max(1, len(lengths))
    scores, matched = {}, {}
    for symbol_id, hits in documents.items():
        score = 0.0
        for word, count in sorted(hits.items()):
            rarity = math.log(1 + (len(lengths) - holders[word] + 0.5) / (holders[word] + 0.5))
            room = _K1 * (1 - _B + _B * lengths[symbol_id] / average)
            score += rarity * count * (_K1 + 1) / (count + room)
        scores[symbol_id] = score
        matched[symbol_id] = tuple(sorted({wanted[word] for word in hits}))
    return scores, matched


def _neighbours(snapshot: Snapshot) -> dict[str, list[tuple[str, float]]]:
    """Callers and callees; the callees of a symbol count more than its callers."""
    near: dict[str, dict[str, float]] = {}
    for call in snapshot.calls:
        if call.to_symbol_id and call.to_symbol_id != call.from_symbol_id:
            out = near.setdefault(call.from_symbol_id, {})
            out[call.to_symbol_id] = max(out.get(call.to_symbol_id, 0.0), call.confidence)
            back = near.setdefault(call.to_symbol_id, {})
            back[call.from_symbol_id] = max(
                back.get(call.from_symbol_id, 0.0), 0.5 * call.confidence
            )
    return {i: sorted(ways.items()) for i, ways in near.items()}


def _walk(
    seeds: dict[str, float], near: dict[str, list[tuple[str, float]]]
) -> tuple[dict[str, float], dict[str, str]]:
    settled: dict[str, float] = {}
    moving = dict(seeds)
    through: dict[str, str] = {}
    while moving:
        here = min(moving, key=lambda i: (-moving[i], i))
        mass = moving.pop(here)
        settled[here] = settled.get(here, 0.0) + _RETURN * mass
        ways = near.get(here, [])
        weight = sum(w for _, w in ways)
        for there, w in ways:
            share = (1 - _RETURN) * mass * w / weight
            if share < _SMALLEST:
                continue
            moving[there] = moving.get(there, 0.0) + share
            if there not in seeds:
                through.setdefault(there, here)
    return settled, through
