"""Register the MCP server in agents' settings: what is written, and whether it can work.

Settings name the script ``substrate-mcp``. For JSON the entry has the form that Claude Code began
and Gemini CLI shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from substrate.coding_agents import settings_json
from substrate.coding_agents.settings_edit import Containers, Edit, JsonEdit
from substrate.coding_agents.settings_json import Addition

MCP_SCRIPT = "substrate-mcp"
#: The server's name in every agent.
SERVER = "substrate"
SERVERS = "mcpServers"
#: What to type if the SDK is missing.
MCP_INSTALL = "pip install 'substrate-recorder[mcp]'"


def is_installed() -> bool:
    """Whether the extra `mcp` is installed. Its import takes most of a second: do not import it."""
    try:
        metadata.distribution("mcp")
    except metadata.PackageNotFoundError:
        return False
    return True


def json_entry(script: Path | None) -> dict[str, object]:
    """A server in ``mcpServers``. Without a script it holds no path of this machine: for teammates.

    Claude Code expands ``${NAME:-default}`` itself; the shell expands what is left.
    """
    if script is not None:
        return {"command": str(script), "args": []}
    line = f'exec "${{SUBSTRATE_HOME:-$HOME/.substrate}}/bin/{MCP_SCRIPT}"'
    return {"command": "sh", "args": ["-c", line]}


def is_our_server(value: object) -> bool:
    """Whether an entry runs the script, wherever it is."""
    if not isinstance(value, dict):
        return False
    args = value.get("args")
    words = [value.get("command"), *(args if isinstance(args, list) else ())]
    return any(isinstance(one, str) and f"/bin/{MCP_SCRIPT}" in one for one in words)


class ClaudeServersEdit(JsonEdit):
    """The server in ``~/.claude.json``: one file for the user and for each of the user's projects.

    Claude Code keeps its own state there and writes the file often.
    """

    def __init__(self, path: Path, project: str | None, entry: object) -> None:
        above = () if project is None else ("projects", project)
        super().__init__(path, (Addition((*above, SERVERS, SERVER), entry),), is_our_server)

    def keeping(self, text: str, containers: Containers) -> Edit:
        """With the registrations of other scopes and projects."""
        del containers
        known = {one.path for one in self.additions}
        others = [
            Addition(path, found)
            for path in self._places(text)
            if path not in known and is_our_server(found := settings_json.value_at(text, path))
        ]
        kept = ClaudeServersEdit(self.path, None, None)
        kept.additions = (*others, *self.additions)
        return kept

    def _places(self, text: str) -> list[tuple[str, ...]]:
        projects = settings_json.value_at(text, ("projects",))
        named: Sequence[str] = list(projects) if isinstance(projects, dict) else ()
        own = [(SERVERS, SERVER), *(("projects", one, SERVERS, SERVER) for one in named)]
        return list(dict.fromkeys((*(one.path for one in self.additions), *own)))
