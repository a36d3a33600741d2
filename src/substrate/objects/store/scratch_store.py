"""An object store that reads a repository but writes elsewhere: for queries and dry runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from substrate.objects.store.object_store import ObjectStore
from substrate.system.files import remove_tree


@contextmanager
def objects_aside(git_dir: Path) -> Iterator[ObjectStore]:
    """Like `ObjectStore`, but new objects go to a private directory that is removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="substrate-aside-"))
    try:
        (place / "info").mkdir(mode=0o700)
        (place / "pack").mkdir(mode=0o700)
        real = os.fsencode(os.path.abspath(git_dir / "objects"))
        (place / "info" / "alternates").write_bytes(real + b"\n")
        objects = ObjectStore(git_dir, place)
        try:
            yield objects
        finally:
            objects.close()
    finally:
        remove_tree(place)
