"""The directories of a world: made before the command, removed when its changes have arrived."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from substrate.errors import SubstrateError, WorkspaceError
from substrate.system import clock, files, ids, platform
from substrate.system.xattrs import Xattrs, read_user_xattrs, write_user_xattrs
from substrate.workspace.layer import OVERLAY_MARKS
from substrate.world.pid_space import PidSpace
from substrate.world.protocol import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

UPPER = "upper"
_META = "meta.json"
#: What an overlay that is mounted `volatile` keeps in ``work``, so that none is mounted again.
_VOLATILE_MARK = ("work/incompat", "work/incompat/volatile", "work/incompat/volatile/dirty")
#: Hidden in every world: a command can neither read nor forge history.
_STORE_NAME = ".substrate-git"
#: A few milliseconds, where many worlds have just gone.
_MOST_PLACES = 24
_MARKS = tuple(name.encode() for name in OVERLAY_MARKS)


def create(
    worlds: Path, world_id: str, root: Path, kind: str, xattr_prefix: bytes, *, ahead: bool = False
) -> Layer:
    """Make the directories of a new world below `worlds`.

    `ahead` of its command: nothing odd stands in it yet, because whoever copies the workspace
    now would come across it; `renamed` does the rest.
    """
    directory = worlds / world_id
    layer = Layer(world_id, directory, directory / UPPER, root, kind, xattr_prefix)
    try:
        if not ahead:  # or a store is made where one has just been moved away
            make_private(worlds)
        os.mkdir(directory, 0o700)
        _have_room(directory)
        os.mkdir(layer.upper, 0o700)
        os.mkdir(directory / "work", 0o700)
        if kind == "overlay" and not ahead:
            _hide_store(layer)
        _look_like(root, layer.upper)
        _write_meta(layer)
    except OSError as error:
        raise WorkspaceError(
            f"no world can be made in {worlds}: {error.strerror}",
            hint="make room there, or run with --no-world",
        ) from error
    return layer


def _have_room(directory: Path) -> None:
    """Not where the files of earlier worlds were removed a moment ago, if that makes it slow."""
    if sys.platform != "linux":
        return
    from substrate.system.linux import inode_groups

    # As those made ahead are called: who tidies up leaves them to us.
    name = os.fsencode(directory.with_name(f"ahead-{os.getpid()}-{ids.new_id('wld')}"))
    with suppress(OSError):  # it will do where it is
        spare = (b"%b.%d" % (name, number) for number in range(_MOST_PLACES))
        inode_groups.make_elsewhere(os.fsencode(directory), spare)


def renamed(layer: Layer, worlds: Path, world_id: str) -> Layer:
    """A layer that was made ahead, under its command's own name in `worlds` and looking like the
    root does now.

    An overlay over it does not mind: it holds on to the directories, not to their names.
    """
    directory = worlds / world_id
    os.rename(layer.directory, directory)
    moved = layer._replace(world_id=world_id, directory=directory, upper=directory / UPPER)
    _hide_store(moved)
    _look_like(layer.lower, moved.upper)
    return moved


def smooth(layer: Layer) -> None:
    """Open what an overlay shuts to everybody in its work directory; it does not mind."""
    for name in ("index", "work", *_VOLATILE_MARK):
        with suppress(OSError):
            os.chmod(layer.directory / "work" / name, 0o700)


def _hide_store(layer: Layer) -> None:
    # A whiteout, not a mount over it: `git clean -fdx` must not trip over a mount point.
    os.mknod(layer.upper / _STORE_NAME, stat.S_IFCHR | 0o000, 0)


def scratch(layer: Layer) -> Path:
    """An empty directory of the world's own."""
    path = layer.directory / "root"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def note_kind(layer: Layer) -> None:
    """Write down what it is now."""
    _write_meta(layer)


def note_running(layer: Layer, init_pid: int, space: PidSpace | None = None) -> None:
    """Write down who keeps the world alive after us, and the pid namespace it shares."""
    meta: dict[str, object] = {"init_pid": init_pid, "init_start": _start(init_pid)}
    if space is not None:
        meta["pid_space"] = space._asdict()
    _write_meta(layer, meta)


def ended_mark(layer: Layer) -> Path:
    """A file that gets a byte when the last process of the world itself has ended."""
    return layer.directory / "ended"


def is_running(layer: Layer) -> bool:
    """Whether processes that a command left are still at work in the world."""
    meta = _read_meta(layer.directory)
    pid = meta.get("init_pid")
    if not isinstance(pid, int) or meta.get("boot_id") != platform.boot_id():
        return False
    with suppress(OSError):
        if ended_mark(layer).stat().st_size:
            return False
    if is_same(pid, str(meta.get("init_start"))):
        return True
    # Its init was killed. If it was the first of a pid namespace, the kernel has ended all the
    # others; if not, they may go on for as long as the first one does.
    space = _space(meta)
    return space is not None and space.first != pid and is_same(space.first, space.first_start)


