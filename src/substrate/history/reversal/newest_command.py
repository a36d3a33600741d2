"""Which command plain `undo` and `redo` select, and when it cannot be taken back.

    c5 ls                 changed nothing: skipped, and counted
    c4 git commit         the newest command that changed anything: selected
    c3 echo x >> a        never taken back instead of c4

If the selected command changed something that undo cannot take back, the search stops with an
error. The error names that command, how to take it back, and the command before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history import changed_owners
from substrate.history.arrival import IN_GIT, Held, held_world_rows
from substrate.history.record import ON_MOUNTS, changed_paths, excluded_paths, live_parts
from substrate.history.store import REVERSING_KINDS, Entry, HistoryStore
from substrate.model import RelPath, is_within

#: The kinds that plain `undo` considers; outside edits, undos and rollbacks are not commands.
_COMMANDS = ("command", "edit", "squash", "restore")
_SHOWN_COMMAND = 60
#: Keys in the detail of an entry that changed something outside its commit.
_BEYOND = (excluded_paths.KEY, changed_owners.KEY)


class Effect(Enum):
    """What a command changed, from undo's point of view."""

    NOTHING = "nothing"
    FILES = "files that history keeps"
    REFS = "moved only refs of your git repository"
    GIT = "changed only files of your git repository (its index or objects)"
    UNKEPT = "changed only excluded files, and nothing kept them"
    MOUNTS = "changed only files on another mount, and nothing kept them"
    HELD = "is held: its change is in its world, not in your tree"
    CONFLICT = "changed nothing in your tree: all its paths were in conflict"


class Picked(NamedTuple):
    entry: Entry
    effect: Effect
    #: How many newer commands changed nothing at all.
    passed_over: int = 0


def effect_of(store: HistoryStore, entry: Entry, waiting: Collection[str]) -> Effect:
    """`waiting`: the commands whose worlds are held for a decision."""
    detail = entry.detail
    if (
        entry.commit is not None
        or detail.get(live_parts.PARTS)
        or not detail.keys().isdisjoint(_BEYOND)
    ):
        return Effect.FILES
    if entry.command_id in waiting:
        return Effect.HELD
    if detail.get("git"):
        return Effect.REFS
    if detail.get("excluded_gone"):
        return Effect.UNKEPT
    if detail.get(ON_MOUNTS):
        return Effect.MOUNTS
    if detail.get(IN_GIT):
        return Effect.GIT
    return Effect.CONFLICT if detail.get("conflicts") else Effect.NOTHING


def to_undo(store: HistoryStore, session_id: str, besides: Collection[str] = ()) -> Picked:
    """The session's newest command that changed anything and is not yet taken back.

    `besides`: ids of commands whose undo is already queued.
    """
    for picked in _changing(store, session_id, _COMMANDS):
        if picked.entry.command_id not in besides:
            return picked
    raise NotFoundError(
        f"nothing to undo in session {session_id}",
        hint="`substrate log` lists the commands; `substrate undo ID` takes back any of them",
    )


def to_redo(store: HistoryStore, session_id: str) -> Picked:
    """The session's newest undo or rollback that changed anything and was not redone."""
    for picked in _changing(store, session_id, REVERSING_KINDS):
        return picked
    raise NotFoundError(
        f"nothing to redo in session {session_id}", hint="only an undo or a rollback can be redone"
    )


def _changing(
    store: HistoryStore, session_id: str, kinds: tuple[str, ...], below: int | None = None
) -> Iterator[Picked]:
    """Entries before `below` that changed something and were not taken back; newest first."""
    waiting = waiting_worlds(store)
    passed_over = 0
    for entry in store.ledger.iterate_live(session_id):
        if entry.kind not in kinds or (below is not None and entry.pos >= below):
            continue
        effect = effect_of(store, entry, waiting)
        if effect is Effect.NOTHING:
            passed_over += live_parts.PART not in entry.detail
        elif not is_undone(store, entry):
            yield Picked(entry, effect, passed_over)


