"""opencode, from its documentation (JavaScript plugins): untested."""

from __future__ import annotations

import json
from pathlib import Path

from substrate.coding_agents.agent import Agent, Scope, Surroundings
from substrate.coding_agents.settings_edit import Edit, WholeFileEdit

_MARK = "Written by `substrate connect opencode`"
_PLUGIN = f"""\
// {_MARK}; `substrate disconnect opencode` removes it.
// Reports tool calls to Substrate. It never throws: opencode goes on without Substrate.
import {{ spawnSync }} from "node:child_process"

const command = %s
const asked = new Map() // the arguments of calls that run

const report = (event, details) => {{
  try {{
    const input = JSON.stringify({{ hook_event_name: event, ...details }})
    const stdio = ["pipe", "ignore", "ignore"]
    spawnSync("sh", ["-c", command], {{ input, stdio, timeout: 1000 }})
  }} catch {{}}
}}

export const Substrate = async ({{ directory }}) => ({{
  event: async ({{ event }}) => {{
    if (event.type === "session.created" || event.type === "session.idle") {{
      report(event.type, {{ cwd: directory, properties: event.properties }})
    }}
  }},
  "chat.message": async (input, output) => {{
    const texts = output.parts.filter((one) => one.type === "text").map((one) => one.text)
    report("chat.message", {{ cwd: directory, ...input, text: texts.join("\\n") }})
  }},
  "tool.execute.before": async (input, output) => {{
    asked.set(input.callID, output.args)
    report("tool.execute.before", {{ cwd: directory, ...input, tool_input: output.args }})
  }},
  "tool.execute.after": async (input, output) => {{
    const args = asked.get(input.callID) ?? input.args
    asked.delete(input.callID)
    report("tool.execute.after", {{ cwd: directory, ...input, tool_input: args }})
  }},
}})
"""


class OpenCode(Agent):
    """Plugins in ``~/.config/opencode/plugins`` or the project's ``.opencode/plugins``."""

    name = "opencode"
    title = "opencode"
    programs = ("opencode",)
    is_tested = False
    why_no_world = "opencode has no shell prefix, and its commands are not rewritten"

    def settings_directory(self, around: Surroundings) -> Path:
        return around.directory("XDG_CONFIG_HOME", ".config") / "opencode"

    def edits(self, around: Surroundings, scope: Scope) -> tuple[Edit, ...]:
        if scope == "local":
            return ()
        directory = self.settings_directory(around)
        if scope == "project":
            directory = around.project / ".opencode"
        content = _PLUGIN % json.dumps(self.hook_command(around, scope))
        return (WholeFileEdit(directory / "plugins" / "substrate.js", content, _MARK),)

    def instructions(self, around: Surroundings, scope: Scope) -> Path | None:
        if scope == "user":
            return self.settings_directory(around) / "AGENTS.md"
        return around.project / "AGENTS.md" if scope == "project" else None
