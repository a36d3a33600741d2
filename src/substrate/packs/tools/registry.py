"""The tools a replay can use, by the names that logs and agents give them.

    read_file{path}  write_file{path,content}  edit_file{path,old,new}  list_dir{path}
    glob{pattern,path}  search{pattern,path}  apply_patch{input}  shell{command}
    apply_changes{changes}: applies changes that others made between a session's commands

The names that real agents use for these (`Read`, `Bash`, `exec_command`, `replace`, …) are in
`tool_names`; a user's own tools are executables with the protocol of `external_tools`. A step with
any other tool fails, and the error names the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.packs.tools.confined_tree import ConfinedTree
from substrate.packs.tools.tool_names import BUILT_IN

Parameters = Mapping[str, object]


class ToolError(Exception):
    """The tool, and with it the step, has failed; the message says why."""


class Limits(NamedTuple):
    #: For one step; a step that takes longer fails.
    timeout_s: float = 600.0
    #: The most bytes that a step may print or read.
    output_bytes: int = 1 << 30


class Produced(NamedTuple):
    """A tool's result: in memory, in a file of the replay, or as a stream."""

    data: bytes = b""
    path: Path | None = None
    stream: Callable[[], Iterator[bytes]] | None = None

    def chunks(self) -> Iterator[bytes]:
        """The whole result, in chunks."""
        if self.stream is not None:
            yield from self.stream()
        elif self.path is None:
            yield self.data
        else:
            with self.path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    yield chunk


class ToolResult(NamedTuple):
    produced: Produced
    #: The same result in the formats that agents are known to record.
    also: tuple[bytes, ...] = ()
    #: The text is only an acknowledgement in the agent's own words: do not compare it.
    only_says_done: bool = False
    #: The order of the lines does not matter.
    unordered: bool = False
    #: A command's exit status.
    exit: int | None = None
    #: The hosts it reached over the network, if that was observed.
    scopes: tuple[str, ...] = ()
    #: What it printed on stderr, to explain a failure.
    stderr: bytes = b""
    #: Why the program could not be started; then `exit` is 126 or 127.
    not_started: str = ""


class ShellCall(NamedTuple):
    """A command to run in the replayed tree."""

    #: A line for the shell, or an argument list.
    command: str | tuple[str, ...]
    #: As recorded; empty is the root of the tree.
    cwd: str = ""
    #: Exactly these variables, if they were recorded; `None`: unknown.
    env: Mapping[str, str] | None = None
    stdin: bytes = b""
    timeout_s: float = 600.0
    output_bytes: int = 1 << 30
    umask: int | None = None
    #: A user's own tool: it runs outside the world, in the scratch directory.
    outside: bool = False


class ShellDone(NamedTuple):
    exit: int
    timed_out: bool
    #: Each as it was printed; `merged` in the order of arrival.
    stdout: Path
    stderr: Path
    merged: Path
    #: Why it could not be started, or was ended.
    problem: str = ""
    scopes: tuple[str, ...] = ()
    #: The program does not exist, or is not executable: `problem` says which.
    is_not_started: bool = False


class ToolContext(NamedTuple):
    """What a tool may use."""

    tree: ConfinedTree
    run: Callable[[ShellCall], ShellDone]
    limits: Limits
    #: The content of an address in the pack's store, verified.
    content: Callable[[str], bytes]


#: Given what it may use, the name it was called by, and its parameters.
Tool = Callable[[ToolContext, str, Parameters], ToolResult]


class Registry:
    """Tools by name; a user's own tools take precedence over the built-in ones."""

    def __init__(self, own: Mapping[str, Tool] | None = None) -> None:
        self._own = dict(own or {})

    def find(self, name: str) -> Tool | None:
        if name in self._own:
            return self._own[name]
        built_in = BUILT_IN.get(name)
        return _built_in(built_in) if built_in else None


def _built_in(name: str) -> Tool:
    from substrate.packs.tools import apply_changes_tool, file_tools, search_tool, shell_tool

    found: dict[str, Tool] = {
        "read_file": file_tools.read_file,
        "write_file": file_tools.write_file,
        "edit_file": file_tools.edit_file,
        "list_dir": file_tools.list_dir,
        "glob": file_tools.glob,
        "apply_patch": file_tools.apply_patch,
        "search": search_tool.search,
        "shell": shell_tool.shell,
        "apply_changes": apply_changes_tool.apply_changes,
    }
    return found[name]


# -- parameters -----------------------------------------------------------------------------------


def text_of(parameters: Parameters, *names: str, default: str | None = None) -> str:
    """The first of these parameters that is set, which must be a string."""
    for name in names:
        value = parameters.get(name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise ToolError(f"parameter {name} is not a string")
        return value
    if default is not None:
        return default
    raise ToolError(f"parameter {names[0]} is missing")


def number_of(parameters: Parameters, name: str) -> int | None:
    value = parameters.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolError(f"parameter {name} is not a whole number")
    return value
