"""The direct strategy is the whole product on macOS and Windows: no Linux-only import there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import substrate

#: What one of the other systems lacks, or (ctypes) what we promise to do without.
BLOCKED = (
    *("fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "spwd", "syslog", "curses"),
    *("readline", "ctypes", "_ctypes", "_posixshmem", "nis", "crypt"),
)
PACKAGES = (
    *("errors", "model", "system", "workspace", "objects", "history", "trace", "world"),
    *("recorder", "cli"),
)

BLOCK = f"""
import sys

class Blocker:
    blocked = frozenset({BLOCKED!r})

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.blocked:
            raise ImportError(f"{{name}} is not there on this system")
        return None

for name in list(sys.modules):
    if name.partition(".")[0] in Blocker.blocked:
        del sys.modules[name]
sys.meta_path.insert(0, Blocker())
"""

#: Names of `os` and `signal` that only Linux has, and those that Windows lacks as well.
LINUX_ONLY = (
    *("O_PATH", "O_TMPFILE", "O_NOATIME", "setxattr", "getxattr", "listxattr", "removexattr"),
    *("memfd_create", "pidfd_open", "splice", "copy_file_range", "sched_getaffinity", "eventfd"),
    *("posix_fadvise", "fdatasync", "pipe2", "setns", "unshare", "XATTR_CREATE", "P_PIDFD"),
)
POSIX_ONLY = (
    *("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "fork", "mkfifo"),
    *("getuid", "geteuid", "getgid", "chown", "lchown", "fchown", "fchmod", "statvfs", "killpg"),
    *("setsid", "getpgid", "WNOHANG", "waitid", "register_at_fork", "pread", "tcgetpgrp"),
    *("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGSTOP", "SIGCONT"),
    *("SIGTSTP", "SIGWINCH", "SIGPIPE", "SIGXFSZ", "SIGALRM", "pthread_sigmask"),
)
#: Goes in front of `BLOCK`. The standard library is loaded first: it asks for the platform, which
#: is still Linux, and then needs the names.
TAKE_AWAY = """
import os, signal
import asyncio, argparse, concurrent.futures, logging, multiprocessing, shutil, socket, sqlite3
import ssl, subprocess, tempfile, threading
import msgspec, starlette.applications, uvicorn, websockets, zstandard
for module in (os, signal):
    for name in {names!r}:
        if hasattr(module, name):
            delattr(module, name)
"""

IMPORT_ALL = """
import importlib, pkgutil
import substrate
names = []
for package in sys.argv[1:]:
    module = importlib.import_module(f"substrate.{package}")
    names.append(module.__name__)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + "."):
        importlib.import_module(found.name)
        names.append(found.name)
print(" ".join(names))
"""

RUN_A_COMMAND = """
import os
from pathlib import Path
from substrate.system import environment
from substrate.trace.reader import TraceReader
from substrate.trace.writer import TraceWriter
from substrate.world.strategies.direct import DirectWorld
from substrate.world.interface import RunRequest
outcome = DirectWorld().run(RunRequest(Path.cwd(), shell="echo hi > made; exit 3"))
writer = TraceWriter.of(environment.current())
writer.append({"exit": outcome.exit})
writer.append({"exit": outcome.exit})
print(len(list(TraceReader(environment.current().trace_path).spans())), outcome.exit)
"""

#: ``python -m substrate`` with the blocking in front.
MAIN = """
import runpy
sys.argv[0] = "substrate"
runpy.run_module("substrate", run_name="__main__")
"""


def run_blocked(script: str, *arguments: str, cwd: Path | None = None, before: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", before + BLOCK + script, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_blocking_works() -> None:
    for name in ("fcntl", "pwd", "ctypes.util"):
        assert run_blocked(f"try: import {name}\nexcept ImportError: print('blocked')") == "blocked"


def test_every_module_can_be_imported() -> None:
    source = Path(substrate.__file__).parent
    present = [name for name in PACKAGES if list(source.glob(f"{name}*"))]
    imported = run_blocked(IMPORT_ALL, *present).split()
    expected = {
        ".".join(file.relative_to(source.parent).with_suffix("").parts).removesuffix(".__init__")
        for name in present
        for file in [*source.glob(f"{name}.py"), *(source / name).rglob("*.py")]
    }
    assert set(imported) == expected


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(LINUX_ONLY, id="macOS"),
        pytest.param((*LINUX_ONLY, *POSIX_ONLY), id="Windows"),
    ],
)
def test_every_module_can_be_imported_where_os_has_less(names: tuple[str, ...]) -> None:
    source = Path(substrate.__file__).parent
    # The MCP SDK is an extra that looks at the platform's name, not at what `os` lacks.
    rooms = [
        each.name
        for each in source.iterdir()
        if (each / "__init__.py").exists() and each.name != "mcp_server"
    ]
    imported = run_blocked(IMPORT_ALL, *rooms, before=TAKE_AWAY.format(names=names)).split()
    assert {
        "substrate.daemon",
        "substrate.recorder.command.pipeline",
        "substrate.shell",
    } < set(imported)


def test_a_command_can_be_run_and_traced(tmp_path: Path) -> None:
    assert run_blocked(RUN_A_COMMAND, cwd=tmp_path) == "2 3"
    assert (tmp_path / "made").read_text() == "hi\n"


def test_a_change_can_be_recorded_undone_and_done_again(tmp_path: Path) -> None:
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.write_text("before\n")
    run_blocked(MAIN, "-c", "echo after > kept; echo new > made; mkdir empty", cwd=tmp_path)
    assert "echo after" in run_blocked(MAIN, "log", cwd=tmp_path)
    run_blocked(MAIN, "undo", cwd=tmp_path)
    assert kept.read_text() == "before\n"
    assert not made.exists()
    assert not (tmp_path / "empty").exists()
    run_blocked(MAIN, "redo", cwd=tmp_path)
    assert (kept.read_text(), made.read_text()) == ("after\n", "new\n")
    run_blocked(MAIN, "checkpoint", "create", "-m", "here", cwd=tmp_path)
    run_blocked(MAIN, "-c", "rm kept made", cwd=tmp_path)
    run_blocked(MAIN, "rollback", "--checkpoint", "1", cwd=tmp_path)
    assert (kept.read_text(), made.read_text()) == ("after\n", "new\n")
    run_blocked(MAIN, "fsck", cwd=tmp_path)
