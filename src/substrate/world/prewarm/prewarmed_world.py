"""A world that is made before its command is known, for the process that will run it.

Making a world takes longer than most commands do: processes, namespaces, some twenty mounts. The
daemon's next process makes it before a call arrives, from the recipe of the last one. When the
command comes, its world is described again. If that gives the same recipe, and the machine still
looks as it did, the world made ahead is used. Otherwise it is dropped, and the command's world is
made in the ordinary way.

Nothing is ever looked up through a new view before the command does: the kernel has nothing of the
workspace in it yet that could be out of date (docs/decisions/0030-a-world-ahead.md). Where commands
walk the tree and change nothing, the view of one is used for the next, with what it has looked up,
if the workspace has been quiet since before (docs/decisions/0033-a-view-used-again.md).
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.system import StillTree, clock, tree_of
from substrate.system.files import files
from substrate.system.linux import mounts
from substrate.system.process import deferred_work
from substrate.workspace.apply import layer_is_noop
from substrate.world.capabilities import machine_probe
from substrate.world.interface import Layer, Network
from substrate.world.layer import layer_dirs
from substrate.world.prewarm import parked_layers
from substrate.world.prewarm import reused_view as views
from substrate.world.prewarm.no_prewarm import PlainWorlds
from substrate.world.prewarm.reused_view import Kept
from substrate.world.process import Ended, OpenWorld, Recipe, open_world, submounts

#: Where new disks appear, which would have to be hidden.
_DEVICE_DIRECTORIES = (b"/dev", b"/dev/mapper")
#: A command that took at least so long and changed nothing may have walked the tree.
_WALK_NS = 30_000_000

#: Connects to the watcher, which knows whether a workspace is quiet.
Ask = Callable[[bytes], StillTree]


class Warm:
    """How to get views that are used again: how to ask the watcher, and the last command's view.

    `prepare` closes the mount's descriptor.
    """

    def __init__(self, ask: Ask, kept: Kept | None = None, view: int = -1) -> None:
        self.ask = ask
        self.kept = kept
        self.view = view

    def close(self) -> None:
        if self.view >= 0:
            os.close(self.view)
        self.kept, self.view = None, -1


class Made(NamedTuple):
    """A world that waits for its command, or has got it."""

    recipe: Recipe
    looks: tuple[object, ...]
    layer: Layer
    opened: OpenWorld
    network: Network | None
    #: None: its view is not used again.
    ask: Ask | None = None
    #: Reports activity in the tree; only if the view has already been looked through.
    still: StillTree | None = None
    #: If the tree still has this token, nothing has happened in it since before the first look.
    token: bytes = b""
    attributes: tuple[tuple[str, bytes], ...] = ()
    born_ns: int = 0


class News(NamedTuple):
    """A process's report about the world that it needed, for the next process."""

    #: The workspace; empty if it needed no world.
    root: bytes = b""
    #: How it was made, if one like it can be made ahead.
    recipe: Recipe | None = None
    was_ahead: bool = False
    #: Its view had been used before.
    was_warm: bool = False
    #: It took a while and changed nothing: the next command may gain from a used view.
    walked: bool = False
    #: Its own view; the mount is sent along with the report.
    kept: Kept | None = None

    def encode(self) -> bytes:
        recipe = None if self.recipe is None else tuple(self.recipe)
        kept = None if self.kept is None else tuple(self.kept)
        words = (self.root, recipe, self.was_ahead, self.was_warm, self.walked, kept)
        return marshal.dumps(words)  # type: ignore[arg-type]

    @classmethod
    def decode(cls, data: bytes) -> News:
        """Decodes only what our own `encode` made."""
        root, recipe, was_ahead, was_warm, walked, kept = marshal.loads(data)
        return cls(
            root, None if recipe is None else Recipe(*recipe), was_ahead, was_warm, walked,
            None if kept is None else Kept(*kept),
        )  # fmt: skip


