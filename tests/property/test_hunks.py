"""Every subset of a change's hunks: its undo leaves exactly the others."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.history.query import Scope, scopes
from substrate.history.reversal import ChangeHunk, Choice
from substrate.history.store import HistoryStore
from substrate.recorder import queries, reversals
from tests.unit.history.workbench import Bench

#: A change of more is tried with subsets of its first ones.
_MOST_HUNKS = 5
_line = st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"])
_text = st.lists(_line, max_size=12).map(b"".join)
#: A file without a newline at its end is a case of its own.
_content = st.one_of(_text, _text.map(lambda text: text + b"end"))


def hunks_of(bench: Bench, command_id: str) -> list[ChangeHunk]:
    with bench.store() as store, store.rehearsing("diff"):
        found = queries.scope_diff(store, scope(store, command_id), (), hunks=True)
        return found.hunks if found else []


def scope(store: HistoryStore, command_id: str) -> Scope:
    return scopes.of_command(store, command_id, None)


def without(old: bytes, new: bytes, hunks: list[ChangeHunk], taken: set[str]) -> bytes:
    """`new` put together from its hunks and the lines between, the taken ones as in `old`."""
    lines, out, done = new.splitlines(keepends=True), [], 0
    for hunk in hunks:
        out += lines[done : hunk.new_at]
        out += hunk.old if hunk.hunk_id in taken else hunk.new
        done = hunk.new_at + len(hunk.new)
    whole = b"".join([*out, *lines[done:]])
    assert whole == new or any(hunk.hunk_id in taken for hunk in hunks)
    assert whole == old or any(hunk.hunk_id not in taken for hunk in hunks)
    return whole


@given(_content, _content, st.data())
@settings(deadline=None, max_examples=20)
def test_the_others_stay(old: bytes, new: bytes, data: st.DataObject) -> None:
    with TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch, "project"))
        bench.outside({"f": old, "other": b"x\n"})
        command_id = bench.run({"f": new, "other": b"y\n"}).command_id
        hunks = hunks_of(bench, command_id)
        assert len({hunk.hunk_id for hunk in hunks}) == len(hunks)
        taken = set(data.draw(st.lists(st.sampled_from([h.hunk_id for h in hunks]), min_size=1)))
        take_back(bench, command_id, hunks, taken, old, new)
        bench.undo(command_id)
        assert (bench.read("f"), bench.read("other")) == (old, b"x\n")


@pytest.mark.long
@given(_content, _content)
@settings(deadline=None, max_examples=100)
def test_every_subset_of_many_changes(old: bytes, new: bytes) -> None:
    every_subset(old, new)


def test_every_subset_of_a_change() -> None:
    old = b"".join(b"line %d\n" % number for number in range(9))
    new = old.replace(b"line 1\n", b"").replace(b"line 4", b"LINE 4") + b"end"
    every_subset(old, new)


def every_subset(old: bytes, new: bytes) -> None:
    """Each subset is taken back and brought again, so that the next one starts from the change."""
    with TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch, "project"))
        bench.outside({"f": old, "other": b"x\n"})
        command_id = bench.run({"f": new, "other": b"y\n"}).command_id
        hunks = hunks_of(bench, command_id)
        for size in range(1, min(len(hunks), _MOST_HUNKS) + 1):
            for taken in combinations([hunk.hunk_id for hunk in hunks[:_MOST_HUNKS]], size):
                take_back(bench, command_id, hunks, set(taken), old, new)


def take_back(
    bench: Bench, command_id: str, hunks: list[ChangeHunk], taken: set[str], old: bytes, new: bytes
) -> None:
    """Exactly the complement stays; then `redo` brings back what was taken."""
    expected = without(old, new, [hunk for hunk in hunks if hunk.path == b"f"], taken)
    reversals.undo_hunks(
        bench.place(), lambda store: scope(store, command_id), dict.fromkeys(taken), Choice()
    )
    assert bench.read("f") == expected
    rest = {hunk.hunk_id for hunk in hunks} - taken
    assert (bench.read("other") == b"y\n") == any(
        hunk.path == b"other" and hunk.hunk_id in rest for hunk in hunks
    )
    bench.redo()
    assert (bench.read("f"), bench.read("other")) == (new, b"y\n")
