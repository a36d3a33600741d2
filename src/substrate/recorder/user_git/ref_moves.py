"""What a command did to the user's own git repository: where HEAD and the refs stood, and stand.

History never holds a ``.git``, so an undo does not move branches back unless asked; it says how to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.objects import refs
from substrate.objects.worktree_git import WorktreeGit
from substrate.recorder.git_outside import branches_of_others
from substrate.system.files import read_bytes_or_none
from substrate.workspace.locate import Workspace

_ZERO = "0" * 40
_SHOWN = 20


class GitState(NamedTuple):
    """What the files say. Every command asks: what few need to know is worked out when needed."""

    #: ``ref: refs/heads/main`` or a commit.
    head: str = ""
    #: The refs that have a file of their own.
    loose: Mapping[str, str] = {}
    #: The file of the others.
    packed: bytes = b""

    @property
    def refs(self) -> dict[str, str]:
        """Every ref and what it says: a commit, or ``ref: …``."""
        return {**refs.packed_texts(self.packed), **self.loose}


def git_state(workspace: Workspace) -> GitState:
    """Where the user's HEAD and refs stand; empty where there is no repository."""
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return GitState()
    common = workspace.git_common_dir
    # The loose ones first: `git pack-refs` writes the packed file before it removes them.
    loose = refs.loose_texts(common)
    return GitState(_read_head(workspace.git_dir), loose, _content(common / "packed-refs"))


def _read_head(git_dir: Path) -> str:
    return refs.text_in(str(git_dir / "HEAD"))


def _content(path: Path) -> bytes:
    try:
        return b"" if path.is_symlink() else read_bytes_or_none(path) or b""
    except OSError:  # a FIFO, a directory: a command can make anything of it
        return b""


def git_effect(before: GitState, after: GitState) -> dict[str, object]:
    """The difference, for the span and the ledger; empty when nothing moved."""
    effect: dict[str, object] = {}
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
    """Such a ref follows another one, and needs no moving back."""
    return any(text is not None and text.startswith("ref:") for text in texts)


def effect_since(workspace: Workspace, before: GitState) -> dict[str, object]:
    """What moved since `before`, without the branches that other worktrees have checked out:
    whoever moved those was not here."""
    effect = git_effect(before, git_state(workspace))
    moved = effect.get("refs")
    if not isinstance(moved, dict):
        return effect
    others = branches_of_others(workspace) & moved.keys()
    mine = {name: pair for name, pair in moved.items() if name not in others}
    effect = {name: value for name, value in effect.items() if name != "refs"}
    return {**effect, "refs": mine} if mine else effect


def joined(effects: Iterable[object]) -> dict[str, object]:
    """Several commands' effects as one, newest first. A ref that somebody else moved in between
    is left out: between those commands it was not theirs."""
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
    whole: dict[str, object] = {"refs": kept} if kept else {}
    if head and head[0] != head[1]:
        whole["head"] = head
    return whole


def put_back(workspace: Workspace, effect: dict[str, object], why: str) -> str:
    """Move refs and HEAD back if all of them still stand where the command left them.

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
