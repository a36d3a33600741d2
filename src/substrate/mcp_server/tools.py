"""The tools: what a coding agent can ask of Substrate, one method each.

A docstring here is what the model reads. A tool that changes something works on the agent's own
session only (`allowed_changes`), and its answer says how to reverse it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from substrate.mcp_server import answers, paging
from substrate.mcp_server.allowed_changes import OwnWork
from substrate.mcp_server.command_line import CommandLine, RefusedCallError
from substrate.mcp_server.run_in_world import run_in_world

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)

Id = Annotated[
    str,
    Field(description="c-… of log, a unique prefix, or @ (your last command), @~1", min_length=1),
]
Change = Annotated[str, Field(description="a git revision or a command id", min_length=1)]
Cursor = Annotated[str | None, Field(description="next_cursor of the last answer")]
WorldId = Annotated[str, Field(description="wld_… or the command's id", min_length=1)]
Path = Annotated[str, Field(description="relative to the project", min_length=1)]

#: "To the end of the file", for a verb that wants a number.
_LAST_LINE = 1_000_000_000
_ALL = f"1,{_LAST_LINE}"

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class Tools:
    """The tools over one project; `register` adds them to a server."""

    def __init__(self, cli: CommandLine, own: OwnWork) -> None:
        self._cli = cli
        self._own = own

    def register(self, server: MCPServer[Any]) -> None:
        kinds: list[tuple[ToolAnnotations, tuple[Callable[..., object], ...]]] = [
            (_READS, (self.log, self.show, self.diff, self.blame, self.status)),
            (_READS, (self.rollback_preview, self.recover_search, self.world_diff)),
            (_READS, (self.context, self.impact)),
            (_ADDS, (self.checkpoint,)),
            (_CHANGES, (self.undo, self.redo, self.recover_restore)),
            (_CHANGES, (self.world_apply, self.world_discard)),
            (_RUNS, (self.run_in_world,)),
        ]
        for kind, tools in kinds:
            for tool in tools:
                server.add_tool(_explained(tool), annotations=kind)

    # ------------------------------------------------------------------------ reading

    def log(
        self,
        path: Annotated[str | None, Field(description="only what changed this path")] = None,
        session: Annotated[str | None, Field(description="only this session")] = None,
        cursor: Cursor = None,
    ) -> answers.Entries:
        """List recorded commands and edits, newest first."""
        words = ["log", "--limit", "0" if path else str(paging.position(cursor) + 100)]
        words += [f"--path={path}"] if path else []
        words += [f"--session={session}"] if session else []
        found = [answers.entry_of(one) for one in self._cli.substrate(*words)["commands"]]
        entries, rest = paging.page(found, cursor, _size)
        return answers.Entries(entries=entries, next_cursor=rest)

    def show(self, id: Id = "@") -> answers.Record:  # noqa: A002  the name that a model expects
        """Show one entry: command, exit status, files, what was refused, how it was isolated."""
        return answers.record_of(self._cli.substrate("show", "--", id))

    def diff(
        self,
        id: Id = "@",  # noqa: A002
        path: Annotated[str | None, Field(description="only this path")] = None,
        cursor: Cursor = None,
    ) -> answers.Diff:
        """Show what one command or edit changed, as a unified diff."""
        words = ["diff", "--", id, *([path] if path else [])]
        found = self._cli.substrate(*words)
        patch, rest = paging.cut_text(self._cli.text(*words), cursor)
        files = answers.file_changes(found) if not paging.position(cursor) else []
        return answers.Diff(id=found["command_id"], files=files, patch=patch, next_cursor=rest)

    def blame(
        self,
        file: Path,
        first_line: Annotated[int, Field(ge=1)] = 1,
        last_line: Annotated[int | None, Field(ge=1)] = None,
        cursor: Cursor = None,
    ) -> answers.Blame:
        """Name the command, session and agent behind each line of a file."""
        lines_of = f"{first_line},{last_line or _LAST_LINE}"
        words = ["blame", "-L", lines_of, "--", file] if lines_of != _ALL else ["blame", "--", file]
        lines = [
            answers.BlamedLine(
                line=one["line"], text=one["text"], id=one["command_id"], kind=one["kind"],
                session=one["session_id"], agent=one["agent_id"], command=one["command"],
            )
            for one in self._cli.substrate(*words)["lines"]
        ]  # fmt: skip
        part, rest = paging.page(lines, cursor, _size)
        return answers.Blame(lines=part, next_cursor=rest)

    def status(self) -> answers.Status:
        """Say what is recorded here, which worlds are held, and what your session is."""
        found = self._cli.substrate("status")
        try:
            own: str | None = self._own.session
        except RefusedCallError:
            own = None
        return answers.Status(
            workspace=found["workspace"],
            session=found.get("session_id"),
            history=found["history"],
            strategy=found["strategy"],
            held_worlds=[one["world_id"] for one in found["worlds"]],
            running=[str(one) for one in found["running"]],
            outside_changes=found["outside_changes"][:50],
            your_session=own,
        )

    def rollback_preview(
        self,
        to: Annotated[str, Field(description="a command id or checkpoint: its number, S/SEQ")],
    ) -> answers.Reversal:
        """Show what taking back your session's later commands would change. Changes nothing."""
        point = f"--to={to}" if to.startswith(("c-", "@", "spn_")) else f"--checkpoint={to}"
        words = ["rollback", point, "--session", self._own.session, "--dry-run"]
        return answers.reversal_of(self._cli.substrate(*words))

    def recover_search(
        self,
        pattern: Annotated[str, Field(description="text, not a regular expression", min_length=1)],
        cursor: Cursor = None,
    ) -> answers.Matches:
        """Search every kept copy of replaced or removed files for a text."""
        found = [
            answers.Match(
                path=one["path"], snapshots=one["snapshots"][:5], line=hit["line"], text=hit["text"]
            )
            for one in self._cli.substrate("recover", "search", "--", pattern)["matches"]
            for hit in one["hits"]
        ]
        part, rest = paging.page(found, cursor, _size)
        return answers.Matches(matches=part, next_cursor=rest)

    def world_diff(self, world_id: WorldId, cursor: Cursor = None) -> answers.World:
        """Show what a held world would change."""
        found = self._cli.substrate("world", "diff", "--", world_id)
        patch, rest = paging.cut_text(self._cli.text("world", "diff", "--", world_id), cursor)
        return answers.World(
            world_id=found["world_id"],
            id=found["command_id"],
            outcome=found["state"],
            files=answers.file_changes(found) if not paging.position(cursor) else [],
            patch=patch,
            next_cursor=rest,
        )

    def context(
        self,
        task: Annotated[str, Field(description="what you are about to do", min_length=1)],
        token_cap: Annotated[int, Field(ge=100, le=20_000)] = 2_000,
    ) -> answers.Text:
        """Gather the code that a task needs, never over a token cap. Needs `ctx index`."""
        found = self._cli.ctx("context", f"--task={task}", "--token-cap", str(token_cap))
        return answers.Text(text=found["text"])

    def impact(self, change: Change = "HEAD", cursor: Cursor = None) -> answers.Text:
        """Say what a commit or a recorded command can break. Needs `ctx index`."""
        found = self._cli.ctx("impact", "--", change)
        text, rest = paging.cut_text(json.dumps(found, indent=1, ensure_ascii=False), cursor)
        return answers.Text(text=text, next_cursor=rest)

    # ------------------------------------------------------------------------ changing

    def undo(
        self,
        id: Id = "@",  # noqa: A002
        paths: Annotated[list[str] | None, Field(description="only these files")] = None,
        branches: Annotated[
            Literal["unless_moved", "with_git", "files_only"],
            Field(description="for a command that moved branches: take them back too, or not"),
        ] = "unless_moved",
        dry_run: bool = False,
    ) -> answers.Reversal:
        """Take back one of your own commands or edits; all later work stays."""
        entry = self._own.check_entry(id)
        words = ["undo", entry["command_id"], "--session", self._own.session]
        words += [f"--path={path}" for path in paths or ()]
        words += {"with_git": ["--with-git"], "files_only": ["--files-only"]}.get(branches, [])
        words += ["--dry-run"] if dry_run else []
        return answers.reversal_of(self._cli.substrate(*words))

    def redo(self) -> answers.Reversal:
        """Take back your session's last undo."""
        return answers.reversal_of(self._cli.substrate("redo", "--session", self._own.session))

    def checkpoint(
        self, message: Annotated[str, Field(description="why", max_length=500)] = ""
    ) -> answers.Checkpoint:
        """Mark this moment, to come back to it later."""
        words = ["checkpoint", "--session", self._own.session, f"--message={message}"]
        found = self._cli.substrate(*words)
        name = f"{found['session_id']}/{found['checkpoint_seq']}"
        return answers.Checkpoint(
            checkpoint=name, commit=found["commit"], reverse_with="nothing to reverse: a mark"
        )

    def recover_restore(
        self,
        snapshot: Annotated[str, Field(description="a snapshot that recover_search named")],
        paths: Annotated[list[str], Field(description="the files to bring back", min_length=1)],
    ) -> answers.Reversal:
        """Bring back files from a snapshot; what they replace is kept first."""
        self._own.check_entry(snapshot)
        words = ["recover", "restore", "--session", self._own.session, "--", snapshot, *paths]
        return answers.reversal_of(self._cli.substrate(*words))

    def world_apply(self, world_id: WorldId) -> answers.Reversal:
        """Bring the change of a held world of your session into the project."""
        world = self._own.check_world(world_id)["world_id"]
        found = self._cli.substrate("world", "apply", world)
        entry = found.get("command_id")
        return answers.Reversal(
            id=entry,
            restored=found.get("changed_files") or [],
            deleted=[],
            merged=found.get("merged") or [],
            conflicts=found.get("conflicts") or [],
            notes=[f"still held: {found['held']}"] if found.get("held") else [],
            reverse_with=f'undo(id="{entry}")',
        )

    def world_discard(self, world_id: WorldId) -> answers.Text:
        """Discard a held world of your session. It stays recoverable for the trash's time."""
        world = self._own.check_world(world_id)["world_id"]
        self._cli.substrate("world", "discard", world)
        return answers.Text(
            text=f"Discarded {world}. To bring it in after all: world_apply(world_id={world!r})."
        )

    def run_in_world(
        self,
        command: Annotated[str, Field(description="a shell command line", min_length=1)],
        hold: Annotated[
            bool, Field(description="true: look with world_diff before world_apply")
        ] = True,
        timeout_s: Annotated[float, Field(gt=0, le=600)] = 120.0,
    ) -> answers.World:
        """Run a shell command in a world: the project changes only when the world is applied."""
        body = {
            "cmd": command, "hold": hold, "timeout_s": timeout_s, "world": "enabled",
            "session_id": self._own.session, "env": self._cli.variables,
        }  # fmt: skip
        found = run_in_world(self._cli, body)
        world = found.get("world_id") or None
        diff = found.get("fs_diff") or {}
        kinds = (("writes", "added"), ("mods", "modified"), ("deletes", "deleted"))
        return answers.World(
            world_id=world,
            id=found.get("command_id"),
            exit=found.get("exit"),
            outcome=found.get("outcome"),
            stdout=_tail(found.get("stdout_b64")),
            stderr=_tail(found.get("stderr_b64")),
            files=[
                answers.FileChange(path=path, change=word)
                for kind, word in kinds
                for path in (diff.get(kind) or ())[:50]
            ],
            reverse_with=f'world_discard(world_id="{world}")' if world
            else f'undo(id="{found.get("command_id")}")',
        )  # fmt: skip


def _size(item: Any) -> int:
    return len(item.model_dump_json())


def _tail(encoded: str | None) -> str:
    """The end of what a command printed: errors are there."""
    text = base64.b64decode(encoded or "").decode("utf-8", "replace")
    most = paging.MOST_CHARACTERS // 2
    return (
        text if len(text) <= most else f"[{len(text) - most} characters left out]\n{text[-most:]}"
    )


def _explained(tool: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Report an error of the command line as one that the model can act on."""

    @wraps(tool)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
        try:
            return tool(*args, **kwargs)
        except RefusedCallError as error:
            raise ToolError(str(error)) from error

    return call
