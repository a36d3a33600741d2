"""The only reader of the process environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast


class Environment(NamedTuple):
    """What the environment said when it was read; nothing here changes afterwards."""

    #: The user's home directory; `None` where nobody can say.
    home: Path | None
    #: ``SUBSTRATE_HOME``, else ``~/.substrate``, else a directory of our own in the temp directory.
    substrate_home: Path
    #: ``SUBSTRATE_TRACE``, else ``trace.jsonl`` in `substrate_home`.
    trace_path: Path
    #: ``SUBSTRATE_SESSION_ID``, `None` if a session should be found or opened.
    session_id: str | None
    #: ``SUBSTRATE_AGENT_ID``, else what a coding agent says of itself, else ``"human"``.
    agent_id: str
    #: ``SUBSTRATE_WORLD``: ``"enabled"``, ``"disabled"``, or `None` if it was not said.
    world: str | None
    #: ``SUBSTRATE_AGENT=off`` runs everything in process.
    agent_enabled: bool
    #: ``SUBSTRATE_PARENT_SPAN``: set for commands we run, so that a nested call knows its parent.
    parent_span: str | None
    #: ``NO_COLOR`` was set to something.
    no_color: bool
    #: Everything, for the commands we run. It holds secrets: never write it down.
    variables: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """One variable; set but empty counts as not set."""
        return self.variables.get(name) or None

    @property
    def columns(self) -> int:
        """``COLUMNS``: how wide pages for people are to be; 0 if it was not said."""
        said = self.get("COLUMNS") or ""
        return int(said) if said.isascii() and said.isdecimal() else 0


_last: tuple[Mapping[object, object], Environment] | None = None


def current() -> Environment:
    """Read the environment of this process."""
    global _last
    # As the system has it: decoding all of it takes a while, and a command asks many times.
    raw = cast("Mapping[object, object]", getattr(os.environ, "_data", os.environ))
    if _last is None or _last[0] != raw:
        _last = dict(raw), parse(_decoded(raw))
    return _last[1]


def _decoded(raw: Mapping[object, object]) -> dict[str, str]:
    """As `os.environ` has it, without looking each name up there again."""
    if os.name == "nt":
        return dict(os.environ)
    decode = os.fsdecode
    return {decode(cast(bytes, name)): decode(cast(bytes, raw[name])) for name in raw}


def replace(variables: Mapping[bytes, bytes]) -> None:
    """Make `variables` the environment of this process, for whom we stand in."""
    # Most of it is what we have already: only what differs is given to the system again.
    for name in [name for name in os.environb if name not in variables]:
        del os.environb[name]
    for name, value in variables.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def forget(name: str) -> None:
    """Take a variable out that nobody set for us."""
    os.environ.pop(name, None)


def parse(variables: Mapping[str, str]) -> Environment:
    """The same from any mapping."""

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
        agent_enabled=(get("SUBSTRATE_AGENT") or "").lower() != "off",
        parent_span=get("SUBSTRATE_PARENT_SPAN"),
        no_color=get("NO_COLOR") is not None,
        variables=variables,
    )


def _coding_agent(variables: Mapping[str, str]) -> str:
    """Whose tool call this is: Claude Code says ``claude-code_2-1-325_agent``, Codex only names its
    session. A name without a version, so that a session outlasts an update."""
    named = variables.get("AI_AGENT", "").partition("_")[0]
    return named or ("codex" if variables.get("CODEX_SESSION_ID") else "")


def _home(variables: Mapping[str, str]) -> Path | None:
    named = variables.get("HOME") or variables.get("USERPROFILE")
    if named:
        # A relative HOME would name another directory after every chdir.
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
    """Without a home: a directory that carries our uid, which others cannot take for theirs."""
    temp = variables.get("TMPDIR") or variables.get("TEMP") or os.path.join(os.sep, "tmp")
    owner = str(os.getuid()) if hasattr(os, "getuid") else "user"
    return Path(os.path.abspath(temp)) / f"substrate-{owner}"
