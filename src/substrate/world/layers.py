"""The directories of a world: made before the command, removed when its changes have arrived."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from substrate.errors import SubstrateError, WorkspaceError
from substrate.system import clock, files, platform
from substrate.world.protocol import Layer

if TYPE_CHECKING:
    from collections.abc import Iterator

UPPER = "upper"
_META = "meta.json"
#: Hidden in every world: a command can neither read nor forge history.
_STORE_NAME = ".substrate-git"


def create(worlds: Path, world_id: str, root: Path, kind: str, xattr_prefix: bytes) -> Layer:
    """Make the directories of a new world below `worlds`."""
    directory = worlds / world_id
    layer = Layer(world_id, directory, directory / UPPER, root, kind, xattr_prefix)
    try:
        _make_private(worlds)
        os.mkdir(directory, 0o700)
        os.mkdir(layer.upper, 0o700)
        os.mkdir(directory / "work", 0o700)
        _look_like(root, layer.upper)
        if kind == "overlay":
            # A whiteout, not a mount over it: `git clean -fdx` must not trip over a mount point.
            os.mknod(layer.upper / _STORE_NAME, stat.S_IFCHR | 0o000, 0)
        _write_meta(layer)
    except OSError as error:
        raise WorkspaceError(
            f"no world can be made in {worlds}: {error.strerror}",
            hint="make room there, or run with --no-world",
        ) from error
    return layer


def scratch(layer: Layer) -> Path:
    """An empty directory of the world's own."""
    path = layer.directory / "root"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def note_kind(layer: Layer) -> None:
    """Write down what it is now."""
    _write_meta(layer)


def note_running(layer: Layer, init_pid: int) -> None:
    """Write down who keeps the world alive after us."""
    _write_meta(layer, init_pid)


def is_running(layer: Layer) -> bool:
    """Whether processes that a command left are still at work in the world."""
    meta = _read_meta(layer.directory)
    pid = meta.get("init_pid")
    if not isinstance(pid, int) or meta.get("boot_id") != platform.boot_id():
        return False
    return platform.pid_alive(pid) and platform.process_start_token(pid) == meta.get("init_start")


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


def remove(layer: Layer) -> None:
    """Remove the directories, whatever modes the command gave to what lies in them."""
    files.remove_tree(layer.directory)


def _make_private(worlds: Path) -> None:
    if not worlds.is_dir():
        os.makedirs(worlds, 0o700, exist_ok=True)


def _look_like(root: Path, upper: Path) -> None:
    """The upper's own mode, owner and times are what the command sees of the workspace's root."""
    found = os.stat(root)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(upper, found.st_uid, found.st_gid)
    os.chmod(upper, stat.S_IMODE(found.st_mode))
    os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))


def _write_meta(layer: Layer, init_pid: int = 0) -> None:
    import json

    meta: dict[str, object] = {
        "world_id": layer.world_id,
        # As ASCII, a byte that is no text included: JSON escapes what fsdecode made of it.
        "root": os.fsdecode(layer.lower),
        "kind": layer.kind,
        "xattr_prefix": layer.xattr_prefix.decode("ascii"),
        "made_ns": clock.now_ns(),
        "boot_id": platform.boot_id(),
        "pid": os.getpid(),
        "pid_start": platform.process_start_token(os.getpid()),
    }
    if init_pid:
        meta["init_pid"] = init_pid
        meta["init_start"] = platform.process_start_token(init_pid)
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
