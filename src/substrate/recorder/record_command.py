"""The way a command travels, from its words to its place in history.

    1. history   the command is announced in the ledger
    2. trace     command_start
    3. world     the command runs; what it changed lies in a layer of its own
    4. history   the layer is read and committed off the line, then applied to the real
                 tree, each path compared first; then the branch advances (`worlds.bring_in`)
    5. trace     command_complete, with the commit; the world is removed

Without a world (`direct`) the command works on the real files: outside edits are scanned for and
committed in step 1, and what it changed is found by a scan in step 4.

A kill between 1 and 4 leaves the announcement, from which the next call records the rest, or
keeps the world for a decision.
"""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history import held, record
from substrate.history.ledger import Entry
from substrate.history.record import Running
from substrate.history.store import HistoryStore
from substrate.model.nodes import Change
from substrate.recorder import first_use, git_arrival, git_locks, live, outside_edits, worlds
from substrate.recorder.command_end import Done, brought_in, exact, found_by_scan, outcome_word
from substrate.recorder.inside import Asked, Inside, Scene, carry_out
from substrate.recorder.keep import keep_under_cap
from substrate.recorder.outputs import capture_for
from substrate.recorder.place import Place
from substrate.system import afterwards, clock, ids, process
from substrate.system.watch_talk import Question
from substrate.trace import spans
from substrate.trace.fs_diff import FsDiff
from substrate.trace.writer import TraceWriter
from substrate.world.protocol import (
    Capture,
    Captured,
    Isolation,
    Layer,
    Network,
    ResourceLimits,
    RunOutcome,
    RunRequest,
    World,
)


class CommandRequest(NamedTuple):
    """What to run: `argv`, or a line for the shell."""

    cwd: Path
    argv: tuple[str | bytes, ...] = ()
    shell: str | bytes = ""
    timeout_s: float | None = None
    kill_children: bool = False
    #: Recorded by watching while it runs, and not only at its end.
    live: bool = False
    #: Do not apply: `substrate world apply` does, later.
    hold: bool = False
    #: Descriptors in the place of our own.
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    pty: bool = False
    capture: Capture | None = None
    limits: ResourceLimits = ResourceLimits()
    network: Network | None = None
    #: The world is there already: its id, and where it was written to, see `InWorld.made_from`.
    world_id: str = ""
    made_from: tuple[bytes, int] | None = None
    #: Answers calls from inside the command's world; `None`: nobody does.
    inside: Inside | None = None


class Recording(NamedTuple):
    """The command as it went. `entry` is None where no history is kept."""

    outcome: RunOutcome
    command_id: str
    span_id: str
    session_id: str
    entry: Entry | None
    changes: list[Change]
    #: Why there is no history here, if there is none.
    no_history: str
    #: Sentences that the user should see.
    notes: tuple[str, ...] = ()
    #: The world that waits for a decision, and why; empty if all has arrived.
    world_id: str = ""
    held: str = ""


def record_command(place: Place, world: World, request: CommandRequest) -> Recording:
    """Run one command in `world` and write it down."""
    if place.workspace.history_refused:
        return _run_unrecorded(place, world, request)
    with place.keeping() as kept:
        return _record(kept, world, request)