def waiting_worlds(store: HistoryStore) -> dict[str, Held]:
    """Held worlds, by the id of their command."""
    if not store.ledger.has_intent(held_world_rows.HELD):
        return {}
    return {
        one.command_id: one for one in held_world_rows.all_held(store) if one.state != "running"
    }


def is_undone(store: HistoryStore, entry: Entry) -> bool:
    """Whether all of the entry is taken back at present."""
    undone = store.ledger.reversed_paths(entry.seq)
    if not undone or b"" in undone:
        return bool(undone)
    changed = changed_paths(live_parts.changes_of_all(store, live_parts.whole(store, entry)))
    changed += excluded_paths.of_detail(entry.detail).paths()
    changed += [one.path for one in changed_owners.of_detail(entry.detail)]
    return all(any(is_within(path, RelPath(u)) for u in undone) for path in changed)


# ------------------------------------------------------------------------------ in words


def refuse(store: HistoryStore, picked: Picked) -> RefusedError:
    """The error for a command that this undo cannot take back."""
    entry, effect = picked.entry, picked.effect
    moved = entry.detail.get("git")
    names = f": {', '.join(ref_names(moved))}" if effect is Effect.REFS and moved else ""
    return RefusedError(
        f"nothing was undone: {shown(entry)} {effect.value}{names}",
        hint="; ".join([_way_back(store, picked), *before(store, entry)]),
    )


def before(store: HistoryStore, entry: Entry) -> list[str]:
    """How to take back the command before `entry` instead, if there is one."""
    if entry.session_id is None or entry.kind not in _COMMANDS:
        return []
    for picked in _changing(store, entry.session_id, _COMMANDS, below=entry.pos):
        return [f"the command before it, {shown(picked.entry)}: {_way_back(store, picked)}"]
    return ["no earlier command of this session is left to undo"]


def ref_names(effect: object) -> list[str]:
    """The refs that a command moved, HEAD last."""
    if not isinstance(effect, dict):
        return []
    return [*(effect.get("refs") or ()), *(["HEAD"] if effect.get("head") else [])]


def shown(entry: Entry) -> str:
    """A command as messages show it: its id and the beginning of its text."""
    words = shown_words(entry.command)
    return f"{entry.command_id} ({words})" if words else entry.command_id


def shown_words(command: str) -> str:
    """The beginning of a command's text, on one line."""
    words = " ".join(command.split())
    return words if len(words) <= _SHOWN_COMMAND else words[: _SHOWN_COMMAND - 1] + "…"


def _way_back(store: HistoryStore, picked: Picked) -> str:
    entry, effect = picked.entry, picked.effect
    if effect is Effect.HELD:
        world = waiting_worlds(store)[entry.command_id]
        if world.state == "detached":
            return (
                f"it left processes running in {world.world_id}; once they have ended, any"
                " recorded command (`substrate -c true`) brings in what they changed, and"
                " `substrate undo` takes it back"
            )
        return (
            f"discard it with `substrate world discard {world.world_id}`"
            f" (or bring it in: `substrate world apply {world.world_id}`)"
        )
    if effect is Effect.UNKEPT:
        return "it ran without a world, so its excluded files cannot come back"
    if effect is Effect.MOUNTS:
        return "a world does not protect other mounts inside the workspace"
    verb = "redo" if entry.kind in REVERSING_KINDS else f"undo {entry.command_id}"
    if effect is Effect.GIT:
        return (
            "take back what it removed or overwrote there (not what is staged) with"
            f" `substrate {verb} --with-git`"
        )
    if effect is Effect.CONFLICT:
        return f"its own version: `substrate recover show {entry.command_id}`"
    with_git = " --with-git" if entry.detail.get("git") else ""
    return f"take it back with `substrate {verb}{with_git}`"
