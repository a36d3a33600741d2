"""The answers of the tools, as the schemas that a model sees.

Fields that a model does not need are left out of the command line's answer: each one costs tokens.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from substrate.mcp_server.command_line import Document


class Entry(BaseModel):
    """One entry of history: a command, an edit, an outside change, an undo."""

    id: str
    kind: str
    command: str
    time: str
    session: str | None = None
    agent: str | None = None
    exit: int | None = None
    files: list[str] = Field(default_factory=list)
    more_files: int = Field(0, description="changed files that are not listed")
    marks: list[str] = Field(default_factory=list, description="undone, not applied, …")


class Entries(BaseModel):
    entries: list[Entry]
    next_cursor: str | None = None


class Record(BaseModel):
    """All that is known about one entry."""

    entry: Entry
    undone: bool = False
    detail: dict[str, Any] = Field(default_factory=dict)


class FileChange(BaseModel):
    path: str
    change: str = Field(description="added, modified, deleted, mode or type")
    additions: int | None = None
    deletions: int | None = None


class Diff(BaseModel):
    id: str
    files: list[FileChange]
    patch: str = Field(description="unified diff, or its next part")
    next_cursor: str | None = None


class BlamedLine(BaseModel):
    line: int
    text: str
    id: str
    kind: str
    session: str | None = None
    agent: str | None = None
    command: str = ""


class Blame(BaseModel):
    lines: list[BlamedLine]
    next_cursor: str | None = None


class Status(BaseModel):
    workspace: str
    session: str | None = None
    history: str
    strategy: str
    held_worlds: list[str]
    running: list[str]
    outside_changes: list[str] = Field(description="files edited outside Substrate since")
    your_session: str | None = Field(None, description="null: only reading tools work")


class Reversal(BaseModel):
    """What a change to the tree did, and how to reverse it."""

    id: str | None
    restored: list[str]
    deleted: list[str]
    merged: list[str]
    conflicts: list[str] = Field(description="left unchanged, because later work is in the way")
    notes: list[str] = Field(default_factory=list)
    reverse_with: str | None = Field(None, description="the tool call that takes this back")
    dry_run: bool = False


class Checkpoint(BaseModel):
    checkpoint: str
    commit: str
    reverse_with: str


class Match(BaseModel):
    path: str
    snapshots: list[str] = Field(description="pass one to recover_restore")
    line: int
    text: str


class Matches(BaseModel):
    matches: list[Match]
    next_cursor: str | None = None


class World(BaseModel):
    """A command that ran in a world, and what it would change."""

    world_id: str | None = Field(None, description="null: nothing is held")
    id: str | None = None
    exit: int | None = None
    outcome: str | None = None
    stdout: str = ""
    stderr: str = ""
    files: list[FileChange] = Field(default_factory=list)
    patch: str = ""
    next_cursor: str | None = None
    reverse_with: str | None = None


class Text(BaseModel):
    text: str
    next_cursor: str | None = None


_MOST_FILES = 20
#: Fields of a record that repeat others or are only for programs.
_LEFT_OUT = ("isolation", "exact", "git")


def entry_of(found: Document) -> Entry:
    files = [str(path) for path in found.get("changed_files") or ()]
    return Entry(
        id=found["command_id"],
        kind=found["kind"],
        command=found["command"],
        time=found["ts"],
        session=found.get("session_id"),
        agent=found.get("agent_id"),
        exit=found.get("exit"),
        files=files[:_MOST_FILES],
        more_files=max(len(files) - _MOST_FILES, 0),
        marks=found.get("marks") or [],
    )


def record_of(found: Document) -> Record:
    detail = {k: v for k, v in (found.get("detail") or {}).items() if k not in _LEFT_OUT}
    return Record(entry=entry_of(found), undone=bool(found.get("undone")), detail=detail)


def file_changes(found: Document) -> list[FileChange]:
    return [
        FileChange(
            path=one["path"], change=one["change"],
            additions=one.get("additions"), deletions=one.get("deletions"),
        )
        for one in found.get("files") or ()
    ]  # fmt: skip


def reversal_of(found: Document) -> Reversal:
    entry = found.get("command_id")
    return Reversal(
        id=entry,
        restored=found.get("restored") or [],
        deleted=found.get("deleted") or [],
        merged=found.get("merged") or [],
        conflicts=found.get("conflicts") or [],
        notes=found.get("notes") or [],
        reverse_with=f'undo(id="{entry}")' if entry else None,
        dry_run=bool(found.get("dry_run")),
    )
