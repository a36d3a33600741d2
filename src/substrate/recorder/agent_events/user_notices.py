"""What the user learns by a hook's answer: that an agent began a history, that a world is held."""

from __future__ import annotations

import os

from substrate.coding_agents import EventKind, HookEvent, Say, hook_answer, typed
from substrate.history.arrival import held_world_rows
from substrate.history.record import agent_sessions
from substrate.history.store import Entry, HistoryStore
from substrate.model import display
from substrate.recorder.session_context import Place

#: In the ledger: the user was not yet told that an agent began this history.
NOTICE_DUE = "agent_notice_due"
#: In the detail of an entry: the user was told that its world is held.
_TOLD = "held_was_told"
_MOST_WORLDS = 3
_MOST_COMMAND = 60


def give(place: Place, store: HistoryStore, event: HookEvent, say: Say) -> None:
    """Say what is due; what the agent did not wait for comes with its next prompt. In the lock."""
    if event.kind not in (EventKind.SESSION_START, EventKind.PROMPT) or event.subagent:
        return
    is_first = bool(store.ledger.meta(NOTICE_DUE))
    held = _untold(store) if event.kind is EventKind.PROMPT else []
    texts = [_first_use(place, event)] if is_first else []
    texts += [_held_worlds(held)] if held else []
    context = _for_the_model(held) if held else ""
    if not texts or not say(hook_answer(event, message="\n".join(texts), context=context)):
        return
    if is_first:
        store.ledger.take_meta(NOTICE_DUE)
    if held:
        with store.commit_point(durable=False) as ledger:
            for _, entry in held:
                ledger.add_detail(entry, **{_TOLD: True})


def _first_use(place: Place, event: HookEvent) -> str:
    settings = display(os.fsencode(place.environment.substrate_home / "config.toml"))
    return (
        f"Substrate records what {event.agent} does in {place.workspace.root} from now on:"
        " `substrate log` shows it, `substrate undo` takes it back. To say no: `substrate pause`;"
        f" for good, add the directory to `deny` under `[agents]` in {settings}."
    )


def _untold(store: HistoryStore) -> list[tuple[str, Entry]]:
    """Worlds that an agent's command left for the user to decide on, with their entries."""
    if not held_world_rows.may_be_detached(store):
        return []
    waiting = [one for one in held_world_rows.all_held(store) if one.state in ("held", "crashed")]
    found = [(one.world_id, store.ledger.by_command_id(one.command_id)) for one in waiting]
    return [
        (world_id, entry)
        for world_id, entry in found
        if entry is not None
        and _TOLD not in entry.detail
        and entry.session_id is not None
        and agent_sessions.is_agents(store.ledger, entry.session_id)
    ]


def _held_worlds(held: list[tuple[str, Entry]]) -> str:
    lines = [
        f"Substrate holds the change of `{_words(entry)}` in {world}: it is not in the project."
        f" Review: `substrate world diff {world}`. Apply: `substrate world apply {world}`."
        f" Discard: `substrate world discard {world}`."
        for world, entry in held[:_MOST_WORLDS]
    ]
    more = len(held) - _MOST_WORLDS
    return "\n".join(lines + ([f"{more} more: `substrate world list`."] if more > 0 else []))


def _for_the_model(held: list[tuple[str, Entry]]) -> str:
    named = ", ".join(f"`{_words(entry)}` ({world})" for world, entry in held[:_MOST_WORLDS])
    return (
        f"Substrate: the change of {named} is held and not in the project. The user decides"
        " whether it is applied; do not run the command again before that."
    )


def _words(entry: Entry) -> str:
    first, *others = typed(entry.command).strip().split("\n", 1)
    is_cut = bool(others) or len(first) > _MOST_COMMAND
    return first[:_MOST_COMMAND] + "…" * is_cut
