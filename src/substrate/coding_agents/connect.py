"""Plan what `connect` adds to the settings of coding agents, and carry the plan out.

Planning reads every file and finds every refusal; only then the first file is written. Each file is
compared again right before it is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from substrate.coding_agents import connect_note, mcp_registration, settings_file
from substrate.coding_agents.agent import Agent, Scope, Surroundings
from substrate.coding_agents.codex import Codex
from substrate.coding_agents.connect_note import Addition, Note
from substrate.coding_agents.generated_scripts import installed_program, scripts, write_scripts
from substrate.coding_agents.mcp_registration import SERVER
from substrate.coding_agents.settings_edit import BlockEdit, Edit, TomlEdit
from substrate.coding_agents.settings_file import SettingsFile
from substrate.coding_agents.text_insertions import Extended
from substrate.errors import RefusedError, SettingTakenError
from substrate.system.files import read_bytes_or_none
from substrate.system.sync import FileLock

_PATIENCE_S = 10.0


class FilePlan(NamedTuple):
    """What one file gets."""

    agent: Agent
    scope: Scope
    edit: Edit
    file: SettingsFile
    #: None: the file has all of it already.
    extended: Extended | None

    @property
    def change(self) -> str:
        if self.extended is None:
            return "none"
        return "extend" if self.file.is_there else "create"


class Skipped(NamedTuple):
    """An agent without settings of this scope."""

    agent: Agent
    reason: str


#: Whether the MCP server is registered; `unwanted`: the user left it out.
Mcp = Literal["registered", "missing", "unwanted"]


class Plan(NamedTuple):
    """All files, and the scripts that the settings name."""

    around: Surroundings
    scope: Scope
    files: tuple[FilePlan, ...]
    skipped: tuple[Skipped, ...]
    program: Path
    mcp: Mcp

    @property
    def changes(self) -> tuple[FilePlan, ...]:
        return tuple(one for one in self.files if one.extended is not None)

    @property
    def is_done(self) -> bool:
        """Whether everything is as planned already."""
        return not self.changes and all(
            read_bytes_or_none(path) == content.encode()
            for path, content in scripts(self.around, self.program).items()
        )


def locked(around: Surroundings) -> FileLock:
    """One `connect` or `disconnect` at a time: both rewrite the note."""
    around.substrate_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(around.substrate_home / "connect.lock")
    lock.acquire(_PATIENCE_S, "connecting coding agents")
    return lock


def plan(
    agents: Sequence[Agent],
    around: Surroundings,
    scope: Scope,
    *,
    instructions: bool = False,
    mcp: bool = True,
) -> Plan:
    """What `carry_out` would do; changes nothing."""
    if scope != "user" and around.project == around.home:
        raise RefusedError(
            f"scope {scope} needs a project, and this is your home directory",
            hint="cd to a project, or leave --scope out",
        )
    note = connect_note.load(around.substrate_home)
    files: list[FilePlan] = []
    skipped: list[Skipped] = []
    server: Mcp = "unwanted"
    if mcp:
        server = "registered" if mcp_registration.is_installed() else "missing"
    for agent in agents:
        edits = agent.edits(around, scope)
        if server == "registered":
            edits = agent.edits_with_mcp(around, scope)
        if not edits:
            skipped.append(Skipped(agent, agent.why_not_scope(scope)))
            continue
        block = agent.instructions(around, scope) if instructions else None
        if block is not None:
            edits = (*edits, BlockEdit(block))
        for edit in edits:
            planned = plan_file(agent, scope, edit, note)
            if scope != "user" and settings_file.leads_out(planned.file, around.project):
                raise RefusedError(
                    f"{planned.file.path} leads out of the project, to {planned.file.real}",
                    hint="nothing was changed; replace the link by a file",
                )
            if any(one.file.real == planned.file.real for one in files):
                planned = planned._replace(extended=None)  # two agents read the same instructions
            files.append(planned)
    return Plan(around, scope, tuple(files), tuple(skipped), installed_program(), server)


def plan_file(agent: Agent, scope: Scope, edit: Edit, note: Note) -> FilePlan:
    """What one file gets: where an older version of ours is in it, that is replaced."""
    file = settings_file.read(edit.path)
    try:
        if edit.is_in(file.text):
            return FilePlan(agent, scope, edit, file, None)
        noted = note.files.get(str(file.real))
        whole = edit.keeping(file.text, noted.containers if noted is not None else ())
        extended = whole.add_to(original_text(whole, file, noted))
    except RefusedError as error:
        is_server = isinstance(error, SettingTakenError) and error.last_key == SERVER
        otherwise = ", or use --no-mcp" if is_server else ""
        raise RefusedError(
            f"{file.path}: {error.message}",
            hint=error.hint
            or f"nothing was changed; edit {file.path}, then connect again{otherwise}",
        ) from None
    settings_file.refuse_unwritable(file)
    return FilePlan(agent, scope, edit, file, extended)


def original_text(edit: Edit, file: SettingsFile, noted: Addition | None) -> str:
    """The file without what `connect` added: exact if nothing else changed since."""
    exact = noted.exact_original(file.text) if noted is not None else None
    if exact is not None:
        return exact
    return edit.remove_from(file.text, noted.containers if noted is not None else ())


def carry_out(planned: Plan) -> None:
    """Write the scripts and every file of the plan. The caller holds the lock."""
    write_scripts(planned.around, planned.program)
    for one in planned.files:
        _write_file(one, planned.around)


def trust_hooks(agent: Codex, around: Surroundings) -> FilePlan:
    """Let Codex run the hooks, as the user asked; they are written. The caller holds the lock."""
    edit = TomlEdit(agent.config(around), agent.trust_tables(around))
    planned = plan_file(agent, "user", edit, connect_note.load(around.substrate_home))
    _write_file(planned, around)
    return planned


def _write_file(one: FilePlan, around: Surroundings) -> None:
    note = connect_note.load(around.substrate_home)
    real = str(one.file.real)
    before = note.files.get(real)
    if one.extended is None:
        if before is not None and one.agent.name not in before.agents:
            noted = before._replace(agents=(*before.agents, one.agent.name))
            connect_note.save(around.substrate_home, Note({**note.files, real: noted}))
        return
    directories = settings_file.make_directories(one.file)
    if before is None or not _is_true(before, one):
        before = Addition(
            path=str(one.edit.path), agents=(), scope=one.scope,
            project="" if one.scope == "user" else str(around.project), sha256="", inserted=(),
            containers=(), made_file=not one.file.is_there, made_directories=directories,
        )  # fmt: skip
    agents = tuple(dict.fromkeys((*before.agents, one.agent.name)))
    noted = connect_note.addition_of(one.extended, before._replace(agents=agents))
    # The note first: a kill in between leaves a note that is not true, which does no harm.
    connect_note.save(around.substrate_home, Note({**note.files, real: noted}))
    try:
        settings_file.replace(one.file, one.extended.text)
    except BaseException:
        connect_note.save(around.substrate_home, note)
        raise


def _is_true(noted: Addition, one: FilePlan) -> bool:
    """Whether the file has what the note says: a kill may have come before the file was written."""
    text = one.file.text
    return (
        noted.exact_original(text) is not None
        or one.edit.remove_from(text, noted.containers) != text
    )
