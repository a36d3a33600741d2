"""A world around a private tree: the command sees it at a path of the caller's choice.

For replays: the tree is a copy that nobody else uses, so it needs no overlay; but the command must
find it where it was recorded, whatever stands there now, or if nothing does:

    /home/ada/project is there         the tree is bound over it
    only /home is there                an overlay on /home, thrown away later, makes room for it
    not even its first directory is    a new root, with everything of the old one in it, does
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from substrate.system import environment, spawn
from substrate.system.linux import mounts
from substrate.system.process import Finished, Stdio
from substrate.world import surroundings
from substrate.world.open_world import Limits, open_world
from substrate.world.protocol import Isolation, Network
from substrate.world.sandbox import Sandbox


class ScratchWorld:
    """Runs commands in `tree`, seen at `seen_at`. What they change stays in `tree`."""

    def __init__(self, tree: Path, seen_at: Path) -> None:
        self._tree = tree
        self._seen_at = seen_at
        #: Which of the three cases it is.
        self._above = nearest_existing(seen_at)

    @property
    def isolation(self) -> Isolation:
        reason = "a private copy of the tree, at the path where it was recorded"
        if self._above != self._seen_at and self._above != Path("/"):
            reason += f"; what is written beside it in {self._above} is thrown away"
        return Isolation("copy-diff", "workspace", "open", reason)

    def run(
        self,
        argv: tuple[str | bytes, ...],
        cwd: Path,
        env: Mapping[str, str],
        stdio: Stdio,
        timeout_s: float,
        network: Network | None = None,
    ) -> Finished:
        """Run one command to its end; nothing it started outlives it.

        Raises `WorldFailedError` if no world can be made, `WorkspaceError` if `cwd` is not there.
        """
        program = spawn.Program(tuple(os.fsencode(arg) for arg in argv), cwd, env, stdio)
        here = environment.current()
        root = os.fsencode(self._seen_at)
        inside = root.rstrip(b"/") + b"/"
        sandbox = Sandbox(
            root=root,
            mount_view=_view(self._tree, self._seen_at, self._above),
            # What lies inside is covered by the tree: it cannot be reached, nor written to.
            read_only=tuple(
                path
                for path in surroundings.read_only(here, self._seen_at)
                if not path.startswith(inside)
            ),
            masked=surroundings.masked(here, allow_host_services=False),
            network=network,
        )
        return open_world(sandbox).run(program, Limits(timeout_s, kill_children=True)).finished


def nearest_existing(path: Path) -> Path:
    """The deepest directory of `path` that is there."""
    for directory in (path, *path.parents):
        if directory.is_dir():
            return directory
    return Path("/")


def _view(tree: Path, seen_at: Path, above: Path) -> Callable[[], None]:
    def mount_view() -> None:
        if above == Path("/"):
            source = _in_new_root(tree)
        else:
            source = os.open(tree, os.O_PATH | os.O_DIRECTORY)
            if above != seen_at:
                _make_room(above, tree.parent)
        os.makedirs(seen_at, exist_ok=True)
        target = os.fsencode(seen_at)
        mounts.bind(b"/proc/self/fd/%d" % source, target)
        mounts.restrict(target, mounts.NOSUID | mounts.NODEV)
        os.close(source)

    return mount_view


def _make_room(above: Path, scratch: Path) -> None:
    """Directories can be made in `above`, but only here: they lie in memory."""
    room = os.fsencode(scratch / "room")
    lower = os.open(above, os.O_PATH | os.O_DIRECTORY)
    os.makedirs(room, exist_ok=True)
    mounts.mount(b"tmpfs", room, b"tmpfs", mounts.NOSUID | mounts.NODEV, b"mode=755")
    for name in (b"upper", b"work"):
        os.mkdir(os.path.join(room, name), 0o755)
    directory = os.open(room, os.O_PATH | os.O_DIRECTORY)
    options = (
        b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper,workdir=/proc/self/fd/%d/work"
    )
    options %= (lower, directory, directory)
    if os.geteuid() != 0:
        options += b",userxattr"
    flags = mounts.NOSUID | mounts.NODEV
    mounts.mount(b"substrate", os.fsencode(above), b"overlay", flags, options)
    os.close(lower)
    os.close(directory)


def _in_new_root(tree: Path) -> int:
    """Enter a root in memory that shows all that the old one did; the tree, opened there."""
    root = os.fsencode(tree.parent / "root")
    os.makedirs(root, exist_ok=True)
    mounts.mount(b"tmpfs", root, b"tmpfs", mounts.NOSUID | mounts.NODEV, b"mode=755")
    with os.scandir(b"/") as found:
        entries = list(found)
    for entry in entries:
        target = os.path.join(root, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            mounts.bind(entry.path, target, recursive=True)
        elif entry.is_file():
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
            mounts.bind(entry.path, target)
    mounts.pivot_root(root)
    return os.open(tree, os.O_PATH | os.O_DIRECTORY)
