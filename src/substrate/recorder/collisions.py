"""What somebody else changed, too, and only a person can decide on: the world is held for it."""

from __future__ import annotations

from substrate.history import record
from substrate.history.beside import perhaps_unseen
from substrate.history.record import Running
from substrate.history.store import HistoryStore
from substrate.model.paths import display
from substrate.workspace.layer import LayerDiff

_REPOSITORY = "your repository was changed on both sides: "
_FIRST_READ = "perhaps changed by others, too, while the project was read for the first time: "
#: How a reason begins of which somebody who was told may say that he wants the world's.
BOTH_SIDES = (_REPOSITORY, _FIRST_READ)
_SHOWN = 20


def told(store: HistoryStore, running: Running, diff: LayerDiff, in_git: tuple[str, ...]) -> str:
    """All of it at once, for who is told of one and wants the world's is not asked again; empty if
    there is nothing. `in_git`: what collides in the user's own repository."""
    out = [_REPOSITORY + "; ".join(in_git)] if in_git else []
    if running.base_known == record.BESIDE:
        changed = [change.path for change in diff.changes()]
        found = perhaps_unseen(store, changed, running.started_ns)
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        if found:
            out.append(_FIRST_READ + ", ".join(map(display, found[:_SHOWN])) + more)
    return "; ".join(out)
