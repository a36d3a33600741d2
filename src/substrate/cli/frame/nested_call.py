"""Answer a call from inside a world, outside of it: only some verbs, only in its own workspace.

The caller is not trusted. Workspace and session are always those of the enclosing command,
whatever the caller's directory is. Nothing reads or writes a path that the caller names, and
nothing runs a program that the caller names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import substrate.cli.frame.parser  # noqa: F401  so that it is there before the first call
from substrate.broker import Answered
from substrate.cli.frame.arguments import VERBS, Invocation, load, parse, wants_json
from substrate.cli.frame.context import Context
from substrate.cli.frame.interruption_notice import announce_interrupted, may_be_reading
from substrate.cli.frame.output import Output
from substrate.cli.frame.reversal_options import choice_of
from substrate.cli.frame.scope_options import has_scope_option
from substrate.cli.main import ANSWERED_OUTSIDE, Program, guarded
from substrate.errors import EXIT_OK, RefusedError
from substrate.system import environment as environment_module

if TYPE_CHECKING:
    from argparse import Namespace

    from substrate.broker import Call
    from substrate.recorder.command import UndoWish

_PROGRAM = Program("substrate", VERBS)
#: Imported once, for all calls.
_COMMANDS = {verb: load(verb) for verb in ANSWERED_OUTSIDE}
_ONLY = "log, show, diff, status, checkpoint and undo work in here"
_LATER = "ask for it outside: when the command around this one is over, or in another terminal"


def answer(call: Call) -> Answered:
    """Run the call, or note what to do after the enclosing command ends."""
    environment = environment_module.current()
    output = Output(
        call.stdout, call.stderr, json=wants_json(call.words), no_color=call.no_color,
        columns=call.columns,
    )  # fmt: skip
    wishes: list[UndoWish] = []
    marks: list[str] = []

    def dispatch(invocation: Invocation) -> int:
        if invocation.verb not in ANSWERED_OUTSIDE:
            what = f"`substrate {invocation.verb}`" if invocation.verb else "this"
            raise RefusedError(f"{what} cannot be had from inside a world", hint=_ONLY)
        command = _COMMANDS[invocation.verb]
        args = parse(command, invocation)
        _refuse_other_places(args)
        output.json = args.json
        session = _session(invocation.verb, args, call)
        place = call.scene.place._replace(cwd=call.cwd, session=session or call.scene.session_id)
        context = Context(call.cwd, environment, output, args.json, session, None, place)
        is_mark = invocation.verb == "checkpoint" and args.action == "create"
        if invocation.verb == "undo" and not args.dry_run:
            _refuse_too_many(call.may_undo, "undos")
            wishes.append(_later(args, context, call.already))
            return EXIT_OK
        if invocation.verb == "status" and args.accept:
            raise RefusedError("outside edits are not accepted from inside a world", hint=_LATER)
        if call.scene.isolation.tier == "full":
            _refuse_other_sessions(invocation.verb, args, context, call)
        if is_mark:
            _refuse_too_many(call.may_mark, "checkpoints")
        if may_be_reading(invocation.verb, args):
            announce_interrupted(context)
        status = command.run(args, context)
        if is_mark:
            marks.append("made")
            output.note("what the command around it changes is not part of this checkpoint")
        return status

    status = guarded(call.words, environment, _PROGRAM, output, dispatch)
    return Answered(status, wishes[0] if wishes else None, bool(marks))


def _refuse_too_many(may: bool, what: str) -> None:
    if not may:
        raise RefusedError(f"too many {what} were asked for in one command", hint=_LATER)


def _refuse_other_places(args: Namespace) -> None:
    if args.workspace is not None:
        raise RefusedError("from inside a world only its own workspace can be seen", hint=_LATER)
    if args.agent_id is not None:
        raise RefusedError("inside a world --agent-id cannot be changed", hint=_LATER)


def _session(verb: str, args: Namespace, call: Call) -> str | None:
    """The session to read; changes always belong to the enclosing command's own session."""
    wanted: str | None = args.session
    own = call.scene.session_id
    is_full = call.scene.isolation.tier == "full"
    if wanted not in (None, own) and (is_full or verb in ("undo", "checkpoint")):
        raise RefusedError("from in here only the command's own session is reached", hint=_LATER)
    return own if is_full else wanted


def _refuse_other_sessions(verb: str, args: Namespace, context: Context, call: Call) -> None:
    """The tier `full` is for the least trusted commands: they see only their own session."""
    from substrate.recorder import resolve

    if verb == "status":
        raise RefusedError("`substrate status` shows other sessions, too", hint=_LATER)
    if verb in ("diff", "undo") and has_scope_option(args):
        raise RefusedError("from in here only one command is shown", hint=_LATER)
    if verb not in ("show", "diff", "undo") or args.id is None:
        return
    place = context.place
    assert place is not None
    with place.existing_history() as store:
        found = resolve(store, args.id, place.session)
    # A squash that contains our own entry is what would be shown; it may contain other sessions.
    told = {one.session_id for one in (found.entry, found.session, found.holder) if one is not None}
    if told != {call.scene.session_id}:
        raise RefusedError(f"{args.id!r} is not of the command's own session", hint=_LATER)


def _later(args: Namespace, context: Context, already: tuple[str, ...]) -> UndoWish:
    from substrate.recorder.command import wish_to_undo

    if args.with_git:
        raise RefusedError("--with-git is not done from inside a world", hint=_LATER)
    if has_scope_option(args) or args.hunk or args.patch:
        raise RefusedError("from inside a world only one command is undone", hint=_LATER)
    place = context.place
    assert place is not None
    wish = wish_to_undo(place, args.id, choice_of(args, place), already)
    if context.json:
        context.output.emit_json({"command_id": wish.command_id, "queued": True})
    else:
        context.output.line(f"{wish.command_id} will be undone when this command is over")
    return wish
