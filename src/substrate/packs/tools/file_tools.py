"""The tools that read and write files of the tree: read, write, edit, list, glob, apply_patch."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
from collections.abc import Callable
from functools import wraps

from substrate.model import PatchError, RelPath, patch_changes
from substrate.packs.replay import to_name
from substrate.packs.tools.confined_tree import ConfinedTree, TreeError
from substrate.packs.tools.registry import (
    Parameters,
    Produced,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    number_of,
    text_of,
)

_PATH_NAMES = ("path", "file_path", "absolute_path", "filePath", "filename", "notebook_path")
_DIRECTORY_NAMES = ("path", "dir_path", "directory", "target_directory")
#: Files above this size are compared as they are, not in the formats of each agent.
_FORMS_CAP = 1 << 20
#: The largest file to edit or patch: it is kept in memory.
_EDIT_CAP = 64 << 20


def _told(tool: Callable[[ToolContext, str, Parameters], ToolResult]) -> Tool:
    """Turn a path error of the tree into a failure of the step, with the same message."""

    @wraps(tool)
    def wrapped(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
        try:
            return tool(context, name, parameters)
        except TreeError as error:
            raise ToolError(str(error)) from error

    return wrapped


@_told
def read_file(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    path = _path(context, parameters)
    cap = context.limits.output_bytes
    if context.tree.size(path) > _FORMS_CAP:
        return ToolResult(Produced(stream=lambda: context.tree.chunks(path, cap)))
    data = context.tree.read(path, cap)
    first, count = number_of(parameters, "offset"), number_of(parameters, "limit")
    lines = data.split(b"\n")
    also: list[bytes] = []
    if first is not None or count is not None:
        # Claude counts lines from 1, Gemini from 0.
        for start in {max((first or 0) - 1, 0), max(first or 0, 0)}:
            part = lines[start : start + count] if count is not None else lines[start:]
            also += [b"\n".join(part), b"\n".join(part) + b"\n", *_numbered(part, start + 1)]
    else:
        also += _numbered(lines, 1)
        if lines[-1] == b"":
            also += [*_numbered(lines[:-1], 1), data.rstrip(b"\n")]
    return ToolResult(Produced(data), tuple(also))


def _numbered(lines: list[bytes], first: int) -> list[bytes]:
    """``1<tab>text``, as Claude Code shows a file now; ``     1→text``, as it did before."""
    now = b"\n".join(b"%d\t%s" % (n, line) for n, line in enumerate(lines, start=first))
    before = b"\n".join(f"{n:6d}→".encode() + line for n, line in enumerate(lines, start=first))
    cat = b"\n".join(b"%6d\t%s" % (n, line) for n, line in enumerate(lines, start=first))
    return [now, before, cat]


@_told
def write_file(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    content = text_of(parameters, "content", "file_text", "contents")
    data = content.encode("utf-8", "surrogateescape")
    context.tree.write(_path(context, parameters), data)
    return ToolResult(Produced(data), only_says_done=True)


@_told
def edit_file(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    path = _path(context, parameters)
    edits = parameters.get("edits")
    if edits is None:
        edits = [parameters]
    if not isinstance(edits, list) or not all(isinstance(edit, dict) for edit in edits):
        raise ToolError("parameter edits is not a list of objects")
    data: bytes | None = None
    if context.tree.kind(path):
        data = context.tree.read(path, _EDIT_CAP)
    for edit in edits:
        data = _edited(path, data, edit)
    context.tree.write(path, data or b"")
    return ToolResult(Produced(data or b""), only_says_done=True)


def _edited(path: RelPath, data: bytes | None, edit: Parameters) -> bytes:
    old = text_of(edit, "old", "old_string", "old_str").encode("utf-8", "surrogateescape")
    new = text_of(edit, "new", "new_string", "new_str").encode("utf-8", "surrogateescape")
    if not old and not data:
        return new  # agents create a file with such an edit
    if data is None:
        raise ToolError(f"{to_name(path)} is not in the replayed tree")
    count = data.count(old) if old else 0
    if not count:
        raise ToolError(f"the text to be replaced is not in {to_name(path)}")
    everywhere = edit.get("replace_all") is True or edit.get("expected_replacements") == count
    if count > 1 and not everywhere:
        raise ToolError(f"the text to be replaced is {count} times in {to_name(path)}")
    return data.replace(old, new)


@_told
def list_dir(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    path = context.tree.locate(
        text_of(parameters, *_DIRECTORY_NAMES, default="."), _cwd(parameters)
    )
    found = context.tree.names(path)
    names = [os.path.basename(item.path) for item in found]
    marked = [
        name + b"/" if item.is_directory else name for name, item in zip(names, found, strict=True)
    ]
    also = [b"".join(line + b"\n" for line in marked)]
    for shown in (names, [name for name in names if not name.startswith(b".")]):
        also += [b"\n".join(shown), b"".join(line + b"\n" for line in shown)]
        also.append(json.dumps([to_name(name) for name in shown]).encode())
    return ToolResult(Produced(b"\n".join(marked)), tuple(also), unordered=True)


@_told
def glob(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    at = context.tree.locate(text_of(parameters, *_DIRECTORY_NAMES, default="."), _cwd(parameters))
    wanted = pattern_of(text_of(parameters, "pattern"))
    prefix = at + b"/" if at else b""
    found = [
        path for path in context.tree.files(at) if wanted.fullmatch(to_name(path[len(prefix) :]))
    ]
    return _paths_result(context.tree, found)


def _paths_result(tree: ConfinedTree, found: list[RelPath]) -> ToolResult:
    """A list of files: relative, or absolute at the recorded location; agents sort it by time."""
    relative = b"\n".join(found)
    also = [relative + b"\n" if found else b""]
    if tree.recorded_root:
        root = os.fsencode(tree.recorded_root).rstrip(b"/") + b"/"
        absolute = b"\n".join(root + path for path in found)
        also += [absolute, absolute + b"\n"]
    for form in (relative, *also[1:2]):
        count = len(found)
        also.append(b"Found %d file%s\n" % (count, b"" if count == 1 else b"s") + form)
    if not found:
        also += [b"No files found", b"No matches found"]
    return ToolResult(Produced(relative), tuple(also), unordered=True)


def pattern_of(text: str) -> re.Pattern[str]:
    """A glob as agents write it: ``**/`` any directories, ``{a,b}`` either, ``*`` no slash."""
    out = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            out.append("(?:[^/]+/)*")
            at += 3
        elif text.startswith("**", at):
            out.append(".*")
            at += 2
        elif text[at] == "{" and "}" in text[at:]:
            end = text.index("}", at)
            options = "|".join(pattern_of(part).pattern for part in text[at + 1 : end].split(","))
            out.append(f"(?:{options})")
            at = end + 1
        elif text[at] == "[" and "]" in text[at:]:
            end = text.index("]", at)
            one = fnmatch.translate(text[at : end + 1])
            out.append(one.removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z"))
            at = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(text[at]) or re.escape(text[at]))
            at += 1
    return re.compile("".join(out), re.DOTALL)


@_told
def apply_patch(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    text = text_of(parameters, "input", "patch", "arguments")
    cwd = _cwd(parameters)

    def read(path: str) -> str:
        return context.tree.read(context.tree.locate(path, cwd), _EDIT_CAP).decode(
            "utf-8", "surrogateescape"
        )

    try:
        changes = patch_changes(text, read)
    except PatchError as error:
        raise ToolError(str(error)) from error
    for path, content in changes:
        place = context.tree.locate(path, cwd)
        if content is None:
            context.tree.remove(place)
        else:
            context.tree.write(place, content.encode("utf-8", "surrogateescape"))
    return ToolResult(Produced(b""), only_says_done=True)


def _path(context: ToolContext, parameters: Parameters) -> RelPath:
    return context.tree.locate(text_of(parameters, *_PATH_NAMES), _cwd(parameters))


def _cwd(parameters: Parameters) -> str:
    return text_of(parameters, "cwd", "workdir", default="")


def is_directory(tree: ConfinedTree, path: RelPath) -> bool:
    return tree.kind(path) == stat.S_IFDIR
