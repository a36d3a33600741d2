"""A world that is made before its command is known, for the process that will run it.

Making one takes longer than most commands do: processes, namespaces, some twenty mounts. The
agent's next process makes it while nobody waits, from the recipe of the last one. When the command
comes, the world that it should get is described once more; only if that is the very same recipe,
and the machine still looks as it did, the one made ahead is used. Otherwise it goes, and the
ordinary way is taken.

Nothing is ever looked up through a new view before the command does: the kernel has nothing of the
workspace in it yet that could be out of date (docs/decisions/0030-a-world-ahead.md). Where commands
walk the tree and change nothing, the view of one is used for the next, with what it has looked up,
if the workspace has stood still since before (docs/decisions/0033-a-view-used-again.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.system import afterwards, clock, files
from substrate.system.linux import mounts
from substrate.system.watch_talk import StillTree, tree_of
from substrate.workspace import untouched
from substrate.world import aside, layers, probe
from substrate.world import kept as views
from substrate.world.kept import Kept
from substrate.world.news import News
from substrate.world.open_world import Ended, OpenWorld, open_world
from substrate.world.protocol import Layer, Network
from substrate.world.recipe import Recipe
from substrate.world.sandbox import submounts

#: Where new disks show up, and would have to be hidden.
_DEVICE_DIRECTORIES = (b"/dev", b"/dev/mapper")
#: Who took at least so long and changed nothing may have walked the tree.
_WALK_NS = 30_000_000

#: Asks who watches a workspace whether it stands still.
Ask = Callable[[bytes], StillTree]


class Warm:
    """How to have views that are used again: whom to ask, and the last command's, if there is one.

    The mount's descriptor is `prepare`'s to close.
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
    #: Tells if anything happens; only if the view has looked something up already.
    still: StillTree | None = None
    #: Nothing has happened in the tree since before the first look, if this is its token.
    token: bytes = b""
    attributes: tuple[tuple[str, bytes], ...] = ()
    born_ns: int = 0


news = News()
_made: Made | None = None
#: The one that was taken, while its view may still be used again.
_in_use: Made | None = None
_put_by: Layer | None = None


def prepare(
    recipe: Recipe, warm: Warm | None = None, meanwhile: Iterator[object] | None = None
) -> None:
    """Make a world ahead; if that cannot be done, the command will say why.

    `meanwhile` does a piece of work at each step, while other processes make it.
    """
    global _made
    try:
        # Asked before it is made: whatever changes from here on is then noticed.
        token = b"" if warm is None else _token(warm.ask, recipe.root, in_passing=True)
        looks = _looks(recipe)
        if not _is_plain(recipe) or not os.path.isdir(recipe.worlds):
            return
        made = None
        if warm is not None and token:
            made = _make_used(recipe, looks, token, warm, meanwhile)
        if warm is not None:
            warm.close()  # nothing that is forked from here on may hold it
        if made is None:
            made = _make_new(recipe, looks, meanwhile, keeps_view=bool(token))
        if warm is not None and token:
            made = made._replace(ask=warm.ask, attributes=views.attributes(made.layer))
    except (SubstrateError, OSError):
        return
    finally:
        if warm is not None:
            warm.close()
    # Asked for again, and remembered.
    mounts.file_system_of(os.path.dirname(recipe.worlds))
    probe.probe()
    _made = made


def _token(ask: Ask, root: bytes, *, in_passing: bool = False) -> bytes:
    still = ask(root)
    try:
        return still.token(in_passing=in_passing)
    finally:
        still.close()


def _same_tree(token: bytes, other: bytes) -> bool:
    """For a view through which nobody has looked in between."""
    return bool(token) and tree_of(token) == tree_of(other)


def _make_new(
    recipe: Recipe,
    looks: tuple[object, ...],
    meanwhile: Iterator[object] | None,
    *,
    keeps_view: bool,
) -> Made:
    from substrate.world import overlay

    root, worlds = Path(os.fsdecode(recipe.root)), Path(os.fsdecode(recipe.worlds))
    where = aside.place(worlds, root, Path(os.fsdecode(recipe.elsewhere)))
    if where != worlds:
        aside.sweep(where)
    layer = overlay.new_layer(where, aside.name(), root, ahead=True)
    view = overlay.overlay_view(layer)
    made = _opened(recipe, looks, layer, view, meanwhile, keeps_view=keeps_view)
    layers.smooth(layer)
    return made


def _make_used(
    recipe: Recipe,
    looks: tuple[object, ...],
    token: bytes,
    warm: Warm,
    meanwhile: Iterator[object] | None,
) -> Made | None:
    """With the last command's view; None if there is none, or it may show what is no more."""
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
        pass  # somebody has tidied up, or the kernel does not let it go from one to the other
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
    from substrate.world.network.choose import network_for

    try:
        network = network_for("open")
        sandbox = recipe.sandbox(layer, mount_view, network)
        sandbox = sandbox._replace(is_ahead=True, keeps_view=keeps_view)
        opened = open_world(sandbox, meanwhile)
    except (SubstrateError, OSError):
        with suppress(OSError):
            layers.remove(layer)
        raise
    return Made(recipe, looks, layer, opened, network, born_ns=clock.monotonic_ns())


