"""The small shell scripts that agents' settings name, and the shims for other agents.

They hold the absolute path of the installed `substrate`, and settings name the script and not the
program: when Substrate is uninstalled, the agent's commands and hooks go on without it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from substrate.coding_agents.agent import HOOK_SCRIPT, SHELL_SCRIPT, Surroundings
from substrate.coding_agents.mcp_registration import MCP_SCRIPT
from substrate.errors import MissingDependencyError, RefusedError, UsageError
from substrate.system.files import read_bytes_or_none, remove_tree, write_atomic

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SHELLS = ("bash", "sh")
_PLACEHOLDER = re.compile("@(home|substrate|bin|real|shell|name)@")

_HEADER = """\
#!/bin/sh
# Written by `substrate connect`; a new `substrate connect` writes it again.
"""

#: `exec` leaves no process in between: signals and the exit status are the command's own.
_SHELL = """\
# Claude Code runs its shell commands, hooks and MCP servers by this script: SCRIPT COMMAND.
[ $# -ne 1 ] || set -- -c "$1"
substrate=@substrate@
@home@
[ ! -x "$substrate" ] || exec "$substrate" "$@"

# Substrate is gone. Run the command anyway, unless the user requires a world for every command.
if [ "${SUBSTRATE_WORLD:-}" = enabled ]; then
    echo "substrate: error: $substrate is missing, and SUBSTRATE_WORLD=enabled requires it" >&2
    exit 125
fi
# Say so once in each session.
session=${CLAUDE_CODE_SESSION_ID:-unknown}
said=@bin@/.said-missing
if [ "$(cat "$said" 2>/dev/null)" != "$session" ]; then
    { printf '%s\\n' "$session" >"$said"; } 2>/dev/null
    echo "substrate: note: $substrate is missing: commands run unrecorded. Install Substrate" \\
        "again, or remove CLAUDE_CODE_SHELL_PREFIX from Claude Code's settings." >&2
fi
exec bash "$@"
"""

#: A hook must not fail: exit status 2 would block the agent, so a version of Substrate without
#: the verb must not be able to report its usage error.
_HOOK = """\
# Coding agents run this for each hook: SCRIPT AGENT, with the hook's JSON on stdin.
[ -x @substrate@ ] || exit 0
@home@
@substrate@ hook "$@" 2>/dev/null
exit 0
"""

#: stdin and stdout are the protocol's: a message goes to stderr, which agents show or log.
_MCP = """\
# Coding agents run this as their MCP server.
substrate=@substrate@
@home@
[ ! -x "$substrate" ] || exec "$substrate" mcp
echo "substrate: error: $substrate is missing. Install Substrate again, or remove this server" >&2
exit 1
"""

#: For agents that still run: they read their settings before `substrate disconnect`.
_SHELL_AFTERWARDS = """\
# Claude Code was disconnected: sessions that still run execute their commands without Substrate.
[ $# -ne 1 ] || set -- -c "$1"
exec bash "$@"
"""
_HOOK_AFTERWARDS = """\
# The coding agents were disconnected: hooks of sessions that still run do nothing.
exit 0
"""

_MCP_AFTERWARDS = """\
# The coding agents were disconnected.
exit 1
"""

_SHIM = """\
# @shell@ for the agent @name@: `-c COMMAND` is recorded, all else goes to @real@.
# A command that already runs in Substrate is not recorded a second time.
substrate=@substrate@
case "${1:-}" in
    -c | -[a-z]c | -[a-z][a-z]c)
        if [ -x "$substrate" ] && [ -z "${SUBSTRATE_PARENT_SPAN:-}" ]; then
            @home@
            SUBSTRATE_AGENT_ID=@name@ exec "$substrate" run -- @real@ "$@"
        fi
        ;;
esac
exec @real@ "$@"
"""


def installed_program() -> Path:
    """The absolute path of the installed `substrate`."""
    beside = Path(sys.executable).with_name("substrate")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("substrate")
    if found is None:
        raise MissingDependencyError(
            "no installed `substrate` was found: agents need a program to start",
            hint="pipx install substrate-recorder, then try again",
        )
    return Path(os.path.abspath(found))


def scripts(around: Surroundings, program: Path) -> dict[Path, str]:
    """The scripts of connected agents and their contents."""
    return {
        around.bin / SHELL_SCRIPT: _filled(_SHELL, around, program),
        around.bin / HOOK_SCRIPT: _filled(_HOOK, around, program),
        around.bin / MCP_SCRIPT: _filled(_MCP, around, program),
    }


def write_scripts(around: Surroundings, program: Path) -> None:
    """Write the scripts, where they differ."""
    _write_all(scripts(around, program))
    (around.bin / ".said-missing").unlink(missing_ok=True)


def neutralize_scripts(around: Surroundings) -> None:
    """After the last disconnect: the scripts stay, for agents that still run, and do nothing."""
    for name, body in (
        (SHELL_SCRIPT, _SHELL_AFTERWARDS),
        (HOOK_SCRIPT, _HOOK_AFTERWARDS),
        (MCP_SCRIPT, _MCP_AFTERWARDS),
    ):
        if (around.bin / name).exists():
            _write_all({around.bin / name: _HEADER + body})


def why_not_working(around: Surroundings, name: str) -> str:
    """Empty if the script runs an installed `substrate`; otherwise why it does not."""
    data = read_bytes_or_none(around.bin / name)
    if data is None:
        return f"{around.bin / name} is missing: connect again"
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith(("substrate=", "[ -x ")):
            program = shlex.split(line.removeprefix("substrate=").removeprefix("[ -x "))[0]
            return "" if os.access(program, os.X_OK) else f"{program} is missing: connect again"
    return f"{around.bin / name} was disconnected: connect again"


def shim_directory(around: Surroundings, name: str) -> Path:
    """Where the shims of an agent are; `UsageError` if the name does not fit a directory."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be an agent's name", hint="use letters, digits, '.', '_' and '-'"
        )
    return around.substrate_home / "shims" / name


