"""Where a running shell has its pipes: ``$SUBSTRATE_HOME/shells/<pid>-<start>``.

Not in a temporary directory: commands in a world see this one read-only, and a pipe can be
written to all the same. What a killed shell left is removed when the next one starts.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from substrate.system import files, platform

_KEPT = "kept-for"
_OLD = "substrate-shell-"
_OLD_PID = re.compile(rb"^__substrate_pid=(\d+)$", re.MULTILINE)


def make(home: Path) -> Path:
    """A new one, for this process."""
    shells = home / "shells"
    os.makedirs(shells, 0o700, exist_ok=True)
    remove_dead(shells)
    _remove_old(Path(tempfile.gettempdir()))
    path = shells / _name(os.getpid())
    files.remove_tree(path)  # of an earlier boot, with the very same numbers
    path.mkdir(0o700)
    return path


def room(directory: Path) -> Path:
    """Where views go in which jobs are at work."""
    path = directory / "views"
    path.mkdir(0o700, exist_ok=True)
    return path


def keep_for(room: Path, init_pid: int) -> None:
    """Jobs outlive their shell. Were their views' places removed, they would lose their path."""
    (room.parent / _KEPT).write_text(_name(init_pid), "ascii")


def remove(directory: Path) -> None:
    if not _is_kept(directory):
        files.remove_tree(directory)


def remove_dead(shells: Path) -> None:
    for path in shells.iterdir():
        if not _is_alive(path.name):
            remove(path)


def _is_kept(directory: Path) -> bool:
    try:
        return _is_alive((directory / _KEPT).read_text("ascii"))
    except OSError:
        return False


def _name(pid: int) -> str:
    return f"{pid}-{platform.process_start_token(pid)}"


def _is_alive(name: str) -> bool:
    pid = name.partition("-")[0]
    return pid.isdigit() and platform.pid_alive(int(pid)) and _name(int(pid)) == name


def _remove_old(temporary: Path) -> None:
    """Shells had their pipes there once; what is left of killed ones goes."""
    for path in temporary.glob(f"{_OLD}*"):
        try:
            if path.lstat().st_uid != os.geteuid() or path.is_symlink():
                continue
            # Where every command may write: it may be a pipe.
            found = _OLD_PID.search(files.read_bytes_or_none(path / "rc") or b"")
        except OSError:
            continue
        if found and not platform.pid_alive(int(found[1])):
            files.remove_tree(path)