def _record(place: Place, world: World, request: CommandRequest) -> Recording:
    trace = TraceWriter.of(place.environment)
    words = spans.Command("", "", "", None, "", place.workspace.root, place.cwd,
                          request.argv, request.shell)  # fmt: skip
    isolation = world.isolation
    is_direct = isolation.strategy == "direct"
    text = spans.command_text(words)
    if not is_direct:
        git_locks.wait_for_the_index(place.workspace)
    running, earlier, beside = _begun(place, request, text, is_direct=is_direct)
    command = _named(words, place, running)
    trace.append(spans.command_start(command, clock.now_ns(), isolation))

    if not is_direct:  # while history was written to, others waited to arrive
        git_locks.wait_for_the_index(place.workspace)
    git_before = git_arrival.watch(place.workspace)
    wanted = _world_request(place, request, running)._replace(
        beside=beside, absent=git_locks.not_held(place.workspace, git_before.state)
    )
    if request.inside is not None and not is_direct:
        request.inside.open(_scene(place, running, isolation, request))
        wanted = wanted._replace(on_call=request.inside.on_call)
    context = cache(partial(_replay_context, place, command))

    def meanwhile() -> None:
        context()
        _save_seen(place)

    wanted = wanted._replace(meanwhile=meanwhile)
    outcome, running = _run(place, world, request, running, wanted)
    asked = Asked() if request.inside is None else request.inside.finish()
    if outcome.layer is None:
        _save_seen(place)  # if no world could be made after all: what follows is a scan
        done = found_by_scan(place, running, outcome, request, git_before)
    else:
        done = brought_in(place, running, outcome, request, git_before, asked.spans)
    notes = _close_span(trace, _complete(command, running, outcome, done, context()))
    if asked.undos:
        notes += carry_out(place._replace(session=running.session_id), asked.undos, done.held)
    if outcome.layer is not None and not done.is_kept:
        world.discard(outcome.layer)
    opened = None if place.kept is None else place.kept.store
    if done.changes and afterwards.is_postponing() and opened is not None:
        afterwards.do(partial(_save_the_next_one_work, place, opened))
    notes += [*earlier, *done.notes]
    if done.entry.commit is not None:  # otherwise the store has not grown
        notes += keep_under_cap(place)
    return Recording(
        outcome, done.entry.command_id, running.span_id, running.session_id, done.entry,
        done.changes, "", tuple(notes), running.world_id if done.held else "", done.held,
    )  # fmt: skip


def _run(
    place: Place, world: World, request: CommandRequest, running: Running, wanted: RunRequest
) -> tuple[RunOutcome, Running]:
    """How the command went, and the command with the base that was taken beside it."""
    outcome: RunOutcome | None = None
    try:
        with live.recording(place, running), first_use.baseline_beside(place, running) as baseline:
            if not running.base_commit:
                wanted = wanted._replace(before_real_files=baseline.ensure)
            outcome = world.run(wanted)
            return outcome, baseline.known_to(running)
    except BaseException:
        if request.inside is not None:
            request.inside.finish()
        # Otherwise a scan must tell what it had done by then; or it has run, and whoever did not
        # want to wait for the baseline finds its world among those that wait.
        if running.world_id and outcome is None:
            _never_ran(place, running, request)
        raise


def _scene(place: Place, running: Running, isolation: Isolation, request: CommandRequest) -> Scene:
    network = "open" if request.network is None else request.network.mode
    isolation = isolation._replace(network=network)
    own = place._replace(session=running.session_id)
    return Scene(own, running.session_id, running.command_id, running.span_id, isolation)


def _begun(
    place: Place, request: CommandRequest, text: str, *, is_direct: bool
) -> tuple[Running, list[str], tuple[Layer, ...]]:
    """The command announced; what there is to say of earlier ones, and those that still run."""
    # First of all: while we look after the rest, the watcher thinks about it.
    asked = None if is_direct else outside_edits.ask(place)

    def announced(store: HistoryStore) -> Running:
        with store.writing("record a command"):
            return record.begin(
                store, session=place.session, agent_id=place.agent_id, command=text,
                exact=exact(request),
                world=None if is_direct else _in_world(place, store, request, asked),
                is_live=request.live and is_direct,
                # What was written before it began is a change of what stood there then.
                baseline_later=request.made_from is None and first_use.may_wait(store),
            )  # fmt: skip

    earlier: list[str] = []
    beside: tuple[Layer, ...] = ()
    try:
        # Not Path.exists: somebody else's store raises there, and is told as what it is later on.
        if not is_direct and os.path.exists(place.workspace.store / "index" / "history.db"):
            with place.existing_history() as store:
                if not held.may_be_detached(store):
                    return announced(store), earlier, beside
            earlier, beside = _collected(place)
        with place.history() as store:
            return announced(store), earlier, beside
    finally:
        if asked is not None:
            asked.close()


def _in_world(
    place: Place, store: HistoryStore, request: CommandRequest, asked: Question | None
) -> record.InWorld:
    found = worlds.new_world(place, store, asked, request.world_id)
    return found._replace(made_from=request.made_from)


def _collected(place: Place) -> tuple[list[str], tuple[Layer, ...]]:
    """What outlived an earlier command and has ended since comes in first."""
    from substrate.recorder.held_worlds import collect_detached

    return collect_detached(place)


