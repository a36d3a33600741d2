"""A scratch directory that commands in a world cannot write to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def private_scratch(home: Path) -> Iterator[Path]:
    """A directory in ``$SUBSTRATE_HOME``, removed at the end.

    Worlds see the home read-only. The temporary directory is no place for this: every command may
    write there, and could plant a link or change a file between our write and our read.
    """
    top = home / "scratch"
    os.makedirs(top, 0o700, exist_ok=True)
    with TemporaryDirectory(dir=top) as place:
        yield Path(place)
