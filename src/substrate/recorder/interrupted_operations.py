"""Operations that a kill interrupted: what they are, how far they got, how to finish them.

`find` changes nothing. The next call that writes to the history finishes what is in its ledger;
`finish_all` does only that.

Every verb that reads calls `find`, which nearly always finds nothing. So modules that only
describe or finish an operation are imported when there is one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.errors import DamagedStoreError, NotFoundError, SubstrateError
from substrate.history.record import record_entry
from substrate.history.store import TO_MOVE, HistoryStore, Intent, NewEntry
from substrate.recorder.session_context import Place
from substrate.system import user_notes

if TYPE_CHECKING:
    from substrate.rewrite.execute import journal
    from substrate.workspace.apply import Op

FINISH = "substrate fsck --repair"
#: More paths than this are not compared one by one, only counted.
_MOST_COMPARED = 2000
#: Purposes of the lock whose operation can be killed before it has announced anything.
_NAMED = {
    "undo": "undo", "redo": "redo", "rollback": "rollback", "restore": "recover restore",
    "compact": "compact", "rewrite": "rewrite", "close a session": "session close",
    "discard a world": "world discard",
}  # fmt: skip


class Interrupted(NamedTuple):
    """One interrupted operation."""

    #: ``undo``, ``redo``, ``rollback``, ``restore``, ``apply``, ``compact``, ``rewrite``, ``run``.
    operation: str
    #: The entry that it makes, or its own id; empty if it has none.
    command_id: str
    #: What was interrupted, and how far it got.
    message: str
    #: The command that finishes it; empty if there is nothing to finish.
    finish: str
    #: The command that takes it back once it is finished.
    reverse: str = ""

    @property
    def sentence(self) -> str:
        said = f"interrupted: {self.message}"
        if self.finish:
            said += f"; finish it: `{self.finish}`"
        return said + (f"; then take it back: `{self.reverse}`" if self.reverse else "")


def find(place: Place) -> list[Interrupted]:
    """Interrupted operations here, oldest first; empty if no history can be opened."""
    found: list[Interrupted] = []
    try:
        with place.existing_history() as store:
            found = _in_history(store)
    except (SubstrateError, OSError):
        pass  # the command itself reports what is wrong
    rewrites = _rewrites(place.workspace.root)
    if rewrites:  # then the record in the lock's file is of this same operation
        found = [one for one in found if one.operation != "rewrite"]
    return found + rewrites


def finish_all(place: Place) -> None:
    """Finish everything that was interrupted, and report each operation as a user note."""
    from substrate.recorder.user_git import UserGit
    from substrate.rewrite.execute import carry_out, open_working_copy

    if (place.workspace.store / "index" / "history.db").exists():
        with place.existing_history() as store, store.writing("finish what was interrupted"):
            for line in UserGit(place.workspace).finish(store):
                user_notes.tell(line)
    if (place.workspace.root / ".manifold" / "journal").is_dir():
        try:
            copy = open_working_copy(place.workspace.root)
        except NotFoundError:
            return
        with copy.locked("finish what was interrupted"):
            for line in carry_out.settle(copy):
                user_notes.tell(line)


# ------------------------------------------------------------------------------ history


def _in_history(store: HistoryStore) -> list[Interrupted]:
    intents, holder = store.ledger.intents(), store.lock.holder()
    is_idle = holder is None or holder.is_idle
    if is_idle and not intents and not store.ledger.meta(TO_MOVE):
        return []
    from substrate.history.arrival import arrival_journal
    from substrate.history.maintenance import compact
    from substrate.history.reversal import ref_names, restore
    from substrate.recorder.user_git import UserGit

    kinds = (restore.APPLY, arrival_journal.ARRIVE, compact.PRUNE)
    begun = [one for one in intents if one.kind in kinds]
    own = {str(one.payload.get("running_intent", "")) for one in begun}
    dead = [
        one for one in intents
        if one.kind == record_entry.RUNNING and one.intent_id not in own and not store.is_alive(one)
    ]  # fmt: skip
    unmoved = UserGit(store.workspace).unmoved(store)
    if not (begun or dead or holder or unmoved) or not store.lock.is_free():
        return []  # nothing, or another process is working right now
    found = [_described(store, one) for one in [*begun, *dead]]
    if unmoved is not None:
        names = ", ".join(ref_names(unmoved.detail.get(TO_MOVE)))
        message = f"{unmoved.command}: the files are back, {names} not yet moved"
        found.append(Interrupted(unmoved.kind, unmoved.command_id, message, FINISH))
    if not found and holder is not None and not holder.is_idle:
        operation = _NAMED.get(holder.purpose)
        if operation:
            message = f"`substrate {operation}` was ended before it changed anything; run it again"
            found.append(Interrupted(operation.split()[0], "", message, ""))
    return found


def _described(store: HistoryStore, intent: Intent) -> Interrupted:
    try:
        return (
            _never_ended(intent) if intent.kind == record_entry.RUNNING else _begun(store, intent)
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        message = f"an operation ({intent.intent_id}) whose record is damaged"
        return Interrupted(_operation(intent), "", message, FINISH)


def _operation(intent: Intent) -> str:
    """The operation shown for an intent that cannot be read."""
    from substrate.history.arrival import arrival_journal
    from substrate.history.maintenance import compact
    from substrate.history.reversal import restore

    return {
        record_entry.RUNNING: "run", arrival_journal.ARRIVE: "apply", restore.APPLY: "undo",
        compact.PRUNE: "compact",
    }[intent.kind]  # fmt: skip


def _begun(store: HistoryStore, intent: Intent) -> Interrupted:
    from substrate.history.arrival import arrival_journal
    from substrate.history.maintenance import compact
    from substrate.history.reversal import shown_words
    from substrate.workspace.apply import Plan

    if intent.kind == compact.PRUNE:
        message = "compact: entries are squashed, old objects are not yet removed"
        return Interrupted("compact", "", message, FINISH)
    new = NewEntry.from_json(str(intent.payload["entry"]))
    progress = _progress(store.root, Plan.from_json(str(intent.payload["plan"])).ops)
    if intent.kind == arrival_journal.ARRIVE:
        what = f"apply of {new.command_id} ({shown_words(new.command)})"
        operation, reverse = "apply", f"substrate undo {new.command_id}"
    else:
        what, operation = new.command, new.kind
        reverse = "substrate redo" if new.kind in ("undo", "rollback") else "substrate undo"
    return Interrupted(operation, new.command_id, f"{what}: {progress}", FINISH, reverse)


def _never_ended(intent: Intent) -> Interrupted:
    from substrate.history.reversal import shown_words

    running = record_entry.Running.from_payload(intent)
    where = f"what it changed is in {running.world_id}" if running.world_id else "on the real files"
    message = f"{running.command_id} ({shown_words(running.command)}) while it ran; {where}"
    return Interrupted("run", running.command_id, message, FINISH)


def _progress(root: Path, ops: tuple[Op, ...]) -> str:
    if len(ops) > _MOST_COMPARED:
        return f"{len(ops)} paths, some of which are changed"
    return f"{sum(_is_done(root, op) for op in ops)} of {len(ops)} paths are changed"


def _is_done(root: Path, op: Op) -> bool:
    """Whether the path already has the state that the operation wants."""
    from substrate.workspace.paths import Walker, look

    try:
        parent, name = Walker(root).parent_of(op.path)
        with parent:
            now = look(parent, name).node
    except OSError:
        return op.become.kind.value == "absent"
    if now.kind is not op.become.kind:
        return False
    return now == op.become or not op.become.oid


# ------------------------------------------------------------------------------ rewrite


def _rewrites(root: Path) -> list[Interrupted]:
    if not (root / ".manifold" / "journal").is_dir():
        return []
    from substrate.rewrite.execute import journal, needs_settling, open_working_copy

    try:
        copy = open_working_copy(root)
        if not copy.is_free():
            return []
        found = [_rewrite(root, one) for one in journal.announced(copy)]
        if not found and needs_settling(copy):
            message = "rewrite: it was ended before it changed anything, and left files behind"
            found.append(Interrupted("rewrite", "", message, FINISH))
        return found
    except DamagedStoreError as error:
        return [Interrupted("rewrite", "", f"a rewrite, but {error.message} ({error.hint})", "")]
    except (SubstrateError, OSError):
        return []


def _rewrite(root: Path, intent: journal.Intent) -> Interrupted:
    progress = _progress(root, intent.plan.ops)
    message = f"{intent.operation} ({intent.operation_id}): {progress}"
    return Interrupted("rewrite", intent.operation_id, message, FINISH)
