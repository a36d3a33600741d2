"""Every subset of a change's hunks: its undo leaves exactly the others."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.history.query import Scope, scopes
from substrate.history.reversal import ChangeHunk, Choice
from substrate.history.store import HistoryStore
from substrate.recorder import queries, reversals
from tests.unit.history.workbench import Bench

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
        own = [hunk for hunk in hunks if hunk.path == b"f"]
        assert len({hunk.hunk_id for hunk in hunks}) == len(hunks)
        taken = set(data.draw(st.lists(st.sampled_from([h.hunk_id for h in hunks]), min_size=1)))
        expected = without(old, new, own, taken)
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
        bench.undo(command_id)
        assert (bench.read("f"), bench.read("other")) == (old, b"x\n")
