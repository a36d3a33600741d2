"""The tool `search`: lines that match, in files of the tree.

The pattern comes from the pack and may take forever to match. So a child process matches it, and
is killed when the step's time is up.
"""

from __future__ import annotations

import os
import re

from substrate.model import RelPath
from substrate.packs.replay import to_name
from substrate.packs.tools.confined_tree import ConfinedTree, TreeError
from substrate.packs.tools.file_tools import pattern_of
from substrate.packs.tools.registry import (
    Parameters,
    Produced,
    ToolContext,
    ToolError,
    ToolResult,
    text_of,
)
from substrate.system.process import fork_workers

_FILE_CAP = 16 << 20
#: (path, line number, line)
Match = tuple[bytes, int, bytes]


def search(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    """Lines that match a regular expression, as ``path:line:text``."""
    wanted = _pattern(parameters)
    cwd = text_of(parameters, "cwd", default="")
    try:
        at = context.tree.locate(text_of(parameters, "path", "dir_path", default="."), cwd)
        files = _files(context.tree, at, text_of(parameters, "glob", "include", default=""))
    except TreeError as error:
        raise ToolError(str(error)) from error
    found = _within(context, files, wanted)
    return _result(context.tree, found)


def _pattern(parameters: Parameters) -> re.Pattern[bytes]:
    text = text_of(parameters, "pattern", "query", "regex")
    flags = re.IGNORECASE if parameters.get("-i") is True else 0
    if parameters.get("literal") is True:
        text = re.escape(text)
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"), flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"the pattern cannot be read: {error}") from None


def _files(tree: ConfinedTree, at: RelPath, only: str) -> list[RelPath]:
    wanted = pattern_of(only) if only else None
    out = []
    for path in tree.files(at):
        name = to_name(path)
        if wanted and not (wanted.fullmatch(name) or wanted.fullmatch(os.path.basename(name))):
            continue
        out.append(path)
    if not out and tree.kind(at) == 0:
        raise TreeError(f"{to_name(at)} is not in the replayed tree")
    return out


def _within(context: ToolContext, files: list[RelPath], wanted: re.Pattern[bytes]) -> list[Match]:
    def work() -> list[Match]:
        return [match for path in files for match in _matches(context.tree, path, wanted)]

    child = fork_workers.fork(work) if fork_workers.can_fork() else None
    if child is None:
        return work()
    answer = child.answer_within(context.limits.timeout_s)
    if not isinstance(answer, list):
        raise ToolError(f"the search did not end within {context.limits.timeout_s:g} s")
    return [(bytes(path), int(number), bytes(line)) for path, number, line in answer]


def _matches(tree: ConfinedTree, path: RelPath, wanted: re.Pattern[bytes]) -> list[Match]:
    try:
        data = tree.read(path, _FILE_CAP)
    except TreeError:
        return []
    if b"\0" in data[:8192]:
        return []
    lines = data.split(b"\n")
    return [(path, n, line) for n, line in enumerate(lines, start=1) if wanted.search(line)]


def _result(tree: ConfinedTree, found: list[Match]) -> ToolResult:
    lines = [b"%s:%d:%s" % match for match in found]
    paths = list(dict.fromkeys(path for path, _, _ in found))
    also = [b"".join(line + b"\n" for line in lines), b"\n".join(line for _, _, line in found)]
    if len(paths) == 1:
        also.append(b"\n".join(b"%d:%s" % (number, line) for _, number, line in found))
    roots = [b""]
    if tree.recorded_root:
        roots.append(os.fsencode(tree.recorded_root).rstrip(b"/") + b"/")
    for root in roots:
        also.append(b"\n".join(root + line for line in lines))
        also.append(b"\n".join(b"%s%s:%s" % (root, path, line) for path, _, line in found))
        listed = b"\n".join(root + path for path in paths)
        count = len(paths)
        heading = b"Found %d file%s\n" % (count, b"" if count == 1 else b"s")
        also += [listed, listed + b"\n", heading + listed]
    if not found:
        also += [b"No matches found", b"No files found"]
    return ToolResult(Produced(b"\n".join(lines)), tuple(dict.fromkeys(also)), unordered=True)
