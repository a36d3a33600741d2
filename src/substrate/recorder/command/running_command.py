"""A command from its announcement to its end: what the stages of `record_command` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from substrate.errors import NotArrivedError, SubstrateError
from substrate.history.record import Running, record_entry
from substrate.history.store import Entry, HistoryStore
from substrate.recorder.arrival import Request
from substrate.recorder.checkpoints_sessions import keep_under_cap
from substrate.recorder.command import background_baseline, outside_edits, span_end
from substrate.recorder.command import live_recording as live
from substrate.recorder.command.begin_command import Begun, begin
from substrate.recorder.command.captured_output import capture_for
from substrate.recorder.command.check_change import Checked, run_check
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.finish_command import Done, arrival_request, exact, translated
from substrate.recorder.command.nested_requests import NestedRequest, Scene, carry_out
from substrate.recorder.command.other_mounts import OtherMounts
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import GitWatch, UserGit
from substrate.system import clock, umask
from substrate.system.process import deferred_work, process
from substrate.trace import TraceWriter, spans
from substrate.world import RunOutcome, RunRequest, World


@contextmanager
def announced(place: Place, world: World, request: CommandRequest) -> Iterator[RunningCommand]:
    """The command, announced in the ledger and in the trace."""
    words = spans.Command("", "", "", None, "", place.workspace.root, place.cwd,
                          request.argv, request.shell)  # fmt: skip
    is_direct = world.isolation.strategy == "direct"
    text = spans.command_text(words)
    git = UserGit(place.workspace)
    if not is_direct:
        git.wait_for_index()
    begun = begin(place, request, text, is_direct=is_direct)
    try:
        yield RunningCommand(place, world, request, begun, words, git)
    finally:
        record_entry.over(place.workspace.store, begun.running)


class RunningCommand:
    def __init__(
        self, place: Place, world: World, request: CommandRequest, begun: Begun,
        words: spans.Command, git: UserGit,
    ) -> None:  # fmt: skip
        self.running, self._earlier, self._beside = begun
        #: What was asked for inside its world, once it has run.
        self.nested = NestedRequest()
        self._place = place
        self._world = world
        self._request = request
        self._git = git
        self._isolation = world.isolation
        self._is_direct = self._isolation.strategy == "direct"
        self._trace = TraceWriter.of(place.environment)
        self._span = _named(words, place, self.running)
        self._replay_context = cache(partial(replay_context, place, self._span))
        self._other_mounts: OtherMounts | None = None
        self._checked: Checked | None = None
        try:
            self._trace.append(spans.command_start(self._span, clock.now_ns(), self._isolation))
        except (SubstrateError, OSError):  # for example a full `$SUBSTRATE_HOME`
            _never_ran(place, self.running, request)
            raise

    def watch_git(self) -> GitWatch:
        """The state of the user's repository right before the command starts."""
        if not self._is_direct:  # while history was locked, other commands waited to arrive
            self._git.wait_for_index()
        return self._git.watch()

    def run(self, git_before: GitWatch) -> RunOutcome:
        """Run it. If no baseline existed, `running` has its base after this."""
        request, running = self._request, self.running
        wanted = self._wanted(git_before)
        if request.inside is not None and not self._is_direct:
            request.inside.open(self._scene())
        # A world with mounts inside names them in `reason`: only then look for them.
        if self._isolation.reason and not self._is_direct:
            self._other_mounts = OtherMounts(self._place.workspace.root)
        outcome: RunOutcome | None = None
        try:
            with (
                live.recording(self._place, running),
                background_baseline.baseline_beside(self._place, running) as baseline,
            ):
                if not running.base_commit:
                    wanted = wanted._replace(before_real_files=baseline.ensure)
                outcome = self._world.run(wanted)
                self.running = baseline.known_to(running)
        except BaseException:
            if request.inside is not None:
                request.inside.finish()
            # Otherwise it ran without a world, and a scan finds what it had changed by then; or it
            # has run, and an interrupt ended the wait for the baseline: then its world is held.
            if running.world_id and outcome is None:
                _never_ran(self._place, running, request)
            raise
        if request.inside is not None:
            self.nested = request.inside.finish()
        if outcome.layer is None:
            self._save_seen()  # if no world could be made after all: a scan follows
        return outcome

    def _wanted(self, git_before: GitWatch) -> RunRequest:
        request, running = self._request, self.running
        wanted = run_request(self._place, request, running.session_id, running.span_id)
        inside = None if self._is_direct else request.inside
        return wanted._replace(
            world_id=running.world_id,
            beside=self._beside,
            absent=self._git.absent_locks(git_before),
            meanwhile=self._work_while_it_runs,
            on_call=None if inside is None else inside.on_call,
        )

    def _work_while_it_runs(self) -> None:
        self._replay_context()
        self._save_seen()

    def _save_seen(self) -> None:
        """After the very first command: save what the baseline saw, for later scans."""
        if self._place.kept is not None:
            self._place.kept.save_seen()

    def _scene(self) -> Scene:
        request, running = self._request, self.running
        network = "open" if request.network is None else request.network.mode
        isolation = self._isolation._replace(network=network)
        own = self._place._replace(session=running.session_id)
        return Scene(own, running.session_id, running.command_id, running.span_id, isolation)

    def check(self, outcome: RunOutcome, git_before: GitWatch) -> Checked | None:
        """Run the check of the call, if there is one, over what the command changed."""
        check = self._request.check
        if check is None or outcome.layer is None or outcome.notice:
            return None
        self._checked = run_check(self._place, check, self._wanted(git_before), outcome.layer)
        return self._checked

    def arrival(self, outcome: RunOutcome, git_before: GitWatch) -> Request:
        """What to bring in out of its world."""
        nested = self.nested.spans
        return arrival_request(
            self._place, self.running, outcome, self._request, git_before, nested,
            checked=self._checked,
        )  # fmt: skip

    @contextmanager
    def reporting_failure(self, outcome: RunOutcome) -> Iterator[None]:
        """Close the span if the change cannot be brought in: its readers wait for that line."""
        try:
            with translated(outcome):
                yield
        except NotArrivedError as error:
            context = self._replay_context()
            span_end.close_failed(self._trace, self._span, outcome, error, context)
            raise

    def close(self, outcome: RunOutcome, done: Done) -> Recording:
        """Close the span, remove the world, and do what was asked for inside it."""
        place, running = self._place, self.running
        notes = span_end.close_span(
            self._trace,
            span_end.complete(self._span, running, outcome, done, self._replay_context()),
        )
        if self.nested.undos:
            own = place._replace(session=running.session_id)
            notes += carry_out(own, self.nested.undos, is_held=bool(done.causes))
        if outcome.layer is not None and not done.is_kept:
            self._world.discard(outcome.layer)
        opened = None if place.kept is None else place.kept.store
        if done.changes and deferred_work.is_postponing() and opened is not None:
            deferred_work.do(partial(_save_the_next_one_work, place, opened))
        notes += [*self._earlier, *done.notes]
        if self._other_mounts is not None and outcome.layer is not None:
            notes += _note_other_mounts(place, done.entry, self._other_mounts.notes())
        if done.entry.commit is not None:  # otherwise the store has not grown
            notes += keep_under_cap(place)
        return Recording(
            outcome, done.entry.command_id, running.span_id, running.session_id, done.entry,
            done.changes, "", tuple(notes), running.world_id if done.causes else "", done.causes,
            done.not_arrived, self._checked,
        )  # fmt: skip


