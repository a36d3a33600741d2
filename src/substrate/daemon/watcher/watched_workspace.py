"""One workspace that the daemon watches: what is known about it, and what must be done next.

new ──▶ setting up ──▶ watching ──▶ (events) ──▶ quiet ──▶ recorded
             ▲             │
             └── lost ◀────┘   too many events, other rules, moved away
"""

from __future__ import annotations

import os

from substrate.daemon.server import Result, idle_work
from substrate.daemon.watcher.left_running_worlds import LeftWorlds
from substrate.daemon.watcher.quiet_tree_service import Stillness
from substrate.errors import MissingDependencyError
from substrate.model import RelPath
from substrate.recorder.command import Pace
from substrate.system import clock, watcher_client
from substrate.system.process import fork_workers
from substrate.workspace import Exclusions
from substrate.workspace.watch import TreeWatch

_S = 1_000_000_000
#: A command that has just begun goes first.
_BEFORE_SET_UP_NS = _S // 2
#: Edits are recorded when nothing has happened for the first time, at the latest after the second.
_QUIET_NS, _LONGEST_NS = 3 * _S, 30 * _S
#: The pauses after another process was at work, after a failure, and where watching is impossible.
_AGAIN_NS, _FAILED_NS, _CANNOT_NS = 2 * _S, 60 * _S, 600 * _S
#: Events are read in bunches.
_BETWEEN_READS_NS = _S // 10
#: What is written again and again is recorded ever more rarely, but at least this often.
_LONGEST_PAUSE_S = 900.0
_SET_UP, _RECORD, _TIDY, _STILL = "set up", "record", "tidy up", "stillness"
_COLLECT = "collect"
#: After so long without a command there, a workspace is forgotten.
_FORGOTTEN_NS = 3600 * _S


