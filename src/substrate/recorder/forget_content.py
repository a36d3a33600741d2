"""`substrate forget`: remove content from history, trash, outputs, traces and packs.

Everything here can be repeated: after a kill the same call finishes the work.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history.maintenance import Survey
from substrate.history.maintenance import forget as history_forget
from substrate.history.record import HashOnly, record_entry
from substrate.history.store import HistoryStore
from substrate.model import ForgetRule, RelPath, display
from substrate.packs.store import forget as packs_forget
from substrate.packs.store import open_store
from substrate.recorder.command import captured_output as outputs
from substrate.recorder.session_context import Place
from substrate.system.files import remove_tree
from substrate.trace import forget as trace_forget
from substrate.workspace import IGNORE_NAME, find_ctx
from substrate.workspace.apply import Trash, TrashEntry
from substrate.workspace.paths import scrub_tree

_GRAPH = "graph"


class Forgotten(NamedTuple):
    """What was removed, or in a dry run would be."""

    history: Survey
    trash: tuple[str, ...] = ()
    outputs: tuple[Path, ...] = ()
    spans: int = 0
    #: Old pack → the pack that replaced it ("" in a dry run).
    packs: dict[str, str] = {}  # noqa: RUF012  a tuple: its default is replaced, never changed
    graph_dropped: bool = False
    #: Places that may still have the content, each with what to do.
    left: tuple[str, ...] = ()
    #: What this command never searches.
    not_searched: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return self.history.is_empty and not (
            self.trash or self.outputs or self.spans or self.packs or self.left
        )


def forget(place: Place, rule: ForgetRule, *, dry_run: bool) -> Forgotten:
    with place.existing_history() as store:
        if dry_run:
            history = _looked_at(store, rule)
            return _elsewhere(place, store, rule, Forgotten(history), dry_run=True)
        with store.writing("forget"):
            record_entry.record_outside(store)
            _refuse_present(place, store, rule)
            # History last: if another step fails, the call can simply be repeated.
            done = _elsewhere(place, store, rule, Forgotten(_looked_at(store, rule)), dry_run=False)
            return done._replace(history=history_forget.forget(store, rule))


def _looked_at(store: HistoryStore, rule: ForgetRule) -> Survey:
    return history_forget.survey(store, rule, HashOnly())


def _refuse_present(place: Place, store: HistoryStore, rule: ForgetRule) -> None:
    """Refuse if the tree still has the content: the next command would record it again."""
    history_forget.refuse_unfinished(store)
    found = _looked_at(store, rule)
    if not found.present:
        return
    names = ", ".join(display(path) for path in found.present[:8])
    more = f" and {len(found.present) - 8} more" if len(found.present) > 8 else ""
    if rule.path is not None:
        raise RefusedError(
            f"{names} is in the workspace: the next command would record it again",
            hint=f"delete it, or exclude it first: echo '/{display(rule.path)}' >> {IGNORE_NAME}",
        )
    raise RefusedError(
        f"these files still hold the text: {names}{more}",
        hint="take it out of them first; or forget a whole file: substrate forget PATH",
    )


def _elsewhere(
    place: Place, store: HistoryStore, rule: ForgetRule, done: Forgotten, *, dry_run: bool
) -> Forgotten:
    home = place.environment.substrate_home
    trash, left = _from_trash(store, rule, dry_run=dry_run)
    done = done._replace(
        trash=trash, left=left + _other_copies(place), not_searched=_not_searched(place, rule)
    )
    if rule.secret:
        done = _from_home(place, home, rule, done, dry_run=dry_run)
    ctx = find_ctx(place.workspace.root)
    if ctx is None or ctx.parent != place.workspace.root:
        return done
    with suppress(NotFoundError):
        packs = open_store(ctx)
        work = packs_forget.survey if dry_run else packs_forget.forget
        done = done._replace(packs=work(packs, rule).moved)
    # The graph is made from the code, compressed, and quick to rebuild: drop it unsearched.
    if (ctx / _GRAPH).is_dir() and (rule.secret or not done.history.is_empty):
        if not dry_run:
            remove_tree(ctx / _GRAPH)
        done = done._replace(graph_dropped=True)
    return done


def _from_trash(
    store: HistoryStore, rule: ForgetRule, *, dry_run: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    trash = Trash(store.trash_dir)
    found: list[str] = []
    left: list[str] = []
    for entry in trash.list():
        if rule.path is not None:
            if _drop_path(trash, entry, rule.path, dry_run=dry_run):
                found.append(f"{entry.entry_id} {display(entry.path)}")
            continue
        scrubbed = scrub_tree(entry.location, rule.needle, dry_run=dry_run)
        if scrubbed.changed:
            found.append(f"{entry.entry_id} {display(entry.path)}")
        left += [f"{path}: {why}" for path, why in scrubbed.failed]
    return tuple(found), tuple(left)


def _drop_path(trash: Trash, entry: TrashEntry, path: RelPath, *, dry_run: bool) -> bool:
    """Drop the path if the entry is the path, is below it, or is a directory that contains it."""
    if ForgetRule(path=path).covers(entry.path):
        if not dry_run:
            trash.drop(entry)
        return True
    if not ForgetRule(path=entry.path).covers(path):
        return False
    inner = entry.location / os.fsdecode(path[len(entry.path) + 1 :])
    if not os.path.lexists(inner):
        return False
    if not dry_run:
        remove_tree(inner)
    return True


def _from_home(
    place: Place, home: Path, rule: ForgetRule, done: Forgotten, *, dry_run: bool
) -> Forgotten:
    changed: list[Path] = []
    left = list(done.left)
    for name in (outputs.DIRECTORY, "crash", "trash"):
        scrubbed = scrub_tree(home / name, rule.needle, dry_run=dry_run)
        changed += scrubbed.changed
        left += [f"{path}: {why}" for path, why in scrubbed.failed]
    spans = trace_forget.forget(place.environment.trace_path, rule, dry_run=dry_run)
    return done._replace(outputs=tuple(changed), spans=spans, left=tuple(left))


def _not_searched(place: Place, rule: ForgetRule) -> tuple[str, ...]:
    """The limits of the search, whether or not there is something to find."""
    found = []
    if rule.secret:
        found.append("compressed files and archives, file names")
    if place.workspace.git_dir is not None:
        found.append("your own git repository: its commits are yours to rewrite")
    return (*found, "exported bundles and backups")


def _other_copies(place: Place) -> tuple[str, ...]:
    """Name other copies that Substrate made and does not rewrite."""
    root, store = place.workspace.root, place.workspace.store
    found = []
    if any((store / "quarantine").glob("*")):
        found.append(f"{store / 'quarantine'}: a history that was put aside; remove it yourself")
    if any((root / ".manifold" / "artifacts" / "rewrite").glob("*")):
        found.append("snapshots of `substrate rewrite`: `substrate recover prune` removes them")
    return tuple(found)
