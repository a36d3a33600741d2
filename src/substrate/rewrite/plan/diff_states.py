"""What differs: base and target, base and index, index and work tree.

The cost is proportional to the change, plus the `Sweep`, which reads the stat of every file and
lists every directory once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model import ABSENT, Change, Kind, Node, RelPath, display
from substrate.objects.git import RawChange
from substrate.objects.index import Glance, glance
from substrate.objects.store import ObjectStore
from substrate.rewrite.execute import OWN_DIRECTORIES, Sweep, WorkingCopy
from substrate.system import environment
from substrate.system.process import Asked

GITLINK = 0o160000
_KINDS = {
    0o100644: (Kind.FILE, 0o644),
    0o100755: (Kind.FILE, 0o755),
    0o100664: (Kind.FILE, 0o644),  # written by very old versions of git
    0o120000: (Kind.SYMLINK, 0),
}


class Survey(NamedTuple):
    """Everything known about the working copy before any file is read."""

    #: Base against target: the only paths a rewrite has a reason to touch.
    target: dict[RelPath, Change]
    #: Base against index, submodules and conflicts left out.
    staged: dict[RelPath, Change]
    #: Paths whose file differs from the index, as far as stat can tell, with the index entry
    #: (None: not known).
    dirty: dict[RelPath, Node | None]
    unmerged: frozenset[RelPath]
    intent_to_add: frozenset[RelPath]
    #: Neither tracked nor ignored.
    untracked: tuple[RelPath, ...]
    #: Repositories inside this one that are not submodules; left alone.
    nested: tuple[RelPath, ...]
    #: Whether attributes or settings may make files differ from their blobs.
    converts: bool


def look(copy: WorkingCopy, base: bytes, target: bytes, sweep: Sweep) -> Survey:
    """`RefusedError` if the target changes submodules, or if index entries are hidden."""
    git = copy.git
    between = Asked(lambda: git.raw_diff("diff-tree", "-r", base.hex(), target.hex()))
    index = glance(copy.index_file.read_bytes())
    if any(copy.git_dir.glob("sharedindex.*")):  # a split index: most of it is elsewhere
        index = Glance(plain=False, attributes=False, tree=b"")
    if index.tree and index.tree == ObjectStore(copy.common_dir).read_commit(base).tree:
        cached = []  # git cached the base's tree: nothing is staged
    else:
        cached = git.raw_diff("diff-index", "--cached", base.hex())
    flags = b"" if index.plain else entry_flags(copy)
    _refuse_hidden(flags)
    target_changes = _target_changes(between.answer())
    files, others = sweep.files(), sweep.others()
    untracked = tuple(RelPath(name) for name in others.files)
    return Survey(
        target=target_changes,
        staged={
            RelPath(c.path): _change(c)
            for c in cached
            if c.status != "U" and GITLINK not in (c.old_mode, c.new_mode)
        },
        dirty={
            **dict.fromkeys(assumed_unchanged(flags)),
            **{
                RelPath(c.path): node_of(c.old_mode, c.old_oid)
                for c in files
                if c.status in "MDT" and c.old_mode != GITLINK
            },
        },
        unmerged=frozenset(RelPath(c.path) for c in [*files, *cached] if c.status == "U"),
        intent_to_add=frozenset(RelPath(c.path) for c in files if c.status == "A"),
        untracked=untracked,
        nested=tuple(RelPath(name) for name in others.nested),
        converts=(index.attributes if index.plain else b".gitattributes\0" in flags)
        or _converts(copy, [*untracked, *target_changes]),
    )


def node_of(mode: int, oid: bytes) -> Node:
    """A side of a git diff as a node; ABSENT if there is no file."""
    if mode not in _KINDS:
        return ABSENT
    kind, bits = _KINDS[mode]
    return Node(kind, bits, oid)


def _change(raw: RawChange) -> Change:
    return Change(
        RelPath(raw.path),
        node_of(raw.old_mode, raw.old_oid),
        node_of(raw.new_mode, raw.new_oid),
    )


def _target_changes(between: list[RawChange]) -> dict[RelPath, Change]:
    out = {}
    for raw in between:
        if GITLINK in (raw.old_mode, raw.new_mode):
            raise RefusedError(
                f"the target changes the submodule {display(raw.path)}",
                hint="move the submodule yourself (git submodule update), or leave it out of the"
                " target; nothing was changed",
            )
        if raw.path.split(b"/", 1)[0] in OWN_DIRECTORIES:
            raise RefusedError(
                f"the target tracks {display(raw.path)}, which is Substrate's own place",
                hint="remove it from the target commit; nothing was changed",
            )
        out[RelPath(raw.path)] = _change(raw)
    return out


def _refuse_hidden(flags: bytes) -> None:
    """``H path NUL``: S is skip-worktree, a small letter assume-unchanged."""
    for mark in (b"S ", b"s "):
        at = 0 if flags.startswith(mark) else flags.find(b"\0" + mark) + 1
        if at or flags.startswith(mark):
            name = flags[at + 2 : flags.index(b"\0", at)]
            raise RefusedError(
                f"{display(name)} is marked skip-worktree: git does not say what is there",
                hint="`git update-index --no-skip-worktree` on it, then try again",
            )


def entry_flags(copy: WorkingCopy) -> bytes:
    return copy.git.run("ls-files", "-z", "-v")


def assumed_unchanged(flags: bytes) -> set[RelPath]:
    """Paths marked assume-unchanged: git does not check these files, so we do."""
    if not any(flags.startswith(m) or b"\0" + m in flags for m in (b"h ", b"m ")):
        return set()
    return {RelPath(entry[2:]) for entry in flags.split(b"\0") if entry[:2] in (b"h ", b"m ")}


def _converts(copy: WorkingCopy, names: list[RelPath]) -> bool:
    git = copy.git
    if git.setting("core.autocrlf", "false") not in ("false", "no", "off", "0"):
        return True
    if any(key in git.config() for key in ("core.eol", "core.attributesfile", "attr.tree")):
        return True
    if (copy.common_dir / "info" / "attributes").exists():
        return True
    if any(name.endswith(b".gitattributes") for name in names):
        return True
    return any(path.exists() for path in _other_attribute_files())


def _other_attribute_files() -> list[Path]:
    current = environment.current()
    config_home = current.get("XDG_CONFIG_HOME")
    files = [Path("/etc/gitattributes")]
    if config_home:
        files.append(Path(config_home, "git/attributes"))
    elif current.home is not None:
        files.append(current.home / ".config/git/attributes")
    return files
