"""Whether a file is what a pack recorded."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Piece, Styled
from substrate.errors import EXIT_DAMAGED, EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.recorder import Place, find_ctx
from substrate.recorder.packing import (
    NO_TIME,
    Verified,
    Wanted,
    find_store,
    short,
    uri_of,
    verify_artifact,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "verify"
HELP = "check that a file is, byte for byte, an output that a pack recorded"
EXAMPLE = "ctx verify result.md"

_MORE = """
It exits 0 only if the bytes are the recorded output's, the sidecar (result.md.ctx.json) says
nothing else than its pack and, with --signed-by, somebody on the list signed the pack.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("artifact", metavar="ARTIFACT", help="the file to check")
    parser.add_argument("--pack", metavar="REF", help="check against this pack, not the sidecar's")
    parser.add_argument(
        "--signed-by", metavar="FILE", help="a file of allowed signers, as ssh-keygen(1) has it"
    )
    parser.add_argument(
        "--identity", metavar="WHO", help="only a signature of the person WHO on that list"
    )
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    if args.identity and not args.signed_by:
        raise UsageError("--identity is looked up in a list", hint="add --signed-by FILE")
    wanted = Wanted(
        args.pack,
        Path(context.cwd, args.signed_by) if args.signed_by else None,
        args.identity,
    )
    path = Path(context.cwd, args.artifact)
    # Outside of a project, search from the artifact's own directory.
    start = context.cwd if find_ctx(context.cwd) else path.parent
    found = verify_artifact(find_store(start), path, Place.at(start, context.environment), wanted)
    if context.json:
        context.output.emit_json(_fields(found))
    else:
        _show(found, args.artifact, context)
    if found.holds:
        return EXIT_OK
    return EXIT_DAMAGED if found.verdict.status == "pack_damaged" else EXIT_DIFFERENT


def _show(found: Verified, name: str, context: Context) -> None:
    verdict = found.verdict
    word = "verified" if found.holds else verdict.status.replace("_", " ")
    if verdict.verified and not found.holds:
        word = "not signed"
    style = Styled(word, "green" if found.holds else "red")
    rows: list[tuple[str, Piece]] = [
        ("artifact", name),
        ("verdict", style),
        ("because", verdict.reason),
    ]
    if verdict.pack is not None:
        created = verdict.pack.manifest.created
        rows.append(("pack", Styled(uri_of(verdict.pack.ref), "cyan")))
        rows.append(("created", "not recorded" if created == NO_TIME else created))
        rows.append(("model", verdict.pack.manifest.model.identifier))
    if verdict.sidecar is not None:
        told = verdict.sidecar
        shown = (("tools", ", ".join(told.tools)), ("confidence", told.confidence))
        rows += [(label, text) for label, text in (*shown, ("notes", told.notes)) if text]
    for ancestor in verdict.lineage:
        state = "" if ancestor.state == "sound" else f" ({ancestor.state})"
        rows.append(("forked from", short(ancestor.ref) + state))
    if found.written_by is not None:
        entry = found.written_by
        what = entry.command if entry.kind == "command" else f"({entry.kind})"
        rows.append(("written by", f"{entry.command_id}  {what}"))
    for signature in found.signatures or ():
        rows.append(("signature", Styled(signature.reason, "green" if signature.valid else "red")))
    if found.signatures == []:
        rows.append(("signature", Styled("none", "red")))
    for label, piece in rows:
        context.output.line(Styled(f"{label:<12}", "dim"), piece)
    if verdict.pack is not None:
        more = f"look into it: ctx show {short(verdict.pack.ref)}"
        if verdict.status == "modified" and verdict.output is not None:
            more = f"what was recorded: ctx show {short(verdict.pack.ref)}"
            more += f" --output {shlex.quote(verdict.output.name)}"
        context.output.line(Styled(more, "dim"))


def _fields(found: Verified) -> dict[str, object]:
    verdict, entry = found.verdict, found.written_by
    sidecar = verdict.sidecar
    return {
        "artifact": str(verdict.artifact.path),
        "verified": found.holds,
        "status": verdict.status,
        "reason": verdict.reason,
        "pack": verdict.pack.ref if verdict.pack else None,
        "output": verdict.output.name if verdict.output else None,
        "expected": verdict.output.content_ref if verdict.output else None,
        "actual": verdict.artifact.ref,
        "size": verdict.artifact.size,
        "sidecar": None if sidecar is None else dict(sidecar._asdict()),
        "lineage": [{"pack": item.ref, "state": item.state} for item in verdict.lineage],
        "command": None
        if entry is None
        else {
            "command_id": entry.command_id,
            "session_id": entry.session_id,
            "span_id": entry.span_id,
            "kind": entry.kind,
            "command": entry.command,
            "exit": entry.exit,
        },
        "signatures": None
        if found.signatures is None
        else [
            {"file": str(s.path), "principal": s.principal, "valid": s.valid, "reason": s.reason}
            for s in found.signatures
        ],
    }
