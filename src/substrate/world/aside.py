"""Where a world lies that is no command's: made ahead, put by for the next one, or on its way out.

Not in the project: once answered, a caller may remove or move that (``rm -rf``, a test's cleanup),
and who removes a directory fails if a name comes up in it meanwhile; some fail if one goes, too. So
such a world lies in `$SUBSTRATE_HOME/worlds`, if it can be renamed from there to where it belongs
and is then as if it had been made there; else beside the others, as each is while its command runs.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from substrate.system import files, ids, platform
from substrate.world import layers
from substrate.world.protocol import Layer

_NOBODYS = "ahead-"


def name() -> str:
    """Whose it is shows from the first moment on: who tidies up leaves it to us."""
    return f"{_NOBODYS}{os.getpid()}-{ids.new_id('wld')}"


@cache
def place(worlds: Path, root: Path, elsewhere: Path) -> Path:
    """`elsewhere`, if a world of `root` can be taken from there to `worlds`, or else `worlds`."""
    from substrate.system.linux.same_ground import is_same_ground

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
    """Nobody's from now on, and in `where`. What is mounted over it does not mind."""
    directory = where / name()
    os.rename(layer.directory, directory)
    return layer._replace(
        world_id=directory.name, directory=directory, upper=directory / layers.UPPER
    )


def sweep(where: Path) -> None:
    """Clear away what those left who were killed."""
    for found in os.listdir(where):
        # By the number alone: this is done for every world. Where another process has it by now
        # the rest stays until that has ended, too.
        maker, _, world = found.removeprefix(_NOBODYS).partition("-")
        is_named_so = found.startswith(_NOBODYS) and world.startswith("wld_")
        if is_named_so and maker.isdecimal() and not platform.pid_alive(int(maker)):
            with suppress(OSError):  # somebody else is at it, or it was taken after all
                # Only what is ours by name goes: its maker may live where we cannot see him.
                mine = where / name()
                os.rename(where / found, mine)
                files.remove_tree(mine)
