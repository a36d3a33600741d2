"""The directories of a world: made before the command, removed when its changes are applied."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from substrate.errors import DiskFullError, SubstrateError, WorkspaceError
from substrate.model import ROOT
from substrate.system import clock, ids
from substrate.system.files import Xattrs, files, read_xattrs, write_xattrs
from substrate.system.process import process_identity
from substrate.system.sync import liveness_locks
from substrate.workspace.apply import OVERLAY_MARKS
from substrate.workspace.paths import Directory, temporary_chmod
from substrate.world.interface import Layer
from substrate.world.process import PidSpace

if TYPE_CHECKING:
    from collections.abc import Iterator

UPPER = "upper"
#: The prefix of the name of a world that belongs to no command.
NOBODYS = "ahead-"
_META = "meta.json"
_ENDED = "ended"
#: What an overlay mounted `volatile` keeps in ``work``, so that it cannot be mounted again.
_VOLATILE_MARK = ("work/incompat", "work/incompat/volatile", "work/incompat/volatile/dirty")
#: Hidden in every world: a command can neither read nor forge history.
_STORE_NAME = ".substrate-git"
#: Trying so many takes a few milliseconds, where many worlds were removed just before.
_MOST_PLACES = 24
_MARKS = tuple(name.encode() for name in OVERLAY_MARKS)


def create(
    worlds: Path, world_id: str, root: Path, kind: str, xattr_prefix: bytes, *, ahead: bool = False
) -> Layer:
    """Make the directories of a new world below `worlds`.

    `ahead` of its command: without special files yet, because a process that copies the workspace
    now would find them; `renamed` does the rest.
    """
    directory = worlds / world_id
    layer = Layer(world_id, directory, directory / UPPER, root, kind, xattr_prefix)
    try:
        if not ahead:  # otherwise this could create a store where one was just moved away
            make_private(worlds)
            liveness_locks.ensure(worlds.parent)
        os.mkdir(directory, 0o700)
        _have_room(directory)
        os.mkdir(layer.upper, 0o700)
        os.mkdir(directory / "work", 0o700)
        if kind == "overlay" and not ahead:
            _hide_store(layer)
        _look_like(root, layer.upper)
        _write_meta(layer)
    except OSError as error:
        if files.lacks_inodes(directory):
            reason, hint = files.NO_INODES
            raise DiskFullError(f"{reason}: {worlds}", hint=hint) from error
        raise WorkspaceError(
            f"no world can be made in {worlds}: {error.strerror}",
            hint="make room there, or run with --no-world",
        ) from error
    return layer


def _have_room(directory: Path) -> None:
    """Put it elsewhere if files of earlier worlds, just removed here, would make this slow."""
    if sys.platform != "linux":
        return
    from substrate.system.linux import ext4_placement

    # Named like worlds made ahead: other processes that clean up leave these to us.
    name = os.fsencode(directory.with_name(nobodys_name(directory.parent)))
    with suppress(OSError):  # it can stay where it is
        spare = (b"%b.%d" % (name, number) for number in range(_MOST_PLACES))
        ext4_placement.make_elsewhere(os.fsencode(directory), spare)


def nobodys_name(worlds: Path) -> str:
    """A new name in `worlds` that shows its owner from the first moment on: sweeps leave it alone
    while this process holds its lock there."""
    return f"{NOBODYS}{liveness_locks.mark(worlds.parent)}-{ids.new_id('wld')}"


def renamed(layer: Layer, worlds: Path, world_id: str) -> Layer:
    """A layer that was made ahead, under its command's own name in `worlds` and looking like the
    root does now.

    An overlay mounted over it is not affected: it holds the directories, not their names.
    """
    directory = worlds / world_id
    liveness_locks.ensure(worlds.parent)
    liveness_locks.own(worlds.parent)  # its meta names our lock: from now on it is looked for here
    os.rename(layer.directory, directory)
    moved = layer._replace(world_id=world_id, directory=directory, upper=directory / UPPER)
    _hide_store(moved)
    _look_like(layer.lower, moved.upper)
    return moved


def open_work(directory: int) -> None:
    """Give the owner access to what overlayfs made inaccessible in its work directory.

    The owner must be able to remove the project, this world included, and overlayfs does not need
    those modes. `directory`: the layer's.
    """
    for name in ("index", "work", *_VOLATILE_MARK):
        with suppress(OSError):
            os.chmod(f"work/{name}", 0o700, dir_fd=directory)


def _hide_store(layer: Layer) -> None:
    # A whiteout, not a mount over it: `git clean -fdx` must not trip over a mount point.
    os.mknod(layer.upper / _STORE_NAME, stat.S_IFCHR | 0o000, 0)


def scratch(layer: Layer) -> Path:
    """An empty directory for this world only."""
    path = layer.directory / "root"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def note_kind(layer: Layer) -> None:
    """Record in the metadata what kind of layer it is now."""
    _write_meta(layer)


def note_running(
    layer: Layer, init_pid: int, token: str = "", space: PidSpace | None = None
) -> None:
    """Record the process that keeps the world alive after us, by the lock that it holds, and the
    pid namespace it shares."""
    meta: dict[str, object] = {"init_pid": init_pid, "init_start": _start(init_pid)}
    meta["init_alive"] = token
    if space is not None:
        meta["pid_space"] = space._asdict()
    _write_meta(layer, meta)


def ended_mark(layer: Layer) -> Path:
    """A file that gets a byte when the last process of the world itself has ended."""
    return layer.directory / _ENDED


def is_running(layer: Layer) -> bool:
    """Whether processes that a command left are still running in the world."""
    return is_running_at(layer.directory)


def is_running_at(directory: Path) -> bool:
    """The same for the directory of a world; a directory that is gone has no processes."""
    meta = _read_meta(directory)
    pid = meta.get("init_pid")
    if not isinstance(pid, int) or meta.get("boot_id") != process_identity.boot_id():
        return False
    with suppress(OSError):
        if (directory / _ENDED).stat().st_size:
            return False
    place = directory.parent.parent
    if _lives(place, str(meta.get("init_alive", "")), pid, str(meta.get("init_start"))):
        return True
    # Its init was killed. If it was the first process of a pid namespace, the kernel has ended all
    # the others; if not, they may run for as long as the first process does.
    space = _space(meta)
    if space is None or space.first == pid:
        return False
    return _lives(place, space.alive, space.first, space.first_start)


def _lives(place: Path, token: str, pid: int, start: str) -> bool:
    """By its lock; without one (an older version made the world) by its pid and start time."""
    if token:
        return liveness_locks.is_held(place, token)
    return process_identity.pid_alive(pid) and process_identity.process_start_token(pid) == start


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
    return process_identity.process_start_token(pid)


def find(worlds: Path) -> Iterator[Layer]:
    """The worlds whose directories exist there: running, held, or left by a crash."""
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
    """Remove the directories, whatever modes the command gave to files and directories in them.

    `others`: further directories in which worlds are made.
    """
    if sys.platform == "linux":
        from substrate.system.linux import ext4_placement

        noted = (os.fsencode(layer.directory), os.fsencode(layer.upper))
        ext4_placement.note_removal(*noted, *map(os.fsencode, others))
    files.remove_tree(layer.upper)  # first: see `held_world_rows.remove_directory`
    files.remove_tree(layer.directory)


def make_private(worlds: Path) -> None:
    """Make the directory of all worlds, accessible only to its owner."""
    if not worlds.is_dir():
        os.makedirs(worlds, 0o700, exist_ok=True)
    files.spread_subdirectories(worlds)


def look_again(layer: Layer) -> None:
    """Make the root of the view look as the workspace's root does now."""
    with suppress(OSError):
        _look_like(layer.lower, layer.upper)


