"""What a command did to the user's own git repository: HEAD and refs before and after.

History never records a ``.git``, so an undo moves branches back only on request; it says how to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.objects.git import WorktreeGit
from substrate.objects.store import refs
from substrate.recorder.user_git.outside_git_dir import branches_of_others
from substrate.system.files import read_bytes_or_none
from substrate.workspace import Workspace

#: What moved: HEAD and refs, each with its old and its new value, as the ledger has it.
Effect = dict[str, object]
_ZERO = "0" * 40
_SHOWN = 20


class GitState(NamedTuple):
    """The content of the ref files. Every command reads them, so parsing happens only if needed."""

    #: ``ref: refs/heads/main`` or a commit.
    head: str = ""
    #: The refs with a file of their own.
    loose: Mapping[str, str] = {}
    #: The content of packed-refs, with the other refs.
    packed: bytes = b""

    @property
    def refs(self) -> dict[str, str]:
        """Every ref and its value: a commit, or ``ref: …``."""
        return {**refs.packed_texts(self.packed), **self.loose}


def git_state(workspace: Workspace) -> GitState:
    """The values of the user's HEAD and refs; empty if there is no repository."""
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return GitState()
    common = workspace.git_common_dir
    # Loose refs first: `git pack-refs` writes the packed file before it removes them.
    loose = refs.loose_texts(common)
    return GitState(_read_head(workspace.git_dir), loose, _content(common / "packed-refs"))


def _read_head(git_dir: Path) -> str:
    return refs.text_in(str(git_dir / "HEAD"))


def _content(path: Path) -> bytes:
    try:
        return b"" if path.is_symlink() else read_bytes_or_none(path) or b""
    except OSError:  # a FIFO, a directory: a command can put anything there
        return b""


def git_effect(before: GitState, after: GitState) -> Effect:
    """The difference, for the span and the ledger; empty when nothing moved."""
    effect: Effect = {}
    if before.head != after.head:
        effect["head"] = [before.head, after.head]
    if (before.loose, before.packed) == (after.loose, after.packed):
        return effect
    old, new = before.refs, after.refs
    moved = {
        name: [old.get(name), new.get(name)]
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and not _is_symbolic(old.get(name), new.get(name))
    }
    if moved:
        effect["refs"] = moved
    return effect


def _is_symbolic(*texts: str | None) -> bool:
    """Whether a ref is symbolic: it follows another one, and need not be moved back."""
    return any(text is not None and text.startswith("ref:") for text in texts)


def effect_since(workspace: Workspace, before: GitState) -> Effect:
    """What moved since `before`, without branches that other worktrees have checked out.

    Their moves belong to commands in those worktrees.
    """
    effect = git_effect(before, git_state(workspace))
    moved = effect.get("refs")
    if not isinstance(moved, dict):
        return effect
    others = branches_of_others(workspace) & moved.keys()
    mine = {name: pair for name, pair in moved.items() if name not in others}
    effect = {name: value for name, value in effect.items() if name != "refs"}
    return {**effect, "refs": mine} if mine else effect


def joined(effects: Iterable[object]) -> Effect:
    """Combine the effects of several commands, newest first.

    A ref that another process moved between those commands is left out: it is not only their work.
    """
    moved: dict[str, list[str | None]] = {}
    apart: set[str] = set()
    head: list[str] = []
    for effect in effects:
        if not isinstance(effect, dict):
            continue
        for name, (was, now) in (effect.get("refs") or {}).items():
            later = moved.setdefault(name, [was, now])
            if later[0] == now:
                later[0] = was
            elif later != [was, now]:
                apart.add(name)
        if effect.get("head"):
            was, now = effect["head"]
            head = [was, head[1] if head else now]
    kept = {name: pair for name, pair in sorted(moved.items()) if name not in apart}
    kept = {name: pair for name, pair in kept.items() if pair[0] != pair[1]}
    whole: Effect = {"refs": kept} if kept else {}
    if head and head[0] != head[1]:
        whole["head"] = head
    return whole


def outstanding(workspace: Workspace, effect: Effect) -> Effect:
    """`effect` without the refs that already have their old value again."""
    if not effect:
        return {}
    now = git_state(workspace)
    present = now.refs
    refs_moved, head = effect.get("refs"), effect.get("head")
    left: Effect = {}
    if isinstance(refs_moved, dict):
        still = {n: pair for n, pair in refs_moved.items() if present.get(n) != pair[0]}
        if still:
            left["refs"] = still
    if isinstance(head, list) and head[0] != now.head:
        left["head"] = head
    return left


def moved_again(workspace: Workspace, effect: Effect) -> list[str]:
    """The refs that have moved since the command moved them: they cannot be moved back."""
    now = git_state(workspace)
    present = now.refs
    refs_moved, head = effect.get("refs"), effect.get("head")
    out = [
        name
        for name, (_, left) in (refs_moved.items() if isinstance(refs_moved, dict) else ())
        if present.get(name) != left
    ]
    return [*out, *(["HEAD"] if isinstance(head, list) and head[1] != now.head else [])]


def put_back(workspace: Workspace, effect: Effect, why: str) -> str:
    """Move refs and HEAD back if all of them still have the value that the command set.

    All or none, each compared and swapped by git itself. Returns a sentence for the user.
    """
    if workspace.git_dir is None:
        return "there is no git repository here any more; no ref was moved"
    git = WorktreeGit(workspace.git_dir, workspace.root)
    head = effect.get("head")
    was, now = head if isinstance(head, list) else ("", "")
    if was and _read_head(workspace.git_dir) != now:
        return "HEAD has moved since; no ref was moved: " + "; ".join(how_to_put_back(effect))
    lines = ["start"]
    moved = effect.get("refs")
    for name, (old, new) in moved.items() if isinstance(moved, dict) else ():
        lines.append(
            f"delete {name}\0{new}" if old is None else f"update {name}\0{old}\0{new or _ZERO}"
        )
    if was and not was.startswith("ref: "):
        lines += ["option no-deref", f"update HEAD\0{was}\0"]
    lines += ["prepare", "commit"]
    words = ("update-ref", "-m", f"substrate: {why}", "-z", "--stdin")
    done = git.try_run(*words, input="".join(line + "\0" for line in lines).encode())
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().removeprefix("fatal: ")
        return f"no ref of your git repository was moved: {said}"
    if was.startswith("ref: "):
        git.run("symbolic-ref", "-m", f"substrate: {why}", "HEAD", was.removeprefix("ref: "))
    names = [*(moved if isinstance(moved, dict) else ()), *(["HEAD"] if was else [])]
    return (
        f"put back in your git repository: {', '.join(names)}"
        " (your index stays as it is; the reflog has where they were)"
    )


def how_to_put_back(effect: object) -> list[str]:
    """The commands that move refs and HEAD back; each refuses if the ref has moved again since.

    Users paste them into a shell, so names are quoted: a ref may be ``refs/heads/$(reboot)``.
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