class WorldsAhead(PlainWorlds):
    """This process's world made ahead, and the view that it may keep for the next one."""

    def __init__(self) -> None:
        #: What the next process should know.
        self.news = News()
        self.made: Made | None = None
        #: The world that was taken, while its view may still be used again.
        self._in_use: Made | None = None
        self._put_by: Layer | None = None

    def prepare(
        self, recipe: Recipe, warm: Warm | None = None, meanwhile: Iterator[object] | None = None
    ) -> None:
        """Make a world ahead. If that fails, making the command's own world will report why.

        `meanwhile` does a piece of work at each step, while other processes make the world.
        """
        try:
            # Ask before it is made: whatever changes from here on is then noticed.
            token = b"" if warm is None else _token(warm.ask, recipe.root, in_passing=True)
            looks = _looks(recipe)
            if not _is_plain(recipe) or not os.path.isdir(recipe.worlds):
                return
            made = None
            if warm is not None and token:
                made = _make_used(recipe, looks, token, warm, meanwhile)
            if warm is not None:
                warm.close()  # no process that is forked from here on may hold it
            if made is None:
                made = _make_new(recipe, looks, meanwhile, keeps_view=bool(token))
            if warm is not None and token:
                made = made._replace(ask=warm.ask, attributes=views.attributes(made.layer))
        except (SubstrateError, OSError):
            return
        finally:
            if warm is not None:
                warm.close()
        # The command will ask for these again; their results are remembered.
        mounts.file_system_of(os.path.dirname(recipe.worlds))
        machine_probe.probe()
        self.made = made

    def take(self, recipe: Recipe, world_id: str) -> Made | None:
        """The world made ahead, as `world_id`, if `recipe` would give the same now."""
        made, self.made = self.made, None
        self.news = News(recipe.root, recipe)
        if made is not None:
            try:
                if made.recipe == recipe and made.looks == _looks(recipe) and made.opened.is_there:
                    taken = _taken(made, world_id)
                    if taken is not None:
                        is_warm = made.still is not None
                        self.news = self.news._replace(was_ahead=True, was_warm=is_warm)
                        self._in_use = taken
                        return taken
            except OSError:
                pass  # its directory is gone, or what it covers
            _remove(made)
        return None

    def over(self, layer: Layer, ended: Ended) -> None:
        """Decide now whether the view may be kept: once files are moved out of the layer, it would
        look as if the command had changed nothing."""
        made, self._in_use = self._in_use, None
        took_long = ended.finished.duration_ns >= _WALK_NS
        may_keep = made is not None and made.opened.view >= 0 and bool(made.token)
        if made is not None and may_keep and not ended.left_running:
            # While the command looked through it, not even a lock may have come and gone.
            stood_still = made.ask is not None and _token(made.ask, made.recipe.root) == made.token
            # A process outside with a descriptor of this view would reach into the next one's.
            is_alone = made.network is not None and made.network.passed_nothing
            if stood_still and is_alone and views.says_nothing(layer, made.attributes):
                self.news = self.news._replace(walked=took_long)
                self._in_use = made
                return
        elif took_long and not ended.left_running and layer.kind == "overlay":
            with suppress(OSError):
                upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
                is_nothing = layer_is_noop.copied_directories(upper, root) is not None
                self.news = self.news._replace(walked=is_nothing)
        if made is not None:
            made.opened.drop_view()

    def discard(self, layer: Layer, elsewhere: Path) -> None:
        if deferred_work.is_postponing():
            self.leave(layer, elsewhere)
        else:
            super().discard(layer, elsewhere)

    def leave(self, layer: Layer, elsewhere: Path) -> None:
        """Move the world out of the project before the answer, and remove it after that."""
        worlds = layer.directory.parent
        where = parked_layers.place(worlds, layer.lower, elsewhere)
        if where != worlds:
            with suppress(OSError):
                moved = parked_layers.put(layer, where)
                if self._in_use is not None and self._in_use.layer == layer:
                    self._in_use = self._in_use._replace(layer=moved)
                layer = moved
            # Sweep here, too: where no world can be made ahead no other process does it.
            deferred_work.clear(partial(parked_layers.sweep, where))
        deferred_work.clear(partial(layer_dirs.remove, layer, worlds))

    def settle(self) -> int:
        """After the answer: keep the view for the next command, and say so in `news`.

        Returns the mount to hand over with them, or -1.
        """
        made, self._in_use = self._in_use, None
        if made is None:
            return -1
        made.opened.wait_until_gone()
        kept = Kept(
            b"", made.recipe.root, made.layer.xattr_prefix, made.token, _digest(made.looks),
            made.born_ns,
        )  # fmt: skip
        try:
            if not kept.is_old and views.says_nothing(made.layer, made.attributes):
                self._put_by = views.put_by(made.layer)
        except OSError:
            pass
        if self._put_by is None:
            made.opened.drop_view()
        else:
            kept = kept._replace(directory=os.fsencode(self._put_by.directory))
            self.news = self.news._replace(kept=kept)
        return made.opened.view

    def see_off(self) -> None:
        """At the very end: the kept view has been taken by now, or is removed."""
        layer, self._put_by = self._put_by, None
        if layer is not None:
            views.see_off(layer)

    def stirs(self) -> int:
        """Readable when the world made ahead is out of date; -1 if that cannot happen."""
        return -1 if self.made is None or self.made.still is None else self.made.still.fileno()

    def forget(self, root: bytes, then: Recipe | None = None) -> None:
        """The world that is needed now is not made ahead; the next one may be, like `then`."""
        self.news = News(root, then)
        self.drop()

    def drop(self) -> None:
        """Remove the world that was made ahead."""
        made, self.made = self.made, None
        if made is not None:
            _remove(made)


