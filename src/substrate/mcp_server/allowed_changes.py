"""What the calling agent may change: its own session's work, unless the user allowed more.

MCP carries no session id. The session is the one that the environment names, or that a hook of the
agent which started this server announced last: `/clear` begins a new one in the same process.
Without a session only the reading tools work. This guards
against mistakes, not against a hostile process of the same user: such a process can call
`substrate` itself.
"""

from __future__ import annotations

from contextlib import suppress

from substrate.coding_agents import session_of_caller
from substrate.mcp_server.command_line import CommandLine, Document, RefusedCallError
from substrate.system import Environment

_OWN_VARIABLE = "SUBSTRATE_SESSION_ID"
#: The variables in which coding agents name their own session; hooks announced which of ours it is.
_AGENTS_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "CODEX_SESSION_ID")


class OwnWork:
    """The agent's session, and the check that an entry or a world belongs to it."""

    def __init__(
        self, cli: CommandLine, environment: Environment, *, may_take_back_any: bool
    ) -> None:
        self._cli = cli
        self._substrate_home = environment.substrate_home
        self._named = environment.get(_OWN_VARIABLE) or ""
        self._agents_own = next(filter(None, map(environment.get, _AGENTS_VARIABLES)), "")
        #: The agent's own session id, and ours for it.
        self._known: tuple[str, str] | None = None
        self._any = may_take_back_any

    @property
    def session(self) -> str:
        """The agent's session; raises `RefusedCallError` if it is not known."""
        found = self._named or self._of_agent()
        if not found:
            raise RefusedCallError(
                "refused",
                "it is not known which session this agent works in, so nothing was changed",
                "reading tools work; ask the user to run `substrate connect`, which announces"
                " the agent's session, and to restart the agent",
            )
        return found

    def _of_agent(self) -> str:
        agents_own = session_of_caller(self._substrate_home) or self._agents_own
        if agents_own and (self._known is None or self._known[0] != agents_own):
            words = ("session", "current", "--session", agents_own)
            with suppress(RefusedCallError):  # the agent has recorded nothing here yet
                self._known = (agents_own, self._cli.substrate(*words)["session_id"])
        return self._known[1] if self._known is not None and self._known[0] == agents_own else ""

    def check_entry(self, entry_id: str) -> Document:
        """The record of an entry of this session; raises `RefusedCallError` for another's."""
        session = self.session
        entry = self._cli.substrate("show", "--session", session, "--", entry_id)
        if "command_id" not in entry:
            raise RefusedCallError(
                "usage", f"{entry_id} is not one command or edit", "call log, then pass an id c-…"
            )
        self._check(entry, f"{entry.get('command_id', entry_id)} ({entry.get('command', '')})")
        return entry

    def check_world(self, world_id: str) -> Document:
        """The record of a held world of this session; raises `RefusedCallError`."""
        _ = self.session
        world = self._cli.substrate("world", "diff", "--", world_id)
        self._check(world, f"{world.get('world_id', world_id)} ({world.get('command', '')})")
        return world

    def _check(self, record: Document, what: str) -> None:
        owner = record.get("session_id")
        if self._any or owner == self.session:
            return
        whose = f"belongs to session {owner}" if owner else "was made outside Substrate"
        raise RefusedCallError(
            "refused",
            f"{what} {whose}, not to your session {self.session}; nothing was changed",
            "ask the user, who can run the command, or set agents.may_take_back",
        )
