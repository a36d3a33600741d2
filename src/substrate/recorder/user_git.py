"""What a command did to the user's own git repository: where HEAD and the refs stood, and stand.

History never holds a ``.git``, so an undo does not move branches back; it says how to.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.objects import refs
from substrate.system.files import read_bytes_or_none
from substrate.workspace.locate import Workspace

_ZERO = "0" * 40
_SHOWN = 20


class GitState(NamedTuple):
    """`head` as the file says it: ``ref: refs/heads/main`` or a commit."""

    head: str = ""
    refs: tuple[tuple[str, str], ...] = ()


def git_state(workspace: Workspace) -> GitState:
    """Where the user's HEAD and refs stand; empty where there is no repository."""
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return GitState()
    head = _read_head(workspace.git_dir)
    try:
        found = refs.list_refs(workspace.git_common_dir, "refs/")
    except (SubstrateError, OSError):  # a repository in a state of its own is not our trouble
        return GitState(head)
    return GitState(head, tuple(sorted((name, oid.hex()) for name, oid in found.items())))


def _read_head(git_dir: Path) -> str:
    try:
        raw = read_bytes_or_none(git_dir / "HEAD") or b""
    except OSError:  # a FIFO, a directory: a command can make anything of it
        raw = b""
    return raw.decode("utf-8", "replace").strip()


def git_effect(before: GitState, after: GitState) -> dict[str, object]:
    """The difference, for the span and the ledger; empty when nothing moved."""
    effect: dict[str, object] = {}
    if before.head != after.head:
        effect["head"] = [before.head, after.head]
    old, new = dict(before.refs), dict(after.refs)
    moved = {
        name: [old.get(name), new.get(name)]
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    }
    if moved:
        effect["refs"] = moved
    return effect


def how_to_put_back(effect: object) -> list[str]:
    """The commands that bring refs and HEAD back, each refusing if they moved again since.

    They are made to be pasted into a shell, and a ref may be called ``refs/heads/$(reboot)``.
    """
    from shlex import quote  # rarely needed

    if not isinstance(effect, dict):
        return []
    lines = []
    moved = effect.get("refs")
    for name, (was, now) in list(moved.items())[:_SHOWN] if isinstance(moved, dict) else ():
        if was is None:
            lines.append(f"git update-ref -d {quote(name)} {now}")
        else:
            lines.append(f"git update-ref {quote(name)} {was} {now or _ZERO}")
    head = effect.get("head")
    if isinstance(head, list) and isinstance(head[0], str) and head[0]:
        target = quote(head[0].removeprefix("ref: "))
        attached = head[0].startswith("ref: ")
        lines.append(
            f"git symbolic-ref HEAD {target}"
            if attached
            else f"git update-ref --no-deref HEAD {target}"
        )
    return lines
