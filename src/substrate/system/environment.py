"""The only reader of the process environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast


class Environment(NamedTuple):
    """A snapshot of the environment; it never changes afterwards."""

    #: The user's home directory; `None` if it is unknown.
    home: Path | None
    #: ``SUBSTRATE_HOME``, else ``~/.substrate``, else a directory with our uid in the temp
    #: directory.
    substrate_home: Path
    #: ``SUBSTRATE_TRACE``, else ``trace.jsonl`` in `substrate_home`.
    trace_path: Path
    #: ``SUBSTRATE_SESSION_ID``, `None` if a session should be found or opened.
    session_id: str | None
    #: ``SUBSTRATE_AGENT_ID``, else the coding agent's own variables, else ``"human"``.
    agent_id: str
    #: ``SUBSTRATE_WORLD``: ``"enabled"``, ``"disabled"``, or `None` if not set.
    world: str | None
    #: ``SUBSTRATE_DAEMON=off`` runs everything in process; `SUBSTRATE_AGENT` is its former name.
    daemon_enabled: bool
    #: ``SUBSTRATE_PARENT_SPAN``: set for commands we run, so that a nested call knows its parent.
    parent_span: str | None
    #: ``NO_COLOR`` is set and not empty.
    no_color: bool
    #: All variables, for the commands we run. They hold secrets: never write them to disk.
    variables: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """One variable; an empty value counts as not set."""
        return self.variables.get(name) or None

    @property
    def columns(self) -> int:
        """``COLUMNS``: the width of output for people; 0 if not set."""
        said = self.get("COLUMNS") or ""
        return int(said) if said.isascii() and said.isdecimal() else 0


class _Newest:
    """The last environment that was parsed, after the raw variables it was parsed from."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: tuple[Mapping[object, object], Environment] | None = None


_newest = _Newest()


def current() -> Environment:
    """Read the environment of this process."""
    # Compare the raw bytes: decoding the whole environment is slow, and a command asks many times.
    raw = cast("Mapping[object, object]", getattr(os.environ, "_data", os.environ))
    found = _newest.found
    if found is None or found[0] != raw:
        found = _newest.found = dict(raw), parse(_decoded(raw))
    return found[1]


def _decoded(raw: Mapping[object, object]) -> dict[str, str]:
    """The same as `os.environ`, without a lookup per name."""
    if os.name == "nt":
        return dict(os.environ)
    decode = os.fsdecode
    return {decode(cast(bytes, name)): decode(cast(bytes, raw[name])) for name in raw}


def replace(variables: Mapping[bytes, bytes]) -> None:
    """Make `variables` the environment of this process, which acts for another process."""
    # Most variables are already the same: set only those that differ.
    for name in [name for name in os.environb if name not in variables]:
        del os.environb[name]
    for name, value in variables.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def forget(name: str) -> None:
    """Remove a variable that the caller of this process did not set."""
    os.environ.pop(name, None)


def parse(variables: Mapping[str, str]) -> Environment:
    """Build an `Environment` from any mapping."""

    def get(name: str) -> str | None:
        return variables.get(name) or None

    home = _home(variables)
    named = get("SUBSTRATE_HOME")
    if named is not None:
        substrate_home = Path(os.path.abspath(named))
    elif home is not None:
        substrate_home = home / ".substrate"
    else:
        substrate_home = _homeless(variables)
    trace = get("SUBSTRATE_TRACE")
    world = (get("SUBSTRATE_WORLD") or "").lower()
    return Environment(
        home=home,
        substrate_home=substrate_home,
        trace_path=Path(os.path.abspath(trace)) if trace else substrate_home / "trace.jsonl",
        session_id=get("SUBSTRATE_SESSION_ID"),
        agent_id=get("SUBSTRATE_AGENT_ID") or _coding_agent(variables) or "human",
        world=world if world in ("enabled", "disabled") else None,
        daemon_enabled="off"
        not in ((get(name) or "").lower() for name in ("SUBSTRATE_DAEMON", "SUBSTRATE_AGENT")),
        parent_span=get("SUBSTRATE_PARENT_SPAN"),
        no_color=get("NO_COLOR") is not None,
        variables=variables,
    )


#: A coding agent sets these in the environment of its commands.
_AGENTS_BY_VARIABLE = {
    "CLAUDECODE": "claude-code",
    "GEMINI_CLI": "gemini-cli",
    "CURSOR_AGENT": "cursor",
}
#: Settings that Codex users have in their own shells.
_USERS_OWN = frozenset({"CODEX_HOME", "CODEX_API_KEY", "CODEX_SQLITE_HOME"})


def _coding_agent(variables: Mapping[str, str]) -> str:
    """The coding agent whose tool call this is, from the variables it sets.

    Claude Code sets ``claude-code_2-1-325_agent``: the version is cut off, so that a session
    continues after an update.
    """
    named = variables.get("AI_AGENT", "").partition("_")[0]
    if named:
        return named
    for name, agent in _AGENTS_BY_VARIABLE.items():
        if variables.get(name):
            return agent
    set_by_codex = (
        value
        for name, value in variables.items()
        if name.startswith("CODEX_") and name not in _USERS_OWN
    )
    return "codex" if any(set_by_codex) else ""


def _home(variables: Mapping[str, str]) -> Path | None:
    named = variables.get("HOME") or variables.get("USERPROFILE")
    if named:
        # A relative HOME would mean another directory after every chdir.
        return _absolute(named)
    try:
        import pwd
    except ImportError:
        return None
    try:
        found = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a uid without an account, as in many containers
        return None
    return _absolute(found)


def _absolute(text: str) -> Path | None:
    path = Path(text)
    return path if path.is_absolute() else None


def _homeless(variables: Mapping[str, str]) -> Path:
    """Without a home directory: a temporary directory with our uid in its name."""
    temp = variables.get("TMPDIR") or variables.get("TEMP") or os.path.join(os.sep, "tmp")
    owner = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Path(os.path.abspath(temp)) / f"substrate-{owner}"
