"""A workspace with a history, driven in process: edits replace what a command would do."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.history.maintenance import compact
from substrate.history.record import AgentSession, checkpoints, record_entry, sessions
from substrate.history.reversal.restore import Outcome
from substrate.history.reversal.undo import Branches, Choice
from substrate.history.store.history_store import HistoryStore
from substrate.history.store.ledger import Entry
from substrate.model.paths import RelPath
from substrate.objects.snapshots.merge import Take
from substrate.recorder import checkpoints_sessions
from substrate.recorder import reversals as roll_back
from substrate.recorder.session_context import Place
from substrate.system import environment


class Link(NamedTuple):
    target: str


class Dir(NamedTuple):
    mode: int = 0o755


class Mode(NamedTuple):
    """A file with content and mode; without content only the mode changes."""

    mode: int
    data: bytes | None = None


#: What an edit puts at a path; None removes it.
Edit = Mapping[str, "bytes | Link | Dir | Mode | None"]
#: kind, mode, content or target
State = dict[bytes, tuple[str, int, bytes]]


def edit(root: Path, changes: Edit) -> None:
    for name, value in changes.items():
        path = root / name
        if value is None:
            _remove(path)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, Dir):
            if not path.is_dir():
                _remove(path)
                path.mkdir()
            path.chmod(value.mode)
        elif isinstance(value, Link):
            _remove(path)
            path.symlink_to(value.target)
        elif isinstance(value, Mode):
            if value.data is not None:
                path.write_bytes(value.data)
            path.chmod(value.mode)
        else:
            if path.is_dir() or path.is_symlink():
                _remove(path)
            path.write_bytes(value)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def tree(root: Path, *, leave_out: tuple[bytes, ...] = (b".substrate-git",)) -> State:
    """Everything below `root`, byte for byte, but for the names in `leave_out` at the top."""
    out: State = {}
    top = os.fsencode(root)
    for directory, directories, names in os.walk(top):
        if directory == top:
            directories[:] = [d for d in directories if d not in leave_out]
            names = [n for n in names if n not in leave_out]  # noqa: PLW2901
        for name in [*directories, *names]:
            path = os.path.join(directory, name)
            out[path[len(top) + 1 :]] = _state(path)
    return out


def _state(path: bytes) -> tuple[str, int, bytes]:
    info = os.lstat(path)
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return "link", 0, os.readlink(path)
    if stat.S_ISDIR(info.st_mode):
        return "dir", mode, b""
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as file:
            return "file", mode, file.read()
    return f"special {stat.S_IFMT(info.st_mode):o}", mode, b""


class Bench:
    """One workspace. Every call opens the store again, like a separate program."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def place(self, session: str | None = None, agent: str | None = None) -> Place:
        return Place.at(self.root, environment.current(), session, agent)

    @contextmanager
    def store(self) -> Iterator[HistoryStore]:
        with self.place().history() as store:
            yield store

    @contextmanager
    def writing(self) -> Iterator[HistoryStore]:
        with self.store() as store, store.writing("test"):
            yield store

    # -- doing --------------------------------------------------------------------------------

    def outside(self, changes: Edit) -> None:
        """What a person does in an editor; history learns of it with the next operation."""
        edit(self.root, changes)

    def settle(self) -> Entry | None:
        """Record outside edits now."""
        with self.writing() as store:
            done = record_entry.record_outside(store)
        return done.entry if done else None

    def run(
        self,
        changes: Edit,
        *,
        session: str | AgentSession | None = None,
        agent: str | None = "human",
        command: str = "edit",
        exit_code: int = 0,
    ) -> Entry:
        """A command that makes `changes`."""
        with self.writing() as store:
            running = record_entry.begin(
                store, session=session, agent_id=agent, command=command, exact=command
            )
        edit(self.root, changes)
        with self.writing() as store:
            done = record_entry.finish(store, running, record_entry.Result(exit_code, 1, {}))
        return done.entry

    def undo(self, target: str | None = None, *paths: str, **options: object) -> Outcome:
        place = self.place(_text(options.pop("session", None)))
        return roll_back.undo_command(place, target, _choice(paths, options))

    def redo(self, *paths: str, **options: object) -> Outcome:
        place = self.place(_text(options.pop("session", None)))
        return roll_back.redo_command(place, _choice(paths, options))

    def roll_back(
        self,
        *paths: str,
        to: str | None = None,
        checkpoint: str | None = None,
        session: str | None = None,
        exact: bool = False,
        **options: object,
    ) -> Outcome:
        return roll_back.roll_back(
            self.place(), _choice(paths, options),
            to=to, checkpoint=checkpoint, session=session, exact=exact,
        )  # fmt: skip

    def restore(self, ref: str, *paths: str, dry_run: bool = False) -> Outcome:
        wanted = tuple(RelPath(os.fsencode(p)) for p in paths)
        return roll_back.restore_recovery(self.place(), ref, wanted, dry_run=dry_run)

    def checkpoint(self, session: str | None = None, message: str = "") -> checkpoints.Checkpoint:
        return checkpoints_sessions.mark_checkpoint(self.place(session), message)

    def close(self, session: str | None = None) -> sessions.Session:
        return checkpoints_sessions.close_session(self.place(), session)[0]

    def compact(self, checkpoints: int = 5, sessions: int = 5) -> compact.Report:
        return checkpoints_sessions.compact_history(self.place(), checkpoints, sessions)

    # -- asking -------------------------------------------------------------------------------

    def tree(self) -> State:
        return tree(self.root)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def log(self, session: str | None = None) -> list[Entry]:
        """Newest first."""
        with self.store() as store:
            return store.ledger.live(session_id=session)

    def kinds(self) -> list[str]:
        """Oldest first."""
        return [entry.kind for entry in reversed(self.log())]

    def entry(self, command_id: str) -> Entry:
        with self.store() as store:
            found = store.ledger.by_command_id(command_id)
        assert found is not None
        return found

    def fsck(self) -> list[str]:
        from substrate.history.maintenance import fsck

        with self.writing() as store:
            return [problem.what for problem in fsck.check(store)]


def _choice(paths: tuple[str, ...], options: dict[str, object]) -> Choice:
    take = options.pop("take", None)
    choice = Choice(
        paths=tuple(RelPath(os.fsencode(p)) for p in paths),
        take=Take(take) if take else None,
        skip_conflicts=bool(options.pop("skip_conflicts", False)),
        dry_run=bool(options.pop("dry_run", False)),
        branches=Branches.STAY if options.pop("files_only", False) else None,
    )
    assert not options, f"unknown options: {options}"
    return choice


def _text(value: object) -> str | None:
    return None if value is None else str(value)