def _save_the_next_one_work(place: Place, store: HistoryStore) -> None:
    """With nobody waiting, what would be done at the beginning of the next command.

    The watcher saw what arrived and cannot tell whose it was: it is compared with history. The
    branch was written to its file: that is noted, so that it is not looked at again.

    The caller may be removing or moving the project by now. So it goes by the history that is
    open, no file is made, and what others changed is left for later: it may be that removal.
    """
    asked = outside_edits.ask(place)
    try:
        with store.writing("look after outside edits", timeout_s=0, only_this=True):
            outside_edits.catch_up(store, asked, records=False)
            if store.ledger.has_unpublished:
                with store.commit_point(durable=False):
                    pass
    finally:
        if asked is not None:
            asked.close()


def _save_seen(place: Place) -> None:
    """After the first command of all: what was seen then, for later scans."""
    if place.kept is not None:
        place.kept.save_seen()


def _never_ran(place: Place, running: Running, request: CommandRequest) -> None:
    """No world could be made: the announcement must not wait for a command that is not there."""
    result = record.Result(None, None, {"outcome": "not_started", "exact": exact(request)})
    try:
        with place.history() as store, store.writing("record a command"):
            record.ensure_baseline(store)
            record.note(store, running, result)
    except (SubstrateError, OSError):
        pass  # the next call finds the announcement and does the same


def _close_span(trace: TraceWriter, span: dict[str, object]) -> list[str]:
    """The command is recorded already: a trace that cannot be written is said, not fatal."""
    try:
        trace.append(span)
    except SubstrateError as error:
        return [error.message]
    return []


def _run_unrecorded(place: Place, world: World, request: CommandRequest) -> Recording:
    """No history here: the command still runs and is traced."""
    trace = TraceWriter.of(place.environment)
    session = place.session or ids.new_id("s")
    command = spans.Command(
        session, ids.new_id("c"), ids.new_id("spn"), place.environment.parent_span,
        place.agent_id, place.workspace.root, place.cwd, request.argv, request.shell,
    )  # fmt: skip
    trace.append(spans.command_start(command, clock.now_ns(), world.isolation))
    outcome = world.run(_run_request(place, request, session, command.span_id))
    completion = _completion(outcome, FsDiff(), None, None)._replace(
        extra={"history": place.workspace.history_refused}
    )
    trace.append(spans.command_complete(command, completion, _replay_context(place, command)))
    return Recording(
        outcome, command.command_id, command.span_id, session, None, [],
        place.workspace.refusal,
    )  # fmt: skip


def _world_request(place: Place, request: CommandRequest, running: Running) -> RunRequest:
    made = _run_request(place, request, running.session_id, running.span_id)
    return made._replace(world_id=running.world_id)


def _run_request(
    place: Place, request: CommandRequest, session_id: str, span_id: str
) -> RunRequest:
    return RunRequest(
        cwd=request.cwd,
        argv=request.argv,
        shell=request.shell,
        # A nested substrate joins this session and knows its parent.
        env={"SUBSTRATE_SESSION_ID": session_id, "SUBSTRATE_PARENT_SPAN": span_id},
        timeout_s=request.timeout_s,
        kill_children=request.kill_children,
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


def _complete(
    command: spans.Command,
    running: Running,
    outcome: RunOutcome,
    done: Done,
    replay_context: dict[str, object],
) -> dict[str, object]:
    commit = done.entry.commit
    completion = _completion(
        outcome, done.diff, commit.hex() if commit else None, running.base_commit.hex() or None
    )._replace(extra=done.extra, conflicts=done.conflicts)
    return spans.command_complete(command, completion, replay_context)


def _completion(
    outcome: RunOutcome, diff: FsDiff, commit: str | None, base: str | None
) -> spans.Completion:
    return spans.Completion(
        clock.now_ns(), outcome.exit, outcome.duration_ms, diff, outcome.isolation,
        commit, base, outcome_word(outcome), outcome.scopes_used, outcome.net_denied,
        stdout=_output(outcome.stdout), stderr=_output(outcome.stderr),
    )  # fmt: skip


def _output(captured: Captured | None) -> spans.Output:
    if captured is None:
        return spans.Output()
    ref = str(captured.path) if captured.path is not None else None
    return spans.Output(captured.sha256, captured.size_bytes, ref)


def _replay_context(place: Place, command: spans.Command) -> dict[str, object]:
    return spans.replay_context(
        command, place.environment.variables,
        umask=process.current_umask(), stdin=process.stdin_kind(),
    )  # fmt: skip
