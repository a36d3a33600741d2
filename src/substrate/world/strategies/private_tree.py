"""A world around a private tree: the command sees it at a path that the caller chooses.

For replays: the tree is a copy that no other process uses, so it needs no overlay. But the command
must find it at the path where it was recorded, whether that path exists now or not:

    /home/ada/project exists           the tree is bound over it
    only /home exists                  an overlay on /home, thrown away later, makes room for it
    not even its first directory does  a new root, with everything of the old one in it

A replay must leave the machine as it is. So everything else is read-only (tier `guarded`), except
temporary directories and the home directory, where builds keep their caches: what a command writes
there is thrown away with the world. Where that is not available, tier `workspace` is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from substrate.system import environment
from substrate.system.linux import mounts
from substrate.system.process import Finished, Stdio, spawn
from substrate.world.interface import Isolation, Network, Wanted
from substrate.world.process import Limits, Sandbox, host_masks, open_world

_FLAGS = mounts.NOSUID | mounts.NODEV


class ScratchWorld:
    """Runs commands in `tree`, seen at `seen_at`. What they change stays in `tree`.

    The directory that holds `tree` is the caller's own: commands do not see what else is in it.
    """

    def __init__(self, tree: Path, seen_at: Path, tier: str = "guarded", home: str = "") -> None:
        """`home` is the commands' home directory; only `guarded` treats it specially."""
        self._tree = tree
        self._seen_at = seen_at
        self._tier = tier
        self._above = nearest_existing(seen_at)
        own = Path(os.path.realpath(home)) if home.startswith("/") else None
        # A home that is the whole file system, or none, needs no protection of its own.
        usable = tier == "guarded" and own is not None and own.is_dir() and own != Path("/")
        self._home = own if usable else None

    @property
    def isolation(self) -> Isolation:
        there = ", at the path where it was recorded" if self._seen_at != self._tree else ""
        reasons = [f"a private copy of the tree{there}"]
        thrown_away = [str(path) for path in self._thrown_away]
        if thrown_away:
            reasons.append(f"what is written in {' and '.join(thrown_away)} is thrown away")
        return Isolation("copy-diff", self._tier, "open", "; ".join(reasons))

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

        Raises `WorldFailedError` if no world can be made, `WorkspaceError` if `cwd` does not exist.
        """
        program = spawn.Program(tuple(os.fsencode(arg) for arg in argv), cwd, env, stdio)
        sandbox = self._sandbox(network)
        return open_world(sandbox).run(program, Limits(timeout_s, kill_children=True)).finished

    def _sandbox(self, network: Network | None) -> Sandbox:
        here = environment.current()
        root = os.fsencode(self._seen_at)
        inside = root.rstrip(b"/") + b"/"
        wanted = Wanted(self._seen_at, self._seen_at, self._tier)
        writable = host_masks.writable(here, wanted)
        writable = tuple(dict.fromkeys((*writable, *map(os.fsencode, self._thrown_away))))
        return Sandbox(
            root=root,
            mount_view=self._mount_view,
            tier=self._tier,
            # The tree covers what is inside: that cannot be reached or written to.
            read_only=tuple(
                path
                for path in host_masks.read_only(here, self._seen_at)
                if not path.startswith(inside)
            ),
            masked=host_masks.masked(here, allow_host_services=False),
            writable=writable,
            network=network,
        )

    def _mount_view(self) -> None:
        """In the world's mount namespace."""
        scratch = self._tree.parent
        if self._above == Path("/"):
            _enter_new_root(scratch)
        source = os.open(self._tree, os.O_PATH | os.O_DIRECTORY)
        if self._home is not None:
            _throw_away_writes(self._home, scratch / "home")
        if self._needs_room:
            _throw_away_writes(self._above, scratch / "room")
        # The replay's own files are there, in a temporary directory. If a command put a symlink in
        # place of the next command's output, that would be written through it, outside this world.
        mounts.mount(b"tmpfs", os.fsencode(scratch), b"tmpfs", _FLAGS, b"size=64k,mode=755")
        os.makedirs(self._seen_at, exist_ok=True)
        target = os.fsencode(self._seen_at)
        mounts.bind(b"/proc/self/fd/%d" % source, target)
        mounts.restrict(target, mounts.NOSUID | mounts.NODEV)
        os.close(source)

    @property
    def _thrown_away(self) -> list[Path]:
        home = [self._home] if self._home is not None else []
        return [*home, self._above] if self._needs_room else home

    @property
    def _needs_room(self) -> bool:
        if self._above in (self._seen_at, Path("/")):
            return False
        return self._home is None or not self._above.is_relative_to(self._home)


def nearest_existing(path: Path) -> Path:
    """The deepest directory of `path` that exists."""
    for directory in (path, *path.parents):
        if directory.is_dir():
            return directory
    return Path("/")


def _throw_away_writes(directory: Path, room: Path) -> None:
    """From now on, writes in `directory` stay in memory, and only this world sees them."""
    lower = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    os.makedirs(room, exist_ok=True)
    mounts.mount(b"tmpfs", os.fsencode(room), b"tmpfs", _FLAGS, b"mode=755")
    for name in ("upper", "work"):
        os.mkdir(room / name, 0o755)
    inside = os.open(room, os.O_PATH | os.O_DIRECTORY)
    options = b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper" % (lower, inside)
    options += b",workdir=/proc/self/fd/%d/work" % inside
    if os.geteuid() != 0:
        options += b",userxattr"
    mounts.mount(b"substrate", os.fsencode(directory), b"overlay", _FLAGS, options)
    os.close(lower)
    os.close(inside)


def _enter_new_root(scratch: Path) -> None:
    """A root in memory that shows all that the old one does, and has room for more."""
    root = os.fsencode(scratch / "root")
    os.makedirs(root, exist_ok=True)
    mounts.mount(b"tmpfs", root, b"tmpfs", _FLAGS, b"mode=755")
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
