"""What `show` prints for ids other than a command's: prompts, sessions, refs and bare commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Output, Styled, clip, safe
from substrate.cli.render.entry_render import command_line, hex_or_none, prompt_json, when
from substrate.system import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrate.recorder import Entry, HistoryStore, Prompt, Session, Target

Rows = list[tuple[str, str | None]]


def show_target(store: HistoryStore, target: Target, output: Output) -> None:
    if target.prompt is not None:
        _show_prompt(store, target.text, target.prompt, output)
    elif target.session is not None:
        _show_session(store, target.text, target.session, output)
    elif output.json:
        output.emit_json(
            {
                "id": target.text,
                "recovery_ref": target.recovery,
                "commit": hex_or_none(target.commit),
            }
        )
    else:
        rows: Rows = [("recovery ref", target.recovery), ("commit", hex_or_none(target.commit))]
        if target.recovery is not None:
            rows.append(("look", f"substrate recover show {target.recovery}"))
        _table(output, rows)


def _show_prompt(store: HistoryStore, text: str, prompt: Prompt, output: Output) -> None:
    entries = store.ledger.of_prompt(prompt.prompt_id)[::-1]
    if output.json:
        document: dict[str, object] = {"id": text, **prompt_json(prompt)}
        output.emit_json({**document, "entries": [entry.command_id for entry in entries]})
        return
    rows: Rows = [
        ("prompt", prompt.text or "(its text was not reported)"),
        ("id", prompt.prompt_id),
        ("session", prompt.session_id),
        ("model", prompt.model),
        ("agent's own id", prompt.agent_prompt or None),
        ("sent", f"{when(prompt.started_ns)} UTC"),
        ("ended", f"{when(prompt.ended_ns)} UTC" if prompt.ended_ns else "not reported"),
    ]
    _table(output, rows)
    _commands(output, entries)


def _show_session(store: HistoryStore, text: str, session: Session, output: Output) -> None:
    entries = store.ledger.live(session_id=session.session_id)
    holders = _holders(store, session.session_id)
    if output.json:
        output.emit_json(
            {
                "id": text,
                "session_id": session.session_id,
                "agent_id": session.agent_id,
                "started": clock.iso(session.started_ns),
                "closed": clock.iso(session.closed_ns) if session.closed_ns else None,
                "entries": [entry.command_id for entry in entries],
                "squashed_into": holders,
            }
        )
        return
    rows: Rows = [
        ("session", session.session_id),
        ("agent", session.agent_id),
        ("started", f"{when(session.started_ns)} UTC"),
        ("closed", f"{when(session.closed_ns)} UTC" if session.closed_ns else "no, it is open"),
        ("partly in", ", ".join(holders) or None),
    ]
    _table(output, rows)
    _commands(output, entries)


def _table(output: Output, rows: Rows) -> None:
    output.table([(Styled(name, "dim"), v) for name, v in rows if v is not None], whole=True)


def _commands(output: Output, entries: Sequence[Entry]) -> None:
    if not entries:
        output.line("no commands")
    for entry in entries:
        line = f"  {entry.command_id}  {safe(command_line(entry))}"
        output.line(clip(line, output.columns) if output.is_terminal else line)


def _holders(store: HistoryStore, session_id: str) -> list[str]:
    """The squashes that contain commands of a session."""
    rows = store.ledger.db.execute(
        "SELECT DISTINCT squashed_into AS holder FROM entries"
        " WHERE session_id = ? AND squashed_into IS NOT NULL ORDER BY holder",
        (session_id,),
    )
    found = [store.ledger.by_command_id(row["holder"]) for row in rows]
    return [squash.command_id for squash in found if squash and not squash.squashed_into]
