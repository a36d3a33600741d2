"""What a command may ask for from inside its world, and what becomes of it out here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from substrate.errors import RefusedError, SubstrateError
from substrate.model.paths import RelPath, display
from substrate.recorder.place import Place
from substrate.world.protocol import Isolation

if TYPE_CHECKING:  # every command passes here, few ask for an undo
    from collections.abc import Collection

    from substrate.history.undo import Choice

_SHOWN = 20


class Scene(NamedTuple):
    """The command in whose world calls are made."""

    place: Place
    session_id: str
    command_id: str
    span_id: str
    isolation: Isolation


class UndoWish(NamedTuple):
    """An undo that waits for the end of the command that asked for it."""

    command_id: str
    paths: tuple[bytes, ...] = ()
    take: str = ""
    skip_conflicts: bool = False


class Asked(NamedTuple):
    """What was asked for inside, once the command is over."""

    undos: tuple[UndoWish, ...] = ()
    #: Spans of the commands that ran inside.
    spans: tuple[str, ...] = ()


class Inside(Protocol):
    """Answers calls of `substrate` from inside one command's world."""

    def open(self, scene: Scene) -> None:
        """Before the command starts; it costs nothing as long as nobody calls."""
        ...

    def on_call(self, listener: int, init_pid: int) -> None:
        """The first call waits at `listener`, which is closed after this. Called once at most."""
        ...

    def finish(self) -> Asked:
        """The command is over: nobody is answered any more."""
        ...


def wish_to_undo(
    place: Place, target: str | None, choice: Choice, already: Collection[str]
) -> UndoWish:
    """What an `undo` asked for now means: what is newest is settled now, not when it is done."""
    from substrate.history import sessions, undo
    from substrate.history.resolve import resolve

    assert place.session is not None
    with place.existing_history() as store:
        own = sessions.resolve(store.ledger, place.session).session_id
        if target is None:
            entry = undo.newest_undoable(store, own, besides=already)
        else:
            found = resolve(store, target, own)
            # What swallowed it may hold what others did, and is what would be undone.
            told = [one.session_id for one in (found.entry, found.holder) if one is not None]
            if found.entry is None or any(session_id != own for session_id in told):
                raise RefusedError(
                    f"{target!r} is no command of this session: it cannot be undone in here",
                    hint="undo it outside, when the command around this one is over",
                )
            entry = found.present
    take = choice.take.value if choice.take else ""
    return UndoWish(entry.command_id, choice.paths, take, choice.skip_conflicts)


def carry_out(place: Place, undos: tuple[UndoWish, ...], held: str) -> list[str]:
    """Do what was asked for inside, in that order; sentences about it, for the user."""
    notes = []
    for wish in undos:
        again = f"`substrate undo {wish.command_id}`"
        if held:
            notes.append(f"not undone, because the command's own change waits: {again} does it")
            continue
        try:
            notes += _undo(place, wish)
        except SubstrateError as error:
            hint = f" ({error.hint})" if error.hint else ""
            notes.append(f"asked for inside, but not done: {error.message}{hint}")
    return notes


def _undo(place: Place, wish: UndoWish) -> list[str]:
    from substrate.history.undo import Choice
    from substrate.objects.merge import Take
    from substrate.recorder.roll_back import undo_command

    choice = Choice(
        tuple(RelPath(path) for path in wish.paths),
        Take(wish.take) if wish.take else None,
        wish.skip_conflicts,
    )
    outcome = undo_command(place, wish.command_id, choice)
    said = f"asked for inside: undo of {wish.command_id}, "
    if outcome.entry is None:
        said += "nothing was changed"
    else:
        changed = [*outcome.restored, *outcome.deleted, *outcome.merged]
        names = ", ".join(display(path) for path in changed[:_SHOWN])
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        said += f"done as {outcome.entry.command_id}: {names or 'nothing had to change'}{more}"
    if outcome.conflicts:
        said += "; in conflict with later work: " + ", ".join(map(display, outcome.conflicts))
    return [said, *outcome.notes]