def _token(ask: Ask, root: bytes, *, in_passing: bool = False) -> bytes:
    still = ask(root)
    try:
        return still.token(in_passing=in_passing)
    finally:
        still.close()


def _same_tree(token: bytes, other: bytes) -> bool:
    """For a view through which no process has looked in between."""
    return bool(token) and tree_of(token) == tree_of(other)


def _make_new(
    recipe: Recipe,
    looks: tuple[object, ...],
    meanwhile: Iterator[object] | None,
    *,
    keeps_view: bool,
) -> Made:
    from substrate.world.strategies import overlay

    root, worlds = Path(os.fsdecode(recipe.root)), Path(os.fsdecode(recipe.worlds))
    where = parked_layers.place(worlds, root, Path(os.fsdecode(recipe.elsewhere)))
    if where != worlds:
        parked_layers.sweep(where)
    layer = overlay.new_layer(where, layer_dirs.nobodys_name(where), root, ahead=True)
    view = overlay.overlay_view(layer)
    return _opened(recipe, looks, layer, view, meanwhile, keeps_view=keeps_view)


def _make_used(
    recipe: Recipe,
    looks: tuple[object, ...],
    token: bytes,
    warm: Warm,
    meanwhile: Iterator[object] | None,
) -> Made | None:
    """With the last command's view; None if there is none, or if it may be out of date."""
    kept, still = warm.kept, None
    if kept is None or kept.is_old or kept.looks != _digest(looks):
        return None
    if not _same_tree(kept.token, token):
        return None
    try:
        view = views.attach(warm.view, recipe.root)
        made = _opened(recipe, looks, views.take_over(kept), view, meanwhile, keeps_view=True)
        still = warm.ask(recipe.root)
        made = made._replace(still=still, token=token, born_ns=kept.born_ns)
        if _same_tree(still.token(in_passing=True), token):
            return made
        _remove(made)
    except (SubstrateError, OSError):
        pass  # another process has tidied up, or the kernel refuses to move the mount
    return None


def _opened(
    recipe: Recipe,
    looks: tuple[object, ...],
    layer: Layer,
    mount_view: Callable[[], None],
    meanwhile: Iterator[object] | None,
    *,
    keeps_view: bool,
) -> Made:
    from substrate.world.network import network_for

    try:
        network = network_for("open")
        sandbox = recipe.sandbox(layer, mount_view, network)
        sandbox = sandbox._replace(is_ahead=True, keeps_view=keeps_view)
        opened = open_world(sandbox, meanwhile)
    except (SubstrateError, OSError):
        with suppress(OSError):
            layer_dirs.remove(layer)
        raise
    return Made(recipe, looks, layer, opened, network, born_ns=clock.monotonic_ns())


def _taken(made: Made, world_id: str) -> Made | None:
    """Give it the id of its command; None if its view may be out of date."""
    token = b""
    if made.still is not None:
        token = made.still.token()
        upper = os.fsencode(made.layer.upper)
        if not _same_tree(token, made.token):
            return None
        if layer_is_noop.copied_directories(upper, made.recipe.root) is None:
            return None
        made.still.close()
    elif made.ask is not None:
        # Nothing is looked up before the command does: its view begins now.
        token = _token(made.ask, made.recipe.root)
    layer = layer_dirs.renamed(made.layer, Path(os.fsdecode(made.recipe.worlds)), world_id)
    views.set_times(layer)
    return made._replace(layer=layer, token=token)


def _remove(made: Made) -> None:
    if made.still is not None:
        made.still.close()
    made.opened.close()
    deferred_work.clear(lambda: layer_dirs.remove(made.layer))


def _is_plain(recipe: Recipe) -> bool:
    """Whether nothing but the view itself is mounted below the root: to mount something there,
    names would have to be looked up through the view."""
    inside = recipe.root.rstrip(b"/") + b"/"
    return not any(path.startswith(inside) for path in recipe.read_only) and not submounts(
        recipe.root
    )


def _looks(recipe: Recipe) -> tuple[object, ...]:
    """What making a world depends on besides its recipe."""
    mounted = files.read_kernel_file("/proc/self/mountinfo")
    root = os.stat(recipe.root)
    paths = (*recipe.read_only, *recipe.masked, *recipe.writable, *recipe.readable)
    return (
        mounted,
        (root.st_dev, root.st_ino, root.st_mode, root.st_uid, root.st_gid),
        tuple(_identity(path) for path in (*paths, *recipe.private)),
        tuple(_changed_ns(path) for path in _DEVICE_DIRECTORIES),
    )


def _digest(looks: tuple[object, ...]) -> bytes:
    """A short form to pass on: the list of mounts can be long."""
    import hashlib

    return hashlib.sha256(repr(looks).encode()).digest()


def _identity(path: bytes) -> tuple[int, int] | None:
    """A mount disappears with the file it is on: that must be the same file as before."""
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
