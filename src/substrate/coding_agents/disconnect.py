"""Remove from the settings of coding agents what `connect` added, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.coding_agents import connect_note, settings_file
from substrate.coding_agents.agent import SCOPES, Agent, Scope, Surroundings
from substrate.coding_agents.codex import Codex
from substrate.coding_agents.connect import original_text
from substrate.coding_agents.connect_note import Addition, Note
from substrate.coding_agents.generated_scripts import neutralize_scripts
from substrate.coding_agents.settings_edit import BlockEdit, Edit, TomlEdit
from substrate.coding_agents.settings_file import SettingsFile
from substrate.errors import RefusedError


class Removal(NamedTuple):
    """What happens to one file."""

    agent: Agent
    file: SettingsFile
    noted: Addition | None
    #: None: the file goes away.
    text: str | None

    @property
    def change(self) -> str:
        if self.text is None:
            return "delete"
        return "none" if self.text == self.file.text else "restore"


def plan_removal(agents: Sequence[Agent], around: Surroundings) -> tuple[Removal, ...]:
    """What `carry_out_removal` would do, for every scope and project; changes nothing."""
    note = connect_note.load(around.substrate_home)
    found: dict[Path, Removal] = {}
    for agent in agents:
        for edit in _edits(agent, around, note):
            file = settings_file.read(edit.path)
            noted = note.files.get(str(file.real))
            if not file.is_there or file.real in found:
                continue
            if noted is None and settings_file.leads_out(file, around.project):
                continue  # a link of the project: `connect` has never written there
            removal = _removal(agent, edit, file, noted, agents)
            if removal is not None:
                found[file.real] = removal
    for one in found.values():
        if one.change != "none":
            settings_file.refuse_unwritable(one.file)
    return tuple(one for one in found.values() if one.change != "none" or one.noted is not None)


def _removal(
    agent: Agent,
    edit: Edit,
    file: SettingsFile,
    noted: Addition | None,
    agents: Sequence[Agent],
) -> Removal | None:
    """None: another agent, which stays connected, uses the same file."""
    names = {one.name for one in agents}
    if noted is not None and not set(noted.agents) <= names:
        return None
    try:
        text = original_text(edit, file, noted)
        is_blank = (
            noted is not None and noted.made_file and text != file.text and edit.is_blank(text)
        )
    except RefusedError as error:
        raise RefusedError(
            f"{file.path}: {error.message}",
            hint=error.hint or f"nothing was changed; edit {file.path}, then try again",
        ) from None
    return Removal(agent, file, noted, None if is_blank else text)


def carry_out_removal(
    removals: Sequence[Removal], agents: Sequence[Agent], around: Surroundings
) -> None:
    """Write or delete every file of a plan for `agents`. The caller holds the lock."""
    note = connect_note.load(around.substrate_home)
    for one in removals:
        if one.text is None:
            settings_file.delete(one.file)
        elif one.change != "none":
            settings_file.replace(one.file, one.text)
        note = note.without(str(one.file.real))
        connect_note.save(around.substrate_home, note)
    made = {one for removal in removals if removal.noted for one in removal.noted.made_directories}
    settings_file.remove_empty(made)
    _finish(around, note, {agent.name for agent in agents})


def _finish(around: Surroundings, note: Note, names: set[str]) -> None:
    """Remove the agents from the note; without any agent left, the scripts do nothing."""
    left = {
        real: one._replace(agents=others)
        for real, one in note.files.items()
        if (others := tuple(name for name in one.agents if name not in names))
    }
    if left:
        connect_note.save(around.substrate_home, Note(left))
    else:
        (around.substrate_home / connect_note.NAME).unlink(missing_ok=True)
        neutralize_scripts(around)


def _edits(agent: Agent, around: Surroundings, note: Note) -> Iterator[Edit]:
    """The agent's edits here, and in every project that the note names."""
    places = [(around, scope) for scope in SCOPES]
    places += [
        (around._replace(project=Path(one.project)), one.scope)
        for one in note.files.values()
        if one.project and agent.name in one.agents
    ]
    for where, scope in places:
        yield from _edits_in_scope(agent, where, scope)


def _edits_in_scope(agent: Agent, around: Surroundings, scope: Scope) -> Iterator[Edit]:
    """Everything of ours that can be in the files of one scope."""
    yield from agent.edits_with_mcp(around, scope)
    instructions = agent.instructions(around, scope)
    if instructions is not None:
        yield BlockEdit(instructions)
    if isinstance(agent, Codex) and scope == "user":
        yield TomlEdit(agent.config(around), ())
