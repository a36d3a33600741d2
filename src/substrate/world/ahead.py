"""A world that is made before its command is known, for the process that will run it.

Making one takes longer than most commands do: processes, namespaces, some twenty mounts. The
agent's next process makes it while nobody waits, from the recipe of the last one. When the command
comes, the world that it should get is described once more; only if that is the very same recipe,
and the machine still looks as it did, the one made ahead is used. Otherwise it goes, and the
ordinary way is taken.

Nothing is ever looked up through the view before the command does: the kernel has nothing of the
workspace in it yet that could be out of date (docs/decisions/0030-a-world-ahead.md).
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.system import afterwards, files, ids
from substrate.system.linux import mounts
from substrate.world import layers, probe
from substrate.world.open_world import OpenWorld, open_world
from substrate.world.protocol import Layer, Network
from substrate.world.sandbox import Sandbox, submounts

#: Where new disks show up, and would have to be hidden.
_DEVICE_DIRECTORIES = (b"/dev", b"/dev/mapper")


class Recipe(NamedTuple):
    """All that decides how a world is made. Plain values: it is passed between processes."""

    #: Where the layer goes.
    worlds: bytes
    root: bytes
    tier: str
    read_only: tuple[bytes, ...]
    masked: tuple[bytes, ...]
    writable: tuple[bytes, ...]
    readable: tuple[bytes, ...]
    private: tuple[bytes, ...]
    #: The directory of its door.
    door: bytes = b""

    def sandbox(
        self, layer: Layer, mount_view: Callable[[], None], network: Network | None
    ) -> Sandbox:
        return Sandbox(
            root=self.root,
            mount_view=mount_view,
            tier=self.tier,
            read_only=self.read_only,
            masked=self.masked,
            writable=self.writable,
            readable=self.readable,
            private=self.private,
            scratch=os.fsencode(layers.scratch(layer)) if self.tier == "full" else b"",
            network=network,
            door=self.door,
        )


class Made(NamedTuple):
    """A world that waits for its command."""

    recipe: Recipe
    looks: tuple[object, ...]
    layer: Layer
    opened: OpenWorld
    network: Network | None


class News(NamedTuple):
    """What a process can tell of the world that it needed, for the next one."""

    #: The workspace; empty if it needed none.
    root: bytes = b""
    #: How it was made, if one like it can be made ahead.
    recipe: Recipe | None = None
    was_ahead: bool = False

    def encode(self) -> bytes:
        recipe = None if self.recipe is None else tuple(self.recipe)
        return marshal.dumps((self.root, recipe, self.was_ahead))  # type: ignore[arg-type]

    @classmethod
    def decode(cls, data: bytes) -> News:
        """Of our own `encode` only."""
        root, recipe, was_ahead = marshal.loads(data)
        return cls(root, None if recipe is None else Recipe(*recipe), was_ahead)


news = News()
_made: Made | None = None


def prepare(recipe: Recipe) -> None:
    """Make a world ahead; if that cannot be done, the command will say why."""
    global _made
    from substrate.world import overlay
    from substrate.world.network.choose import network_for

    layer = None
    try:
        # Asked before it is made: whatever changes from here on is then noticed.
        looks = _looks(recipe)
        root = Path(os.fsdecode(recipe.root))
        worlds = Path(os.fsdecode(recipe.worlds))
        if not _is_plain(recipe) or not worlds.is_dir():
            return
        # Whose it is shows from the first moment on: who tidies up leaves it to us.
        name = f"ahead-{os.getpid()}-{ids.new_id('wld')}"
        layer = overlay.new_layer(worlds, name, root, ahead=True)
        network = network_for("open")
        sandbox = recipe.sandbox(layer, overlay.overlay_view(layer), network)
        opened = open_world(sandbox._replace(is_ahead=True))
    except (SubstrateError, OSError):
        if layer is not None:
            with suppress(OSError):
                layers.remove(layer)
        return
    layers.smooth(layer)
    # Asked for again, and remembered.
    mounts.file_system_of(os.path.dirname(recipe.worlds))
    probe.probe()
    _made = Made(recipe, looks, layer, opened, network)


def take(recipe: Recipe, world_id: str) -> Made | None:
    """The world made ahead, as `world_id`, if it is what `recipe` would give now."""
    global _made, news
    made, _made = _made, None
    news = News(recipe.root, recipe)
    if made is not None:
        try:
            if made.recipe == recipe and made.looks == _looks(recipe) and made.opened.is_there:
                layer = layers.renamed(made.layer, world_id)
                news = news._replace(was_ahead=True)
                return made._replace(layer=layer)
        except OSError:
            pass  # its directory is gone, or what it covers
        _remove(made)
    return None


def forget(root: bytes) -> None:
    """The world that is needed now is no ordinary one: none like it is to be made ahead."""
    global news
    news = News(root)
    drop()


def drop() -> None:
    """Do away with the world that was made ahead."""
    global _made
    made, _made = _made, None
    if made is not None:
        _remove(made)


def is_made() -> bool:
    return _made is not None


def _remove(made: Made) -> None:
    made.opened.close()
    afterwards.do(lambda: layers.remove(made.layer))


def _is_plain(recipe: Recipe) -> bool:
    """Whether nothing but the view itself is mounted below the root: to mount something there,
    names would have to be looked up through the view."""
    inside = recipe.root.rstrip(b"/") + b"/"
    return not any(path.startswith(inside) for path in recipe.read_only) and not submounts(
        recipe.root
    )


def _looks(recipe: Recipe) -> tuple[object, ...]:
    """What the making of a world looks at besides its recipe."""
    mounted = files.read_kernel_file("/proc/self/mountinfo")
    root = os.stat(recipe.root)
    paths = (*recipe.read_only, *recipe.masked, *recipe.writable, *recipe.readable)
    return (
        mounted,
        (root.st_dev, root.st_ino, root.st_mode, root.st_uid, root.st_gid),
        tuple(_identity(path) for path in (*paths, *recipe.private)),
        tuple(_changed_ns(path) for path in _DEVICE_DIRECTORIES),
    )


def _identity(path: bytes) -> tuple[int, int] | None:
    """A mount goes away with the file it is on: what stands there now must be what stood there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _changed_ns(path: bytes) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
