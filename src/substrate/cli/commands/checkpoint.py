"""Mark the current state as a checkpoint, or list the checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of, when
from substrate.errors import EXIT_OK
from substrate.recorder import checkpoints, mark_checkpoint, rollback, sessions
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Checkpoint

NAME = "checkpoint"
HELP = "mark the present state, or list the marks"
EXAMPLE = "substrate checkpoint -m 'tests pass'"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("create", "list"), default="create",
        metavar="create|list", help="default: create",
    )  # fmt: skip
    parser.add_argument("-m", "--message", default="", metavar="TEXT", help="what was reached")


def run(args: Namespace, context: Context) -> int:
    if args.action == "list":
        return _list(context)
    place = place_of(context)
    checkpoint = mark_checkpoint(place, args.message)
    if context.json:
        more = {"base_known": checkpoint.base_known, "agent_id": checkpoint.agent_id}
        context.output.emit_json({**_json(checkpoint), **more})
    else:
        whose = f" (agent: {checkpoint.agent_id})" if checkpoint.agent_id != place.agent_id else ""
        context.output.line(
            Styled(f"checkpoint {checkpoint.seq}", "bold"),
            f" of session {checkpoint.session_id}{whose}",
        )
        context.output.line(
            "to come back here: ",
            Styled(
                f"substrate rollback --checkpoint {checkpoint.session_id}/{checkpoint.seq}", "cyan"
            ),
        )
    return EXIT_OK


def _list(context: Context) -> int:
    place = place_of(context)
    with place.existing_history() as store:
        session_id = None
        if context.session is not None:
            session_id = sessions.resolve(store.ledger, context.session).session_id
        found = checkpoints.of_session(store.ledger, session_id)
        holders = {one.tag: rollback.squash_over(store, one) for one in found}
    held = {tag: squash.command_id for tag, squash in holders.items() if squash}
    if context.json:
        documents = [{**_json(one), "squashed_into": held.get(one.tag)} for one in found]
        context.output.emit_json({"checkpoints": documents})
        return EXIT_OK
    rows = [
        (
            when(c.ts_ns), c.session_id, str(c.seq), c.commit.hex()[:12],
            f"(squashed into {held[c.tag]})  {c.message}" if c.tag in held else c.message,
        )
        for c in found
    ]  # fmt: skip
    header = ("when (UTC)", "session", "seq", "commit", "message")
    context.output.table(rows, header=header, right=(2,), spare=(3, 0))
    return EXIT_OK


def _json(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "session_id": checkpoint.session_id,
        "checkpoint_seq": checkpoint.seq,
        "commit": checkpoint.commit.hex(),
        "tag": checkpoint.tag,
        "message": checkpoint.message,
        "ts": clock.iso(checkpoint.ts_ns),
    }
