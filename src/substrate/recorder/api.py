"""``from substrate import History``: the interface for Python programs. See ``docs/python.md``.

history = History("/path/to/project")
history.init_repo()
done = history.record_command_result(session_id="s-1", changed_paths=["a.py"], summary="make")
history.rollback_last_command(session_id="s-1")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.history.maintenance import compact
from substrate.history.record import (
    Recorded,
    Result,
    Running,
    record_entry,
    record_named_paths,
    sessions,
)
from substrate.history.reversal import Branches, Choice, Outcome
from substrate.history.store import checked_session_id
from substrate.recorder import checkpoints_sessions, reversals
from substrate.recorder.session_context import Place
from substrate.system import clock, environment, ids
from substrate.trace import TraceWriter, fs_diff, spans

_ISOLATION = ("direct", "none", "open", "recorded by a program through the Python interface")


class RecordedCommand(NamedTuple):
    """What `record_command_result` recorded."""

    command_id: str
    #: Hex; None when nothing changed.
    commit: str | None
    changed_files: int


class MarkedCommit(NamedTuple):
    """A commit of the history and the tag that it now has."""

    commit: str
    tag: str


class History:
    """One workspace's history. Safe to use beside the command line and other processes.

    Errors are those of `substrate.errors`; each has a `message`, a `hint` and an `exit_code`.
    """

    def __init__(self, workspace_root: str | os.PathLike[str], *, agent_id: str | None = None):
        """`agent_id`: the agent that commands are attributed to; default `SUBSTRATE_AGENT_ID`."""
        root = Path(os.path.abspath(workspace_root))
        self._place = Place.at(root, environment.current(), agent_id=agent_id)

    def init_repo(self) -> None:
        """Create the store and record the baseline; a no-op if there is one."""
        with self._place.history() as store, store.writing("init"):
            record_entry.ensure_baseline(store)

    def record_command_result(
        self,
        *,
        session_id: str,
        command_id: str | None = None,
        changed_paths: Sequence[str | bytes] | None = None,
        summary: str = "",
        exit_code: int = 0,
    ) -> RecordedCommand:
        """Record what a command just changed, and write its two lines to the trace.

        `changed_paths` (files or directories, relative to the workspace root that was given) are
        attributed to the command, and only they are compared. Other differences are left for the
        watcher or the next scan, which record them as external. Without `changed_paths` a scan
        finds the differences, and all of them are attributed to the command.
        """
        session_id = checked_session_id(session_id)
        paths = None
        if changed_paths is not None:
            paths = [self._place.rel_path(path) for path in changed_paths]
        started_ns = clock.now_ns()
        with self._place.history() as store, store.writing("record a command"):
            record_entry.ensure_baseline(store)
            if command_id is not None and store.ledger.by_command_id(command_id):
                raise UsageError(f"command id {command_id!r} is taken", hint="leave it out")
            sessions.for_recording(store, session_id, self._place.agent_id)
            running = Running(
                command_id or ids.new_id("c"), ids.new_id("spn"), session_id,
                self._place.agent_id, summary, store.tip_commit or b"", "",
            )  # fmt: skip
            result = Result(exit_code, None, {"outcome": "completed"})
            if paths is None:
                done = record_entry.finish(store, running, result)
            else:
                done = record_named_paths.finish(store, running, result, paths)
        self._trace(running, done, started_ns, exit_code)
        commit = done.entry.commit.hex() if done.entry.commit else None
        return RecordedCommand(done.entry.command_id, commit, done.entry.changed_files)

    def mark_checkpoint(self, *, session_id: str, checkpoint_id: int | None = None) -> MarkedCommit:
        """Mark the present state as a checkpoint of the session.

        The tag ``cp/task/<session>/<checkpoint>`` points at the session's own latest commit.
        `checkpoint_id`: its number; by default the next free one.
        """
        place = self._place._replace(session=session_id)
        checkpoint = checkpoints_sessions.mark_checkpoint(place, seq=checkpoint_id)
        return MarkedCommit(checkpoint.commit.hex(), checkpoint.tag)

    def mark_session_closed(self, *, session_id: str) -> MarkedCommit:
        """End a session; its end has the tag ``cp/session/<session>/closed``."""
        session, _ = checkpoints_sessions.close_session(self._place, session_id)
        if session.closed_commit is None:
            raise NotFoundError(f"session {session_id} recorded nothing")
        return MarkedCommit(session.closed_commit.hex(), f"cp/session/{session_id}/closed")

    def rollback_last_command(self, *, session_id: str, with_git: bool | None = None) -> Outcome:
        """Take back the session's newest command that changed anything.

        `with_git` says what happens to branches that it moved: True moves them back, False leaves
        them. Without it such a command is refused with `MovedBranchesError`.
        """
        place = self._place._replace(session=session_id)
        said = {True: Branches.WITH, False: Branches.STAY}
        branches = None if with_git is None else said[with_git]
        return reversals.undo_command(place, None, Choice(branches=branches))

    def rollback_to_checkpoint(
        self, *, session_id: str, checkpoint_id: int, exact: bool = False
    ) -> Outcome:
        """Take back the session's commands after a checkpoint; other work stays.

        `exact`: restore the whole tree of the checkpoint.
        """
        return reversals.roll_back(
            self._place, Choice(), checkpoint=str(checkpoint_id), session=session_id, exact=exact
        )

    def rollback_to_session(self, *, session_id: str, exact: bool = False) -> Outcome:
        """Take back all commands, of every session, since the end of a closed session.

        `exact`: restore the whole tree of that time.
        """
        return reversals.roll_back(self._place, Choice(), session=session_id, exact=exact)

    def keep_under_cap(self) -> list[str]:
        """Compact if the store has outgrown its disk cap; the command line does it by itself.

        Returns sentences that say what was done.
        """
        return checkpoints_sessions.keep_under_cap(self._place)

    def compact_checkpoints(self, *, retention_checkpoints_per_session: int) -> compact.Report:
        """Squash commands before the newest checkpoints of each session."""
        return checkpoints_sessions.compact_history(
            self._place, retention_checkpoints_per_session, None
        )

    def compact_sessions(self, *, retention_sessions: int) -> compact.Report:
        """Squash closed sessions, except the newest."""
        return checkpoints_sessions.compact_history(self._place, None, retention_sessions)

    def _trace(self, running: Running, done: Recorded, started_ns: int, exit_code: int) -> None:
        place = self._place
        command = spans.Command(
            running.session_id, running.command_id, running.span_id, place.environment.parent_span,
            place.agent_id, place.workspace.root, place.cwd, shell=running.command,
        )  # fmt: skip
        ended_ns = clock.now_ns()
        commit = done.entry.commit
        completion = spans.Completion(
            ended_ns, exit_code, 0, fs_diff(done.changes), _ISOLATION,
            commit.hex() if commit else None, running.base_commit.hex() or None, "completed",
        )  # fmt: skip
        trace = TraceWriter.of(place.environment)
        trace.append(spans.command_start(command, started_ns, _ISOLATION))
        trace.append(spans.command_complete(command, completion, {}))
