"""``from substrate import History``: the PRD's interface for programs.

history = History("/path/to/project")
history.init_repo()
done = history.record_command_result(session_id="s-1", command_id="c-1", summary="make")
history.rollback_last_command(session_id="s-1")
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.history import compact, record, sessions
from substrate.history.messages import checked_session_id
from substrate.history.record import Running
from substrate.history.restore import Outcome
from substrate.history.undo import Choice
from substrate.recorder import keep, roll_back
from substrate.recorder.place import Place
from substrate.system import environment, ids


class RecordedCommand(NamedTuple):
    """`commit` is None when nothing changed."""

    command_id: str
    commit: str | None
    changed_files: int


class MarkedCommit(NamedTuple):
    commit: str
    tag: str


class History:
    """One workspace's history. Safe to use beside the command line and other processes."""

    def __init__(self, workspace_root: str | os.PathLike[str], *, agent_id: str | None = None):
        root = Path(os.path.abspath(workspace_root))
        self._place = Place.at(root, environment.current(), agent_id=agent_id)

    def init_repo(self) -> None:
        """Make the store and record the baseline; does nothing where there is one."""
        with self._place.history() as store, store.writing("init"):
            record.ensure_baseline(store)

    def record_command_result(
        self,
        *,
        session_id: str,
        command_id: str | None = None,
        changed_paths: Sequence[str] | None = None,
        summary: str = "",
        exit_code: int = 0,
    ) -> RecordedCommand:
        """Record what a command just changed, as found by a scan.

        `changed_paths` is what the caller believes it changed; the scan finds what it really did.
        """
        del changed_paths  # kept in the interface; a scan cannot be misinformed
        session_id = checked_session_id(session_id)
        with self._place.history() as store, store.writing("record a command"):
            record.ensure_baseline(store)
            if command_id is not None and store.ledger.by_command_id(command_id):
                raise UsageError(f"command id {command_id!r} is taken", hint="leave it out")
            sessions.for_recording(store, session_id, self._place.agent_id)
            running = Running(
                command_id or ids.new_id("c"), ids.new_id("spn"), session_id,
                self._place.agent_id, summary, store.tip_commit or b"", "",
            )  # fmt: skip
            done = record.finish(store, running, record.Result(exit_code, None, {}))
        commit = done.entry.commit.hex() if done.entry.commit else None
        return RecordedCommand(done.entry.command_id, commit, done.entry.changed_files)

    def mark_checkpoint(self, *, session_id: str, checkpoint_id: int | None = None) -> MarkedCommit:
        place = self._place._replace(session=session_id)
        checkpoint = keep.mark_checkpoint(place, seq=checkpoint_id)
        return MarkedCommit(checkpoint.commit.hex(), checkpoint.tag)

    def mark_session_closed(self, *, session_id: str) -> MarkedCommit:
        session, _ = keep.close_session(self._place, session_id)
        if session.closed_commit is None:
            raise NotFoundError(f"session {session_id} recorded nothing")
        return MarkedCommit(session.closed_commit.hex(), f"cp/session/{session_id}/closed")

    def rollback_last_command(self, *, session_id: str) -> Outcome:
        place = self._place._replace(session=session_id)
        return roll_back.undo_command(place, None, Choice())

    def rollback_to_checkpoint(
        self, *, session_id: str, checkpoint_id: int, exact: bool = False
    ) -> Outcome:
        return roll_back.roll_back(
            self._place, Choice(), checkpoint=str(checkpoint_id), session=session_id, exact=exact
        )

    def rollback_to_session(self, *, session_id: str, exact: bool = False) -> Outcome:
        return roll_back.roll_back(self._place, Choice(), session=session_id, exact=exact)

    def keep_under_cap(self) -> list[str]:
        """Compact if the store has outgrown its disk cap; what the command line does by itself."""
        return keep.keep_under_cap(self._place)

    def compact_checkpoints(self, *, retention_checkpoints_per_session: int) -> compact.Report:
        return keep.compact_history(self._place, retention_checkpoints_per_session, None)

    def compact_sessions(self, *, retention_sessions: int) -> compact.Report:
        return keep.compact_history(self._place, None, retention_sessions)
