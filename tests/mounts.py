"""File systems that a test mounts for itself, and takes away whatever happens."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Another process that reads every mount (`df` does) keeps one busy for a moment.
_TRIES, _PAUSE_S = 100, 0.05


@contextmanager
def mounted(place: Path, *words: str) -> Iterator[Path]:
    """``mount WORDS place``, and unmounted at the end."""
    subprocess.run(["mount", *words, str(place)], check=True)
    try:
        yield place
    finally:
        unmount(place)


def tmpfs_words(**options: str) -> list[str]:
    """For `mounted`: a file system in memory, such as ``tmpfs_words(size="1m")``."""
    chosen = ",".join(f"{name}={value}" for name, value in options.items())
    return ["-t", "tmpfs", *(["-o", chosen] if chosen else []), "tmpfs"]


@contextmanager
def mounted_exfat(base: Path) -> Iterator[Path]:
    """A small exFAT of its own below `base`: names fold, and every file has the same mode."""
    image, top = base / "exfat.image", base / "exfat"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    top.mkdir()
    subprocess.run(["mkfs.exfat", str(image)], check=True, capture_output=True)
    with mounted(top, "-t", "exfat-fuse", "-o", "loop", str(image)):
        yield top


def unmount(place: Path) -> None:
    """Unmount it. If processes keep it busy for long, name them and detach it anyway.

    A mount that stayed would break every later run: pytest could not remove its directories.
    """
    done = None
    for _ in range(_TRIES):
        done = subprocess.run(["umount", str(place)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(_PAUSE_S)
    users = _users(place)
    subprocess.run(["umount", "-l", str(place)], check=True)
    raise AssertionError(f"{done.stderr if done else ''}; in use by {users}")


def _users(place: Path) -> list[str]:
    """Processes with a file, a directory or a mapping there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        links = [process / "cwd", process / "root", *_listed(process / "fd")]
        links += _listed(process / "map_files")
        held = {target for link in links if (target := _target(link)).startswith(str(place))}
        if held:
            name = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(f"{process.name} ({name.strip()}): {sorted(held)}")
    return found


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""