class Watched:
    def __init__(self, root: bytes, idle_work_s: float, *, watches: bool) -> None:
        self.root = root
        self._idle_work_ns = idle_work_s * _S
        self._watches = watches
        #: ``$SUBSTRATE_HOME`` of the last caller: its settings apply.
        self.home = b""
        self.why_not = "it is not watched yet" if watches else "daemon.watch is false"
        self.watch: TreeWatch | None = None
        self.is_watching = False
        self.recorded = 0
        #: How often something was recorded that had not been recorded just before.
        self.news = 0
        self._pace = Pace(_LONGEST_PAUSE_S)
        self.stillness = Stillness(root)
        self.recorded_at_ns: int | None = None
        now = clock.monotonic_ns()
        self.asked_ns = now
        self._not_before_ns = now + _BEFORE_SET_UP_NS
        self._read_ns = 0
        self._first_ns: int | None = None
        self._last_ns = 0
        self._job: fork_workers.Forked | None = None
        self._job_kind = ""
        self._job_generation = 0
        #: The time of the command after which it was tidied up; when, and the result.
        self._tidied_after_ns = 0
        self._tidy_not_before_ns = 0
        self._tidied: dict[str, object] = {}
        self._left = LeftWorlds()
        self._gave_way = 0
        #: Failures in a row: each pause is longer than the last.
        self._tries = 0
        #: Lines for the log, and the last one that was written.
        self.words: list[str] = []
        self._said = ""

    # -- asked ----------------------------------------------------------------------------------

    def answer(self) -> bytes:
        """The answer to a command that is about to begin."""
        self.asked_ns = clock.monotonic_ns()
        self._tries = 0
        self.read(everything=True)
        watch = self.watch
        if not self.is_watching or watch is None:
            return watcher_client.not_watched(self.why_not)
        if not watch.is_same_place():
            self._start_over("the workspace was moved or removed")
            return watcher_client.not_watched(self.why_not)
        return watcher_client.answer(
            watch.generation, {bytes(path): one.deep for path, one in watch.suspects.items()}
        )

    def settled(self, generation: int) -> None:
        if self.watch is not None:
            self.watch.settled(generation)
            self._note_suspects()

    def processes_left(self) -> None:
        """Processes outlive a command: bring in what they changed when they have ended."""
        self.asked_ns = clock.monotonic_ns()
        self._left.look_soon()

    # -- events ---------------------------------------------------------------------------------

    def fileno(self) -> int | None:
        """The descriptor to poll for events; None while they can wait, or must."""
        if self.watch is None or not self.is_watching:
            return None
        if clock.monotonic_ns() - self._read_ns < _BETWEEN_READS_NS:
            return None
        return self.watch.fd

    def read(self, *, everything: bool = False) -> None:
        """Take in the events; and `everything` that can change without one."""
        if self.watch is None or not self.is_watching:
            return
        self._read_ns = clock.monotonic_ns()
        if everything:
            self.watch.read_linked()
        if self.watch.read():
            self._last_ns = self._read_ns
        if self.watch.lost:
            self._start_over(self.watch.lost)
        self._note_suspects()

    def _note_suspects(self) -> None:
        if self.watch is None or not self.watch.suspects:
            self._first_ns = None
        elif self._first_ns is None:
            self._first_ns = self._last_ns = clock.monotonic_ns()

    def _start_over(self, why: str) -> None:
        self.close()
        self.why_not = why
        self._not_before_ns = clock.monotonic_ns() + _AGAIN_NS

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
        self.watch = None
        self.is_watching = False
        self._first_ns = None

    def close_all(self) -> None:
        self.close()
        self.stillness.close()

    def still(self, *, in_passing: bool) -> bytes:
        """The token of the quiet tree; empty if it is not known to be quiet."""
        return self.stillness.answer(in_passing=in_passing) if self._watches else b""

    # -- work -----------------------------------------------------------------------------------

    @property
    def is_forgotten(self) -> bool:
        idle_ns = clock.monotonic_ns() - self.asked_ns
        is_unused = idle_ns > _FORGOTTEN_NS and not self._left.are_awaited
        return self._job is None and (is_unused or not os.path.isdir(self.root))

    @property
    def job(self) -> fork_workers.Forked | None:
        return self._job

    def due_ns(self) -> int | None:
        """When there will be something to do; None: when something happens."""
        if self._job is not None:
            return None
        times = [
            self._set_up_ns(), self._record_ns(), self._tidy_ns(), self.stillness.due_ns(),
            self._left.due_ns(),
        ]  # fmt: skip
        if self.is_watching and self.fileno() is None:
            times.append(self._read_ns + _BETWEEN_READS_NS)
        return min((at for at in times if at is not None), default=None)

    def _set_up_ns(self) -> int | None:
        return None if self.is_watching or not self._watches else self._not_before_ns

    def _record_ns(self) -> int | None:
        if not self.is_watching or self._first_ns is None:
            return None
        assert self.watch is not None
        quiet_ns = min(self._last_ns + _QUIET_NS, self._first_ns + _LONGEST_NS)
        return max(quiet_ns, self._not_before_ns, self._pace.not_before_ns(self.watch.suspects))

    def _tidy_ns(self) -> int | None:
        """Once after the last command, when that is long ago."""
        if self._tidied_after_ns == self.asked_ns or self._idle_work_ns == float("inf"):
            return None
        return max(self.asked_ns + int(self._idle_work_ns), self._tidy_not_before_ns)

    def work(self) -> bool:
        """Start what is due; returns whether something was started."""
        now = clock.monotonic_ns()
        if self._job is not None:
            return False
        if (at := self._left.due_ns()) is not None and now >= at and self._left.has_ended():
            self._job_kind = _COLLECT
            self._job = self._start(idle_work.collect)
        elif (at := self._set_up_ns()) is not None and now >= at:
            self._job_kind = _SET_UP
            self._job = self._set_up()
        elif (at := self._record_ns()) is not None and now >= at and self.watch is not None:
            suspects = {path: one.deep for path, one in self.watch.suspects.items()}
            self._job_generation = self.watch.generation
            self._job_kind = _RECORD
            self._job = self._start(lambda place: idle_work.record(place, suspects))
        elif self._watches and self.stillness.wants_set_up:
            self._job_kind = _STILL
            self._job = self.stillness.set_up()
        elif (at := self._tidy_ns()) is not None and now >= at:
            is_watched = self.is_watching
            self._job_kind = _TIDY
            self._tidied_after_ns = self.asked_ns
            self._job = self._start(lambda place: idle_work.tidy_up(place, is_watched))
        return self._job is not None

    def _set_up(self) -> fork_workers.Forked | None:
        from pathlib import Path

        self.close()
        root = Path(os.fsdecode(self.root))
        try:
            watch = self.watch = TreeWatch(root, Exclusions.load(root))
        except MissingDependencyError as error:
            self._cannot(error.message, error.hint)
            return None
        return self._start(lambda place: idle_work.set_up(place, watch))

    def _start(self, work: idle_work.Work) -> fork_workers.Forked | None:
        root, home = self.root, self.home
        job = idle_work.start(lambda: work(idle_work.place_of(root, home)))
        if job is None:  # no more processes
            self._not_now(_FAILED_NS)
        return job

    def _not_now(self, pause_ns: int) -> None:
        at = clock.monotonic_ns() + pause_ns
        if self._job_kind == _TIDY:
            self._tidied_after_ns, self._tidy_not_before_ns = 0, at
        elif self._job_kind == _COLLECT:
            self._left.look_at(at)
        else:
            self._not_before_ns = at

    def job_ended(self) -> None:
        """Take over the job's result."""
        assert self._job is not None
        said = self._job.answer()
        self._job = None
        result: Result = said if isinstance(said, dict) else {"error": "the work was killed"}
        if self._job_kind == _STILL:
            self.stillness.is_set_up(result)
        elif "error" in result or "busy" in result or "why_not" in result:
            self._not_done(result)
        elif self._job_kind == _COLLECT:
            self._is_collected(result)
        elif self._job_kind == _SET_UP:
            self._tries = 0
            self._is_set_up(result)
        elif self._job_kind == _RECORD:
            self._tries = 0
            self._is_recorded(result)
        else:
            self._is_tidied(result)
        if "error" in result:
            self._say(str(result["error"]))

    def _say(self, what: str) -> None:
        """For the log: the same message in a row is written once."""
        if what != self._said:
            self.words.append(f"{os.fsdecode(self.root)}: {what}")
        self._said = what

    def _not_done(self, result: Result) -> None:
        if "why_not" in result and self._job_kind == _SET_UP:
            self._cannot(str(result["why_not"]), str(result.get("hint", "")))
            return
        pause_ns = _FAILED_NS
        if "busy" in result and self._job_kind == _TIDY:
            pause_ns = int(min(_FAILED_NS, self._idle_work_ns))
        elif "busy" in result:
            pause_ns = min(_FAILED_NS, _AGAIN_NS << min(self._tries, 5))
            self._tries += 1
        self._gave_way += "busy" in result
        self._not_now(pause_ns)
        if self._job_kind == _SET_UP:
            self.close()

    def _cannot(self, why: str, hint: str) -> None:
        self._say(f"not watched: {why}; {hint}")
        self.close()
        self.why_not = why
        self._not_before_ns = clock.monotonic_ns() + _CANNOT_NS

    def _is_set_up(self, result: Result) -> None:
        table, suspects, linked = result["table"], result["suspects"], result["linked"]
        assert self.watch is not None
        assert isinstance(table, dict)
        assert isinstance(suspects, dict)
        assert isinstance(linked, dict)
        self.watch.take_over(table)
        self.watch.linked.take_over(linked)
        for path, deep in suspects.items():
            self.watch.suspect(RelPath(path), deep=deep)
        self.is_watching, self.why_not = True, ""
        self.read()

    def _is_tidied(self, result: Result) -> None:
        self._count(result)
        del result["recorded"]
        self._tidied = {"at": clock.iso(clock.now_ns()), **result}

    def _is_recorded(self, result: Result) -> None:
        if self.watch is not None:
            self.watch.settled(self._job_generation)
        self._first_ns = None
        self._note_suspects()
        self._count(result)

    def _is_collected(self, result: Result) -> None:
        running, notes = result["running"], result["notes"]
        assert isinstance(running, list)
        assert isinstance(notes, list)
        self._left.wait_for(running)
        for note in notes:
            self._say(str(note))

    def _count(self, result: Result) -> None:
        paths = result["recorded"]
        if isinstance(paths, list) and paths:
            self.news += self._pace.recorded(paths)
            self.recorded += len(paths)
            self.recorded_at_ns = clock.now_ns()

    def state(self) -> dict[str, object]:
        """For `substrate daemon status`."""
        found: dict[str, object] = {
            "workspace": os.fsdecode(self.root),
            "watched": self.is_watching,
            "directories": self.watch.directories if self.watch is not None else 0,
            "suspects": len(self.watch.suspects) if self.watch is not None else 0,
            "still_watches": self.stillness.watches,
            "recorded_paths": self.recorded,
            "gave_way": self._gave_way,
        }
        if self.why_not:
            found["why_not"] = self.why_not
        if self.stillness.why_not:
            found["still_why_not"] = self.stillness.why_not
        if self.recorded_at_ns is not None:
            found["recorded"] = clock.iso(self.recorded_at_ns)
        if self._tidied:
            found["idle_work"] = self._tidied
        return found
