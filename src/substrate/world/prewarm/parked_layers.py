"""Where worlds that belong to no command are: made ahead, kept for the next, or to be removed.

They are not in the project. After its answer, a caller may remove or move the project (``rm -rf``,
a test's cleanup), and removing a directory fails if a name appears in it during the removal; some
programs also fail if a name disappears. So such a world is in `$SUBSTRATE_HOME/worlds`, if it can
be renamed from there to its own place and then behaves as if it had been made there. Otherwise it
is beside the others, as each world is while its command runs.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from substrate.system.files import files
from substrate.system.sync import liveness_locks
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs


@cache
def place(worlds: Path, root: Path, elsewhere: Path) -> Path:
    """`elsewhere`, if a world of `root` can be renamed from there to `worlds`; or else `worlds`."""
    from substrate.system.linux import is_same_ground

    if not elsewhere.is_absolute() or not all(map(_is_ours, (elsewhere.parent, elsewhere))):
        return worlds
    if f"{files.real_path(elsewhere)}{os.sep}".startswith(f"{root}{os.sep}"):
        return worlds
    is_same = is_same_ground(os.fsencode(worlds), os.fsencode(elsewhere))
    return elsewhere if is_same else worlds


def _is_ours(directory: Path) -> bool:
    try:
        found = os.stat(directory)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def put(layer: Layer, where: Path) -> Layer:
    """Move it to `where`; it belongs to no command from now on. Mounts over it are not affected."""
    directory = where / layer_dirs.nobodys_name(where)
    os.rename(layer.directory, directory)
    return layer._replace(
        world_id=directory.name, directory=directory, upper=directory / layer_dirs.UPPER
    )


def sweep(where: Path) -> None:
    """Remove the worlds of processes that were killed."""
    for found in os.listdir(where):
        made_by = found.removeprefix(layer_dirs.NOBODYS)
        is_named_so = made_by != found and "-wld_" in made_by
        if is_named_so and not liveness_locks.is_marked_alive(where.parent, made_by):
            with suppress(OSError):  # another process removes it, or has taken it after all
                mine = where / layer_dirs.nobodys_name(where)
                os.rename(where / found, mine)
                files.remove_tree(mine)