def new_look(layer: Layer) -> str:
    """How the root of the view differs from the workspace's; empty if it does not.

    Times, owner and set-id bits are ignored: not every user can give those to a copy.
    """
    try:
        mode = _own_mode(layer) ^ os.stat(layer.lower).st_mode
        if mode & (stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO | stat.S_ISVTX):
            return "the workspace's own directory keeps its mode"
        if _attributes(layer.upper) != _attributes(layer.lower):
            return "the workspace's own directory keeps its extended attributes"
    except OSError:
        pass  # unreadable, or gone
    return ""


def _own_mode(layer: Layer) -> int:
    """The mode of the upper itself, as the command left it: see `open_up`."""
    found = os.stat(layer.upper).st_mode
    if not temporary_chmod.has_notes(layer.directory):
        return found
    with Directory.open_root(layer.directory) as notes:
        return temporary_chmod.Openings(notes).final_mode(ROOT, stat.S_IMODE(found))


def open_up(layer: Layer) -> None:
    """Let the owner of a held world remove the project, read-only directories included."""
    temporary_chmod.open_up(layer.directory, layer.upper)


def _look_like(root: Path, upper: Path) -> None:
    """Copy the root's mode, owner, times and attributes to the upper: the command sees them as
    those of the workspace's root."""
    found = os.stat(root)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(upper, found.st_uid, found.st_gid)
    with suppress(OSError):  # a file system without them, or without room for ours and theirs
        write_xattrs(upper, _attributes(root), _attributes(upper))
    os.chmod(upper, stat.S_IMODE(found.st_mode))
    os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))


def _attributes(directory: Path) -> Xattrs:
    """The user's own: an overlayfs mark would hide the tree, or show what is not there."""
    found = read_xattrs(directory, follow=True)
    return tuple(one for one in found if not one[0].startswith(_MARKS)) if found else found


def _write_meta(layer: Layer, more: dict[str, object] | None = None) -> None:
    import json

    meta: dict[str, object] = {
        # As ASCII, even bytes that are not text: JSON escapes what fsdecode made of them.
        "root": os.fsdecode(layer.lower),
        "kind": layer.kind,
        "xattr_prefix": layer.xattr_prefix.decode("ascii"),
        "made_ns": clock.now_ns(),
        "boot_id": process_identity.boot_id(),
        "pid": os.getpid(),
        "pid_start": _start(os.getpid()),
        "alive": liveness_locks.own(layer.directory.parent.parent),
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
