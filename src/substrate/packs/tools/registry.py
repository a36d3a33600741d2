"""The tools a replay can use, by the names that logs and agents give them.

    read_file{path}  write_file{path,content}  edit_file{path,old,new}  list_dir{path}
    glob{pattern,path}  search{pattern,path}  apply_patch{input}  shell{command}
    apply_changes{changes}: what others changed between a session's commands, put in place again

Real agents' names for these (`Read`, `Bash`, `exec_command`, `replace`, …) are in `tool_names`; a
user's own tools are executables that answer by `tool_protocol`. Nobody else's name is known: such a
step fails, naming the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.packs.confined_tree import ConfinedTree
from substrate.packs.tool_names import BUILT_IN

Parameters = Mapping[str, object]


class ToolError(Exception):
    """The tool could not do it; the message says why. The step has failed."""


class Limits(NamedTuple):
    #: Of one step; a step that takes longer has failed.
    timeout_s: float = 600.0
    #: More than this no step may print or read.
    output_bytes: int = 1 << 30


class Produced(NamedTuple):
    """What a tool gave back: in memory, in a file of the replay's own, or read where it stands."""

    data: bytes = b""
    path: Path | None = None
    stream: Callable[[], Iterator[bytes]] | None = None

    def chunks(self) -> Iterator[bytes]:
        """All of it, a piece at a time."""
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
    #: The same result as agents are known to write it down.
    also: tuple[bytes, ...] = ()
    #: Its words only say that it was done: they are the agent's own and are not compared.
    only_says_done: bool = False
    #: The order of the lines means nothing.
    unordered: bool = False
    #: A command's status.
    exit: int | None = None
    #: What it reached over the network, where somebody watched.
    scopes: tuple[str, ...] = ()
    #: What it printed on stderr, for whoever wants to know why.
    stderr: bytes = b""


class ShellCall(NamedTuple):
    """A command to run in the replayed tree."""

    #: A line for the shell, or an argument list.
    command: str | tuple[str, ...]
    #: As recorded; empty is the root of the tree.
    cwd: str = ""
    #: Exactly these variables, where they were recorded; `None`: nobody knows them.
    env: Mapping[str, str] | None = None
    stdin: bytes = b""
    timeout_s: float = 600.0
    output_bytes: int = 1 << 30
    umask: int | None = None
    #: A user's own tool: it runs beside the world, in the scratch directory.
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
    """Names and the tools that answer to them; a user's own come before the built-in ones."""

    def __init__(self, own: Mapping[str, Tool] | None = None) -> None:
        self._own = dict(own or {})

    def find(self, name: str) -> Tool | None:
        if name in self._own:
            return self._own[name]
        built_in = BUILT_IN.get(name)
        return _built_in(built_in) if built_in else None


def _built_in(name: str) -> Tool:
    from substrate.packs import tools_files, tools_recorded, tools_search, tools_shell

    found: dict[str, Tool] = {
        "read_file": tools_files.read_file,
        "write_file": tools_files.write_file,
        "edit_file": tools_files.edit_file,
        "list_dir": tools_files.list_dir,
        "glob": tools_files.glob,
        "apply_patch": tools_files.apply_patch,
        "search": tools_search.search,
        "shell": tools_shell.shell,
        "apply_changes": tools_recorded.apply_changes,
    }
    return found[name]


# -- parameters -----------------------------------------------------------------------------------


def text_of(parameters: Parameters, *names: str, default: str | None = None) -> str:
    """The first of these parameters that is there, which must be a string."""
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
