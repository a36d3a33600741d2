"""The tool `apply_changes`: changes made between a session's commands, but not by them.

Edits by a person, commands of another session, an undo: the session did not make these changes,
but its later commands saw them. Their content is in the pack, and a replay applies it.
"""

from __future__ import annotations

from substrate.model import RelPath, rel_path
from substrate.packs.format import is_ref
from substrate.packs.replay import from_text
from substrate.packs.tools.confined_tree import TreeError
from substrate.packs.tools.registry import Parameters, Produced, ToolContext, ToolError, ToolResult


def apply_changes(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    changes = parameters.get("changes")
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        raise ToolError("parameter changes is not a list of objects")
    try:
        # Deletions come first, deepest first, to make room for additions.
        gone = [change for change in changes if change.get("change") == "deleted"]
        for change in reversed(gone):
            context.tree.remove(_path(change))
        for change in changes:
            if change.get("change") != "deleted":
                _put(context, change)
    except TreeError as error:
        raise ToolError(str(error)) from error
    return ToolResult(Produced(b""), only_says_done=True)


def _put(context: ToolContext, change: Parameters) -> None:
    kind, content = str(change.get("kind", "file")), change.get("content")
    data = b""
    if content is not None:
        if not isinstance(content, str) or not is_ref(content):
            raise ToolError(f"{change.get('path')}: its content is no address")
        data = context.content(content)
    try:
        mode = int(str(change.get("mode", "0644")), 8)
    except ValueError:
        raise ToolError(f"{change.get('path')}: its mode is no octal number") from None
    context.tree.put(_path(change), kind, mode, data)


def _path(change: Parameters) -> RelPath:
    text = change.get("path")
    if not isinstance(text, str):
        raise ToolError("a change has no path")
    try:
        path = rel_path(from_text(text, encoded=change.get("encoded") is True))
    except ValueError:
        raise ToolError(f"{text} leads out of the tree") from None
    if not path:
        raise ToolError("a change has no path")
    return path