def is_same(pid: int, start: str) -> bool:
    """Whether that process is there, and is not another one with its number."""
    return platform.pid_alive(pid) and platform.process_start_token(pid) == start


def pid_space(layer: Layer) -> tuple[int, PidSpace] | None:
    """The init of a running world, and the pid namespace that may be shared with it."""
    meta = _read_meta(layer.directory)
    space = _space(meta)
    if space is None or not is_running(layer):
        return None
    return cast(int, meta["init_pid"]), space


def _space(meta: dict[str, object]) -> PidSpace | None:
    found = meta.get("pid_space")
    return PidSpace(**found) if isinstance(found, dict) else None


def _start(pid: int) -> str:
    return platform.process_start_token(pid)


def find(worlds: Path) -> Iterator[Layer]:
    """The worlds whose directories stand there: running, held, or left by a crash."""
    try:
        names = sorted(os.listdir(worlds))
    except OSError:
        return
    for name in names:
        meta = _read_meta(worlds / name)
        if meta:
            directory = worlds / name
            yield Layer(
                name, directory, directory / UPPER, Path(str(meta["root"])),
                str(meta["kind"]), str(meta["xattr_prefix"]).encode(),
            )  # fmt: skip


def remove(layer: Layer, *others: Path) -> None:
    """Remove the directories, whatever modes the command gave to what lies in them.

    `others`: where worlds are made, too, and not in place of these.
    """
    if sys.platform == "linux":
        from substrate.system.linux import inode_groups

        noted = (os.fsencode(layer.directory), os.fsencode(layer.upper))
        inode_groups.note_removal(*noted, *map(os.fsencode, others))
    files.remove_tree(layer.upper)  # first: see `history.held.remove_directory`
    files.remove_tree(layer.directory)


def make_private(worlds: Path) -> None:
    """The directory of all worlds, for nobody else."""
    if not worlds.is_dir():
        os.makedirs(worlds, 0o700, exist_ok=True)
    files.spread_subdirectories(worlds)


def look_again(layer: Layer) -> None:
    """What the view shows of the workspace's root is what that looks like now."""
    with suppress(OSError):
        _look_like(layer.lower, layer.upper)


def new_look(layer: Layer) -> str:
    """Why the root of the view looks otherwise than the workspace's; empty if it does not.

    Times and owner are left aside, and set-id bits, which not everybody can give to a copy.
    """
    try:
        mode = os.stat(layer.upper).st_mode ^ os.stat(layer.lower).st_mode
        if mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO | stat.S_ISVTX):
            return "the workspace's own directory keeps its mode"
        if _attributes(layer.upper) != _attributes(layer.lower):
            return "the workspace's own directory keeps its extended attributes"
    except OSError:
        pass  # shut to us, or gone
    return ""


def _look_like(root: Path, upper: Path) -> None:
    """The upper's own mode, owner, times and attributes are what the command sees of the
    workspace's root."""
    found = os.stat(root)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(upper, found.st_uid, found.st_gid)
    with suppress(OSError):  # a file system without them, or with no room for both ours and theirs
        write_user_xattrs(upper, _attributes(root), _attributes(upper))
    os.chmod(upper, stat.S_IMODE(found.st_mode))
    os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))


def _attributes(directory: Path) -> Xattrs:
    """The user's own: a mark of overlayfs would hide the tree, or show what is not there."""
    found = read_user_xattrs(directory, follow=True)
    return tuple(one for one in found if not one[0].startswith(_MARKS)) if found else found


def _write_meta(layer: Layer, more: dict[str, object] | None = None) -> None:
    import json

    meta: dict[str, object] = {
        # As ASCII, a byte that is no text included: JSON escapes what fsdecode made of it.
        "root": os.fsdecode(layer.lower),
        "kind": layer.kind,
        "xattr_prefix": layer.xattr_prefix.decode("ascii"),
        "made_ns": clock.now_ns(),
        "boot_id": platform.boot_id(),
        "pid": os.getpid(),
        "pid_start": _start(os.getpid()),
        **(more or {}),
    }
    data = json.dumps(meta, sort_keys=True).encode("ascii")
    files.write_atomic(layer.directory / _META, data, durable=False)


def _read_meta(directory: Path) -> dict[str, object]:
    import json

    data = files.read_bytes_or_none(directory / _META)
    if data is None:
        return {}
    try:
        meta = json.loads(data)
    except ValueError as error:
        raise SubstrateError(f"{directory / _META} cannot be read: {error}") from error
    return cast("dict[str, object]", meta)
