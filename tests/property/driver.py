"""The product as the machine drives it: the recorder's functions, on real files."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.errors import ConflictError, SubstrateError
from substrate.history.query.resolve_id import resolve
from substrate.history.reversal.restore import Outcome
from substrate.history.reversal.undo import Choice
from substrate.model.paths import RelPath
from substrate.recorder import checkpoints_sessions, maintenance, queries, reversals
from substrate.recorder.api import History
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.session_context import Place
from substrate.system import environment
from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest

_CHANGING = (
    *("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink"),
    *("os.chmod", "os.truncate", "os.utime", "os.setxattr", "os.removexattr"),
)


class Answer(NamedTuple):
    """`how`: done, conflict, refused (any other error on purpose), or killed."""

    how: str
    id: str | None = None
    recovery: str | None = None
    paths: tuple[bytes, ...] = ()
    message: str = ""


class Logged(NamedTuple):
    id: str
    kind: str
    session: str | None
    committed: bool


class FunctionWorld:
    """Runs a Python function where others run a shell."""

    isolation = Isolation("direct", "none", "open", "a function")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def run(self, request: RunRequest) -> RunOutcome:
        self._work()
        return RunOutcome(0, None, False, 1, self.isolation)

    def discard(self, layer: Layer) -> None:
        """It has none."""


class Driver:
    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        variables = {
            "HOME": str(home),
            "SUBSTRATE_HOME": str(home / ".substrate"),
            "PATH": os.environ["PATH"],
        }
        self._environment = environment.parse(variables)

    def _place(self, session: str | None = None) -> Place:
        return Place.at(self.root, self._environment, session=session)

    # -- what changes something -----------------------------------------------------------------

    def begin(self) -> None:
        """Only what every writer does first: settle what a crash left, take the baseline."""
        history = History(self.root)
        history._place = self._place()
        history.init_repo()

    def run(self, session: str, work: Callable[[], object]) -> Answer:
        def act() -> Answer:
            request = CommandRequest(self.root, shell="work")
            done: Recording = record_command(self._place(session), FunctionWorld(work), request)
            return Answer("done", done.command_id)

        return _answer(act)

    def undo(self, target: str | None, session: str | None, paths: tuple[bytes, ...]) -> Answer:
        choice = Choice(paths=tuple(RelPath(p) for p in paths))
        return _changing(lambda: reversals.undo_command(self._place(session), target, choice))

    def redo(self, session: str) -> Answer:
        return _changing(lambda: reversals.redo_command(self._place(session), Choice()))

    def roll_back_to(self, target: str, *, exact: bool, paths: tuple[bytes, ...] = ()) -> Answer:
        choice = Choice(paths=tuple(RelPath(p) for p in paths))
        return _changing(lambda: reversals.roll_back(self._place(), choice, to=target, exact=exact))

    def roll_back_to_checkpoint(self, session: str, seq: int, *, exact: bool) -> Answer:
        return _changing(
            lambda: reversals.roll_back(
                self._place(), Choice(), checkpoint=f"{session}/{seq}", exact=exact
            )
        )

    def roll_back_to_session(self, session: str, *, exact: bool) -> Answer:
        return _changing(
            lambda: reversals.roll_back(self._place(), Choice(), session=session, exact=exact)
        )

    def restore(self, ref: str) -> Answer:
        return _changing(lambda: reversals.restore_recovery(self._place(), ref, (), dry_run=False))

    def checkpoint(self, session: str) -> int:
        return checkpoints_sessions.mark_checkpoint(self._place(session)).seq

    def start_session(self, name: str) -> None:
        checkpoints_sessions.start_session(self._place(), name)

    def close_session(self, name: str) -> None:
        checkpoints_sessions.close_session(self._place(), name)

    def compact(self, checkpoints: int, sessions: int) -> None:
        checkpoints_sessions.compact_history(self._place(), checkpoints, sessions)

    # -- questions ------------------------------------------------------------------------------

    def log(self) -> list[Logged]:
        """Oldest first."""
        with self._place().existing_history() as store:
            entries = queries.log_entries(store, session=None, limit=0)
        return [Logged(e.command_id, e.kind, e.session_id, e.commit is not None) for e in entries][
            ::-1
        ]

    def holders(self, ids: list[str]) -> dict[str, str]:
        """Where each id is found today; an id that does not resolve raises."""
        with self._place().existing_history() as store:
            return {one: resolve(store, one).present.command_id for one in ids}

    def problems(self) -> list[str]:
        return [one.what for one in maintenance.check_store(self._place())]


def _answer(act: Callable[[], Answer]) -> Answer:
    try:
        return act()
    except ConflictError as error:
        return Answer("conflict", message=error.message)
    except SubstrateError as error:
        return Answer("refused", message=error.message)


def _changing(act: Callable[[], Outcome]) -> Answer:
    def answered() -> Answer:
        outcome = act()
        assert outcome.entry is not None
        assert not outcome.conflicts
        paths = tuple(bytes(op.path) for op in outcome.plan.ops)
        return Answer("done", outcome.entry.command_id, outcome.recovery_ref, paths)

    return _answer(answered)


def killed_at(number: int, act: Callable[[], object]) -> bool:
    """Run `act` in a child that is killed right before its `number`-th change of a file.

    Returns whether it was killed; False when it came to its end before that.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the test runner has threads
        pid = os.fork()
    if pid == 0:
        _child(number, act)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed; see its traceback"
    return False


def _child(number: int, act: Callable[[], object]) -> None:
    left = number

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if event in _CHANGING or (event == "open" and _writes(args)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        act()
    except BaseException:  # noqa: BLE001  a child must not come back as a second test run
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _writes(args: tuple[object, ...]) -> bool:
    flags = args[2] if len(args) > 2 else 0
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
