"""Mark the present state as a checkpoint, or list the marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import place_of, when
from substrate.errors import EXIT_OK
from substrate.history import checkpoints, sessions
from substrate.recorder.keep import mark_checkpoint
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.history.checkpoints import Checkpoint

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
    checkpoint = mark_checkpoint(place_of(context), args.message)
    if context.json:
        context.output.emit_json(_json(checkpoint))
    else:
        context.output.line(
            Styled(f"checkpoint {checkpoint.seq}", "bold"), f" of session {checkpoint.session_id}"
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
    if context.json:
        context.output.emit_json({"checkpoints": [_json(one) for one in found]})
        return EXIT_OK
    rows = [
        (when(c.ts_ns), c.session_id, str(c.seq), c.commit.hex()[:12], c.message) for c in found
    ]
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