def write_shims(around: Surroundings, name: str, program: Path, *, dry_run: bool = False) -> Path:
    """Make `bash` and `sh` for the agent `name`; returns their directory."""
    directory = shim_directory(around, name)
    shells = {}
    for shell in _SHELLS:
        real = _real_shell(around, shell)
        if real is not None:
            more = {"real": shlex.quote(real), "shell": shell, "name": name}
            shells[directory / shell] = _filled(_SHIM, around, program, more)
    if not dry_run:
        _write_all(shells)
    return directory


def shim_names(around: Surroundings) -> list[str]:
    """The agents that have shims."""
    directory = around.substrate_home / "shims"
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def remove_shims(around: Surroundings, name: str) -> None:
    """Remove the shims of an agent."""
    remove_tree(shim_directory(around, name))


def _real_shell(around: Surroundings, shell: str) -> str | None:
    """The first such shell on PATH that is no shim."""
    shims = str(around.substrate_home / "shims") + os.sep
    path = around.variables.get("PATH", os.defpath).split(os.pathsep)
    there = [one for one in path if not (os.path.abspath(one) + os.sep).startswith(shims)]
    return shutil.which(shell, path=os.pathsep.join(there))


def _filled(
    body: str, around: Surroundings, program: Path, more: Mapping[str, str] | None = None
) -> str:
    """The script with all values in place. One pass: a path may look like a placeholder."""
    for path in (program, around.substrate_home):
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise RefusedError(f"{path!r} is not UTF-8: agents cannot name it") from None
    values = {
        "home": f"export SUBSTRATE_HOME={shlex.quote(str(around.substrate_home))}",
        "substrate": shlex.quote(str(program)),
        "bin": shlex.quote(str(around.bin)),
        **(more or {}),
    }
    lines = (_HEADER + body).splitlines(keepends=True)
    if not around.variables.get("SUBSTRATE_HOME"):  # otherwise the agent's environment may lack it
        lines = [line for line in lines if line.strip() != "@home@"]
    return _PLACEHOLDER.sub(lambda found: values[found[1]], "".join(lines))


def _write_all(contents: dict[Path, str]) -> None:
    for path, content in contents.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if read_bytes_or_none(path) != content.encode() or not os.access(path, os.X_OK):
            write_atomic(path, content.encode(), mode=0o700)
