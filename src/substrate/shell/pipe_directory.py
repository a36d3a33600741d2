"""Where a running shell has its pipes: ``$SUBSTRATE_HOME/shells/<pid>-<token of its lock>``.

It is not in a temporary directory. Commands in a world see this directory read-only, but they can
still write to a pipe in it. When a shell starts, it removes what killed shells left behind.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from substrate.system.files import files
from substrate.system.process import process_identity
from substrate.system.sync import liveness_locks

_KEPT = "kept-for"
_OLD = "substrate-shell-"
_OLD_PID = re.compile(rb"^__substrate_pid=(\d+)$", re.MULTILINE)


def make(home: Path) -> Path:
    """Make the directory of this process."""
    shells = home / "shells"
    os.makedirs(shells, 0o700, exist_ok=True)
    remove_dead(shells)
    _remove_old(Path(tempfile.gettempdir()))
    liveness_locks.ensure(home)
    token = liveness_locks.own(home)
    path = shells / (f"{os.getpid()}-{token}" if token else _name(os.getpid()))
    files.remove_tree(path)  # left by an earlier boot, with the same pid and token
    path.mkdir(0o700)
    return path


def room(directory: Path) -> Path:
    """The directory for views of earlier lines whose jobs are still running."""
    path = directory / "views"
    path.mkdir(0o700, exist_ok=True)
    return path


def keep_for(room: Path, init_pid: int, token: str) -> None:
    """Keep the directory: jobs outlive their shell and need the mount points of their views."""
    (room.parent / _KEPT).write_text(f"{init_pid}-{token}" if token else _name(init_pid), "ascii")


def home_of(room: Path) -> Path:
    """``$SUBSTRATE_HOME``: it holds the locks whose tokens name the directories here."""
    return room.parents[2]


def remove(directory: Path) -> None:
    if not _is_kept(directory):
        files.remove_tree(directory)


def remove_dead(shells: Path) -> None:
    for path in shells.iterdir():
        if not _is_alive(shells.parent, path.name):
            remove(path)


def _is_kept(directory: Path) -> bool:
    try:
        return _is_alive(directory.parents[1], (directory / _KEPT).read_text("ascii"))
    except OSError:
        return False


def _name(pid: int) -> str:
    return f"{pid}-{process_identity.process_start_token(pid)}"


def _is_alive(home: Path, name: str) -> bool:
    pid, _, token = name.partition("-")
    if liveness_locks.is_token(token):
        return liveness_locks.is_held(home, token)
    return pid.isdigit() and process_identity.pid_alive(int(pid)) and _name(int(pid)) == name


def _remove_old(temporary: Path) -> None:
    """Remove what killed shells of older versions left in the temporary directory."""
    for path in temporary.glob(f"{_OLD}*"):
        try:
            if path.lstat().st_uid != os.geteuid() or path.is_symlink():
                continue
            # Every command may write in the temporary directory: this may be a pipe.
            found = _OLD_PID.search(files.read_bytes_or_none(path / "rc") or b"")
        except OSError:
            continue
        if found and not process_identity.pid_alive(int(found[1])):
            files.remove_tree(path)
