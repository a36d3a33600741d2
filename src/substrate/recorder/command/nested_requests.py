"""Requests that a command makes from inside its world, and how they are carried out outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from substrate.errors import RefusedError, SubstrateError
from substrate.model import RelPath, display
from substrate.recorder.session_context import Place
from substrate.world import Isolation

if TYPE_CHECKING:  # every command imports this module, few ask for an undo
    from collections.abc import Collection

    from substrate.history.reversal import Choice

_SHOWN = 20


class Scene(NamedTuple):
    """The command whose world the calls come from."""

    place: Place
    session_id: str
    command_id: str
    span_id: str
    isolation: Isolation


class UndoWish(NamedTuple):
    """An undo to carry out when the command that requested it has ended."""

    command_id: str
    paths: tuple[bytes, ...] = ()
    take: str = ""
    skip_conflicts: bool = False
    #: The command moved branches, and they must stay.
    files_only: bool = False


class NestedRequest(NamedTuple):
    """What was requested inside, to carry out when the command has ended."""

    undos: tuple[UndoWish, ...] = ()
    #: Spans of the commands that ran inside.
    spans: tuple[str, ...] = ()


class Inside(Protocol):
    """Answers calls of `substrate` from inside one command's world."""

    def open(self, scene: Scene) -> None:
        """Call this before the command starts; it costs nothing as long as no call comes."""
        ...

    def on_call(self, listener: int, init_pid: int) -> None:
        """The first call waits at `listener`, which is closed after this. Called at most once."""
        ...

    def finish(self) -> NestedRequest:
        """The command has ended: answer no more calls."""
        ...


def wish_to_undo(
    place: Place, target: str | None, choice: Choice, already: Collection[str]
) -> UndoWish:
    """Resolve an `undo` now: the newest command is chosen when asked, not when carried out."""
    from substrate.history.query import resolve
    from substrate.history.record import sessions
    from substrate.history.reversal import Branches, newest_command
    from substrate.recorder.user_git import UserGit

    assert place.session is not None
    with place.existing_history() as store:
        own = sessions.resolve(store.ledger, place.session).session_id
        if target is None:
            picked = newest_command.to_undo(store, own, besides=already)
            if picked.effect is not newest_command.Effect.FILES:
                raise newest_command.refuse(store, picked)
            entry = picked.entry
        else:
            found = resolve(store, target, own)
            # A squash that contains it may hold other work, and would be undone as a whole.
            told = [one.session_id for one in (found.entry, found.holder) if one is not None]
            if found.entry is None or any(session_id != own for session_id in told):
                raise RefusedError(
                    f"{target!r} is no command of this session: it cannot be undone in here",
                    hint="undo it outside, when the command around this one is over",
                )
            entry = found.present
        UserGit(place.workspace).to_move([entry], choice)
    take = choice.take.value if choice.take else ""
    files_only = choice.branches is Branches.STAY
    return UndoWish(entry.command_id, choice.paths, take, choice.skip_conflicts, files_only)


def carry_out(place: Place, undos: tuple[UndoWish, ...], *, is_held: bool) -> list[str]:
    """Carry out the requested undos in order. Returns sentences for the user."""
    notes = []
    for wish in undos:
        again = f"`substrate undo {wish.command_id}`"
        if is_held:
            notes.append(f"not undone, because the command's own change waits: {again} does it")
            continue
        try:
            notes += _undo(place, wish)
        except SubstrateError as error:
            hint = f" ({error.hint})" if error.hint else ""
            notes.append(f"asked for inside, but not done: {error.message}{hint}")
    return notes


def _undo(place: Place, wish: UndoWish) -> list[str]:
    from substrate.history.reversal import Branches, Choice
    from substrate.objects.snapshots import Take
    from substrate.recorder.reversals import undo_command

    choice = Choice(
        tuple(RelPath(path) for path in wish.paths),
        Take(wish.take) if wish.take else None,
        wish.skip_conflicts,
        branches=Branches.STAY if wish.files_only else None,
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