def take(recipe: Recipe, world_id: str) -> Made | None:
    """The world made ahead, as `world_id`, if it is what `recipe` would give now."""
    global _made, _in_use, news
    made, _made = _made, None
    news = News(recipe.root, recipe)
    if made is not None:
        try:
            if made.recipe == recipe and made.looks == _looks(recipe) and made.opened.is_there:
                taken = _taken(made, world_id)
                if taken is not None:
                    news = news._replace(was_ahead=True, was_warm=made.still is not None)
                    _in_use = taken
                    return taken
        except OSError:
            pass  # its directory is gone, or what it covers
        _remove(made)
    return None


def _taken(made: Made, world_id: str) -> Made | None:
    """Under the name of its command; None if its view may show what is no more."""
    token = b""
    if made.still is not None:
        token = made.still.token()
        upper = os.fsencode(made.layer.upper)
        if not _same_tree(token, made.token):
            return None
        if untouched.copied_directories(upper, made.recipe.root) is None:
            return None
        made.still.close()
    elif made.ask is not None:
        # Nothing is looked up before the command does: its view begins now.
        token = _token(made.ask, made.recipe.root)
    layer = layers.renamed(made.layer, Path(os.fsdecode(made.recipe.worlds)), world_id)
    views.set_times(layer)
    return made._replace(layer=layer, token=token)


def over(layer: Layer, ended: Ended) -> None:
    """The command in `layer` has ended, and nothing is done about its change yet: what is moved
    out of the layer later on must not make it look as if there had been none."""
    global _in_use, news
    made, _in_use = _in_use, None
    took_long = ended.finished.duration_ns >= _WALK_NS
    may_keep = made is not None and made.opened.view >= 0 and bool(made.token)
    if made is not None and may_keep and not ended.left_running:
        # While the command looked through it, not even a lock may have come and gone.
        stood_still = made.ask is not None and _token(made.ask, made.recipe.root) == made.token
        # Who had been given a directory of this view would be in the next command's.
        is_alone = made.network is not None and made.network.passed_nothing
        if stood_still and is_alone and views.says_nothing(layer, made.attributes):
            news = news._replace(walked=took_long)
            _in_use = made
            return
    elif took_long and not ended.left_running and layer.kind == "overlay":
        with suppress(OSError):
            upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
            is_nothing = untouched.copied_directories(upper, root) is not None
            news = news._replace(walked=is_nothing)
    if made is not None:
        made.opened.drop_view()


def leave(layer: Layer, elsewhere: Path) -> None:
    """Nothing of the command's world is needed any more: out of the project before the answer, and
    cleared away after it."""
    global _in_use
    worlds = layer.directory.parent
    where = aside.place(worlds, layer.lower, elsewhere)
    if where != worlds:
        with suppress(OSError):
            moved = aside.put(layer, where)
            if _in_use is not None and _in_use.layer == layer:
                _in_use = _in_use._replace(layer=moved)
            layer = moved
        # Here, too: where no world can be made ahead nobody else would.
        afterwards.clear(partial(aside.sweep, where))
    afterwards.clear(partial(layers.remove, layer, worlds))


def settle() -> int:
    """After the answer: put the view by for the next command, and say so in `news`.

    The mount to hand over with them, or -1.
    """
    global _in_use, _put_by, news
    made, _in_use = _in_use, None
    if made is None:
        return -1
    made.opened.wait_until_gone()
    kept = Kept(
        b"", made.recipe.root, made.layer.xattr_prefix, made.token, _digest(made.looks),
        made.born_ns,
    )  # fmt: skip
    try:
        if not kept.is_old and views.says_nothing(made.layer, made.attributes):
            _put_by = views.put_by(made.layer)
    except OSError:
        pass
    if _put_by is None:
        made.opened.drop_view()
    else:
        news = news._replace(kept=kept._replace(directory=os.fsencode(_put_by.directory)))
    return made.opened.view


def see_off() -> None:
    """At the end of all: what was put by is taken by now, or goes."""
    global _put_by
    layer, _put_by = _put_by, None
    if layer is not None:
        views.see_off(layer)


def stirs() -> int:
    """Readable when what waits here is out of date; -1 if it cannot be."""
    return -1 if _made is None or _made.still is None else _made.still.fileno()


def forget(root: bytes, then: Recipe | None = None) -> None:
    """The world that is needed now is not made ahead; the next one may be, like `then`."""
    global news
    news = News(root, then)
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
    if made.still is not None:
        made.still.close()
    made.opened.close()
    afterwards.clear(lambda: layers.remove(made.layer))


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


def _digest(looks: tuple[object, ...]) -> bytes:
    """What is mounted can be told at length, and is passed on."""
    import hashlib

    return hashlib.sha256(repr(looks).encode()).digest()


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
