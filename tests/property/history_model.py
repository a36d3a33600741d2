"""The whole history as a list of plain dicts, and what each operation must do to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.crash.oracle import Tree
from tests.property.merge_model import Step, Verdict, in_scope, leaves, put_back, take_back

#: Work done for a session, as opposed to outside edits and the baseline.
OWN = ("command", "undo", "redo", "rollback", "restore", "squash")


class Entry:
    """One entry of the log, with the whole tree before and after it."""

    def __init__(
        self, kind: str, session: str | None, before: Tree, after: Tree, *, committed: bool
    ) -> None:
        self.id: str | None = None
        self.kind = kind
        self.session = session
        self.before = before
        self.after = after
        self.committed = committed
        #: The entries that undid this one: all of it, or these paths.
        self.taken_back: list[tuple[Entry, tuple[bytes, ...]]] = []
        self.held_by: Entry | None = None
        #: Of a squash: whose commands it holds.
        self.sessions: set[str] = set()

    @property
    def present(self) -> Entry:
        return self.held_by.present if self.held_by else self

    def __repr__(self) -> str:
        mark = "*" if self.committed else ""
        by = "".join(f" <- {who.id} {paths}" for who, paths in self.taken_back)
        return f"{self.kind}{mark}({self.session}, {self.id}{by})"


class Checkpoint(NamedTuple):
    session: str
    seq: int
    #: The last committed entry before it.
    entry: Entry


class Recovery(NamedTuple):
    ref: str
    tree: Tree
    paths: tuple[bytes, ...]


class HistoryModel:
    def __init__(self, tree: Tree) -> None:
        self.known = tree
        self.line = [Entry("baseline", None, {}, tree, committed=True)]
        self.everyone: list[Entry] = list(self.line)
        #: Sessions, the most recently active one last.
        self.active: list[str] = []
        self.checkpoints: list[Checkpoint] = []
        #: How things were when a session was closed last.
        self.closed: dict[str, Entry] = {}
        self.open: set[str] = set()
        #: Sessions that were begun by name, and so take the agent's commands while open.
        self.started: set[str] = set()
        self.recoveries: list[Recovery] = []

    # -- what happened --------------------------------------------------------------------------

    def add(self, entry: Entry) -> Entry:
        self.line.append(entry)
        self.everyone.append(entry)
        if entry.committed:
            self.known = entry.after
        if entry.session:
            self.touch(entry.session)
        return entry

    def scanned(self, now: Tree) -> None:
        """The product scanned the workspace: an unrecorded change is an outside edit."""
        if now != self.known:
            self.add(Entry("external", None, self.known, now, committed=True))

    def touch(self, session: str) -> None:
        if session in self.active:
            self.active.remove(session)
        self.active.append(session)
        self.open.add(session)

    def start(self, session: str) -> None:
        """Begin or take up a session; the one begun before it ends."""
        for other in self.started & self.open - {session}:
            self.close(other)
        self.started.add(session)
        self.touch(session)

    def close(self, session: str) -> None:
        self.open.discard(session)
        self.closed[session] = self.last_committed()

    def reversed_by(
        self, kind: str, session: str | None, after: Tree, targets: Sequence[Entry],
        paths: tuple[bytes, ...] = (),
    ) -> Entry:  # fmt: skip
        """An undo, redo, rollback or restore was done and took `targets` back."""
        committed = after != self.known
        session = session or (self.active[-1] if self.active else None)
        made = self.add(Entry(kind, session, self.known, after, committed=committed))
        if kind == "rollback" and not committed:
            return made  # we are there already: it takes nothing back
        for target in targets:
            target.taken_back.append((made, paths))
        return made

    def squash(self, members: list[Entry], squash: Entry) -> None:
        committed = [self.line.index(m) for m in members if m.committed]
        between = [e for e in self.line[committed[0] : committed[-1]] if e not in members]
        assert not any(e.committed for e in between), "a squash has a hole"
        own = {m.session for m in members if m.committed}
        if squash.session is not None:
            assert own == {squash.session}
            assert all(m.kind in OWN for m in members), "an outside edit was squashed"
        else:
            assert len(own) > 1 or own == {None}, "the squash of one session belongs to it"
        squash.sessions = {name for m in members for name in (*m.sessions, m.session) if name}
        # It takes the position of its last state; other entries that changed nothing stay.
        self.line.insert(committed[-1] + 1, squash)
        self.line = [e for e in self.line if e not in members]
        self.everyone.append(squash)
        for member in members:
            member.held_by = squash

    def shared_after(self, point: Entry, session: str | None) -> bool:
        """Whether a squash after it holds that session's commands, and others' work."""
        later = self.line[self.line.index(point) + 1 :]
        return any(is_shared(e) and (session is None or session in e.sessions) for e in later)

    # -- what an operation must do ----------------------------------------------------------------

    def committed(self) -> list[Entry]:
        return [entry for entry in self.line if entry.committed]

    def last_committed(self) -> Entry:
        return self.committed()[-1]

    def undo(self, entry: Entry, paths: tuple[bytes, ...] = ()) -> Verdict:
        return take_back(self.known, [(entry.before, entry.after)], paths)

    def after(self, point: Entry, session: str | None) -> list[Entry]:
        """The committed entries behind `point` that a rollback takes back."""
        line = self.committed()
        behind = line[line.index(point) + 1 :]
        return [e for e in behind if e.kind in OWN and (session is None or e.session == session)]

    def roll_back(self, chosen: Sequence[Entry], paths: tuple[bytes, ...] = ()) -> Verdict:
        return take_back(self.known, self._steps(chosen), paths)

    def _steps(self, chosen: Sequence[Entry]) -> list[Step]:
        """Newest first; neighbours on the line are taken back as one."""
        out: list[Step] = []
        previous: Entry | None = None
        for entry in reversed(self.committed()):
            if entry in chosen:
                if previous in chosen and out:
                    out[-1] = (entry.before, out[-1][1])
                else:
                    out.append((entry.before, entry.after))
            previous = entry
        return out

    def restore(self, recovery: Recovery) -> Verdict:
        return put_back(self.known, recovery.tree, recovery.paths)

    # -- undone or not ----------------------------------------------------------------------------

    def undone(self, entry: Entry) -> str:
        """ "yes", "no", or "partly": then the answer depends on how paths are counted."""
        by = [(who, paths, self.undone(who.present)) for who, paths in entry.taken_back]
        standing = [(paths, state) for _, paths, state in by if state != "yes"]
        if not standing:
            return "no"
        if any(not paths and state == "no" for paths, state in standing):
            return "yes"
        if any(state == "partly" for _, state in standing):
            return "partly"
        covered = [p for paths, _ in standing for p in paths]
        if all(in_scope(p, covered) for p in leaves(entry.before, entry.after)):
            return "yes"
        return "partly"

    def refuses_undo(self, entry: Entry) -> bool:
        """Taken back as a whole; when only its paths were, one by one, it may be asked again."""
        return any(
            not paths and self.undone(who.present) == "no" for who, paths in entry.taken_back
        )

    def newest_undoable(self, session: str) -> tuple[Entry | None, bool]:
        """What plain `undo` takes, and whether that is certain."""
        return self._newest(session, ("command", "squash", "restore"))

    def newest_redoable(self, session: str) -> tuple[Entry | None, bool]:
        return self._newest(session, ("undo", "rollback"))

    def _newest(self, session: str, kinds: tuple[str, ...]) -> tuple[Entry | None, bool]:
        certain = True
        for entry in reversed(self.line):
            if entry.session != session or not entry.committed or entry.kind not in kinds:
                continue
            certain = certain and not is_tangled(entry)
            if self.undone(entry) != "yes":
                return entry, certain
        return None, certain


def is_shared(entry: Entry) -> bool:
    """A squash that belongs to no session: it holds outside edits, or several sessions' work."""
    return entry.kind == "squash" and entry.session is None


def is_tangled(entry: Entry) -> bool:
    """Whether something that took this back was itself taken back in part.

    How much of the entry is undone then depends on how paths are counted; nothing is lost by
    either reading.
    """
    return any(_in_part(who.present) for who, _ in entry.taken_back)


def _in_part(entry: Entry) -> bool:
    return any(bool(paths) or _in_part(who.present) for who, paths in entry.taken_back)
