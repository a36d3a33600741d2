"""Random histories of three writers: a scope's diff is what its undo takes back, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from substrate.history.query import Scope, scopes
from substrate.history.record import AgentSession, agent_sessions, prompts
from substrate.history.reversal import Choice
from substrate.history.store import HistoryStore
from substrate.recorder import queries, reversals
from substrate.system import clock
from substrate.system import ids as ids_module
from tests.unit.history.workbench import Bench

#: One writer each; None edits outside.
_WRITERS = ("human", "claude-code", None)
_FILES = ("a.txt", "b.txt")
#: Lines between two that are changed: neighbours would be a conflict, rightly.
_APART = 3


class Write(NamedTuple):
    writer: str | None
    file: str
    #: The agent's user sends a prompt before it.
    is_asked: bool


_writes = st.lists(
    st.builds(Write, st.sampled_from(_WRITERS), st.sampled_from(_FILES), st.booleans()),
    min_size=2, max_size=9,
)  # fmt: skip
_AGENT = AgentSession("claude-code", "session-of-the-agent")
#: What "on random histories" means for a long run.
_MANY = 1000


def page(lines: dict[int, str], count: int) -> bytes:
    return "".join(f"{lines.get(n, f'line {n}')}\n" for n in range(count * _APART)).encode()


@given(_writes, st.data())
@settings(deadline=None, max_examples=25)
def test_the_diff_of_a_scope_is_what_its_undo_takes_back(
    writes: list[Write], data: st.DataObject
) -> None:
    compare(writes, data)


@pytest.mark.long
@given(_writes, st.data())
@settings(deadline=None, max_examples=_MANY)
def test_on_many_histories(writes: list[Write], data: st.DataObject) -> None:
    compare(writes, data)


def compare(writes: list[Write], data: st.DataObject) -> None:
    with TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch, "project"))
        bench.outside({name: page({}, len(writes)) for name in _FILES})
        start = bench.run({"start": b"x"}).command_id
        ids: dict[int, str] = {}
        prompt = ask(bench)
        asked: dict[str, set[int]] = {}
        lines: dict[str, dict[int, str]] = {name: {} for name in _FILES}
        for number, write in enumerate(writes):
            lines[write.file][number * _APART] = f"by {write.writer} {number}"
            change = {write.file: page(lines[write.file], len(writes))}
            if write.writer is None:
                bench.outside(change)
                bench.settle()
                continue
            if write.is_asked and write.writer == _AGENT.agent:
                prompt = ask(bench)
            session = _AGENT if write.writer == _AGENT.agent else f"s-{write.writer}"
            ids[number] = bench.run(change, session=session, agent=write.writer).command_id
            if write.writer == _AGENT.agent:
                asked.setdefault(prompt, set()).add(number)
        chosen, find = _choose(data, writes, ids, start, asked)
        assume(chosen)

        def left(without: set[int], name: str) -> bytes:
            kept = {at: text for at, text in lines[name].items() if at // _APART not in without}
            return page(kept, len(writes))

        with bench.store() as store, store.rehearsing("diff"):
            found = queries.scope_diff(store, find(store), ())
            assert found is not None
            text = store.git.diff_text(found.old_tree, found.new_tree).decode()
        added = {line[1:] for line in text.splitlines() if line.startswith("+by ")}
        assert added == {f"by {writes[n].writer} {n}" for n in chosen}

        reversals.undo_scope(bench.place(), find, Choice())
        assert {name: bench.read(name) for name in _FILES} == {
            name: left(chosen, name) for name in _FILES
        }
        bench.redo()
        assert {name: bench.read(name) for name in _FILES} == {
            name: left(set(), name) for name in _FILES
        }


def ask(bench: Bench) -> str:
    """A prompt of the agent's user; what the agent does from now on belongs to it."""
    with bench.writing() as store:
        session_id = agent_sessions.for_command(store, _AGENT, _AGENT.agent)
        with store.commit_point() as ledger:
            return prompts.begin(
                ledger, session_id, agent_prompt=ids_module.new_id("p"), text="please", model=None,
                started_ns=clock.now_ns(),
            ).prompt_id  # fmt: skip


def _choose(
    data: st.DataObject, writes: list[Write], ids: dict[int, str], start: str,
    asked: dict[str, set[int]],
) -> tuple[set[int], Callable[[HistoryStore], Scope]]:  # fmt: skip
    """A scope, and the numbers of the writes that it must mean."""
    way = data.draw(st.sampled_from(["range", "since", "agent", "session", "prompt"]))
    if way == "prompt" and asked:
        prompt = data.draw(st.sampled_from(sorted(asked)))

        def of_prompt(store: HistoryStore) -> Scope:
            return scopes.of_prompt(store, prompts.resolve(store.ledger, prompt))

        return asked[prompt], of_prompt
    if way == "agent":
        own = {n for n in ids if writes[n].writer == "claude-code"}

        def by_agent(store: HistoryStore) -> Scope:
            return scopes.by_agent(store, scopes.since(store, start, None), "claude-code")

        return own, by_agent
    if way == "session":
        own = {n for n in ids if writes[n].writer == "claude-code"}

        def of_session(store: HistoryStore) -> Scope:
            session_id = agent_sessions.for_command(store, _AGENT, _AGENT.agent)
            return scopes.of_session(store, session_id)

        return own, of_session
    if not ids:
        return set(), lambda store: scopes.everything(store, None)
    first = data.draw(st.sampled_from(sorted(ids)))
    if way == "since":
        return {n for n in ids if n > first}, lambda store: scopes.since(store, ids[first], None)
    last = data.draw(st.sampled_from([n for n in sorted(ids) if n >= first]))
    text = f"{ids[first]}..{ids[last]}"
    return {n for n in ids if first < n <= last}, lambda store: scopes.of_range(store, text, None)
