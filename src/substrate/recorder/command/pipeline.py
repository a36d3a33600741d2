"""The pipeline of a command, from its arguments to its entry in history.

    announce         in the ledger, then `command_start` in the trace      `running_command.py`
    watch git        the state of the user's repository                    `UserGit.watch`
    run              in the world: the change is in a layer of its own     `world`
    check            `--check`, in a layer above; if it fails, the change
                     is held                                               `check_change.py`
    read the layer   what was created, changed, removed                    `arrival/bring_in.py`
    decide           whether it can arrive, or is held for the user
    commit           off the line: no crash can make it an outside edit    `history/arrival`
    apply            to the real tree, each path compared first; then the
                     branch advances
    close            `command_complete` with the commit; the world is removed

There are two other ways. Without a world (`direct`, `--live`) the command works on the real files:
outside edits are committed before it is announced, and a scan finds what it changed. Where history
is refused, the command runs and is traced, and nothing is recorded.

A kill after the announcement leaves it in the ledger. From it the next call records the rest, or
holds the world for a decision.
"""

from __future__ import annotations

from substrate.recorder.arrival import Brought, Request, arrival_of
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.finish_command import brought_in, found_by_scan
from substrate.recorder.command.repair_and_retry import mending
from substrate.recorder.command.running_command import announced
from substrate.recorder.command.unrecorded_command import run_unrecorded
from substrate.recorder.session_context import Place
from substrate.world import World


def record_command(place: Place, world: World, request: CommandRequest) -> Recording:
    """Run one command in `world` and record it."""
    if place.workspace.history_refused:
        return run_unrecorded(place, world, request)
    with place.keeping() as kept, announced(kept, world, request) as command:
        before = command.watch_git()
        outcome = command.run(before)
        if outcome.layer is None:  # it worked on the real files
            done = found_by_scan(kept, command.running, outcome, request, before)
        else:
            command.check(outcome, before)
            wanted = command.arrival(outcome, before)
            with command.reporting_failure(outcome):
                arrived = mending(kept, lambda: bring_in(kept, wanted))
            done = brought_in(kept, command.running, outcome, request, before, arrived)
        return command.close(outcome, done)


def bring_in(place: Place, request: Request) -> Brought:
    """Take a change out of its world, into history and the tree. A held world goes this way, too.

    The caller removes the layer unless `is_kept`.
    """
    with arrival_of(place, request) as arrival:
        if not arrival.read_layer():
            return arrival.note_nothing()
        causes = arrival.decide()
        return arrival.hold(causes) if causes else arrival.commit_and_apply()