def _note_other_mounts(place: Place, entry: Entry, notes: list[str]) -> list[str]:
    """Undo must not pass over a command that changed files there as if it had done nothing."""
    if notes:
        with place.history() as store, store.writing("record a command"):
            record_entry.note_other_mounts(store, entry)
    return notes


def _save_the_next_one_work(place: Place, store: HistoryStore) -> None:
    """Do now, after the answer, what the next command would do first.

    The watcher saw the paths that arrived and cannot know that this command wrote them: compare
    them with history. The branch was written to its file: note that, so that it is not checked
    again.

    The user may be removing or moving the project by now. So use the open history, create no file,
    and leave outside edits for later: they may be that removal.
    """
    asked = outside_edits.ask(place)
    try:
        with store.writing("look after outside edits", timeout_s=0, only_this=True, settles=False):
            outside_edits.catch_up(store, asked, records=False)
            if store.ledger.has_unpublished:
                with store.commit_point(durable=False):
                    pass
    finally:
        if asked is not None:
            asked.close()


def _never_ran(place: Place, running: Running, request: CommandRequest) -> None:
    """Close the announcement, because the command never ran."""
    result = record_entry.Result(None, None, {"outcome": "not_started", "exact": exact(request)})
    try:
        with place.history() as store, store.writing("record a command"):
            record_entry.ensure_baseline(store)
            record_entry.note(store, running, result)
    except (SubstrateError, OSError):
        pass  # the next call finds the announcement and does the same


def run_request(place: Place, request: CommandRequest, session_id: str, span_id: str) -> RunRequest:
    return RunRequest(
        cwd=request.cwd,
        argv=request.argv,
        shell=request.shell,
        # A nested substrate joins this session and knows its parent.
        env={"SUBSTRATE_SESSION_ID": session_id, "SUBSTRATE_PARENT_SPAN": span_id},
        timeout_s=request.timeout_s,
        # A check needs a layer that no process changes any more.
        kill_children=request.kill_children or request.check is not None,
        stdin=request.stdin,
        stdout=request.stdout,
        stderr=request.stderr,
        pty=request.pty,
        capture=request.capture or capture_for(place.environment.substrate_home, span_id),
        limits=request.limits,
        network=request.network,
        session_id=session_id,
    )


def _named(words: spans.Command, place: Place, running: Running) -> spans.Command:
    return words._replace(
        session_id=running.session_id,
        command_id=running.command_id,
        span_id=running.span_id,
        parent_span=place.environment.parent_span,
        agent_id=place.agent_id,
    )


def replay_context(place: Place, command: spans.Command) -> dict[str, object]:
    return spans.replay_context(
        command, place.environment.variables,
        umask=umask.current(), stdin=process.stdin_kind(),
    )  # fmt: skip
