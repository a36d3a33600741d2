"""A view that is used again belongs only to the next command: no other process is left in it.

Otherwise a descriptor passed over a socket by another command's process would lead into it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon_in, until

pytestmark = pytest.mark.needs("linux", "world-overlay")

#: Long enough to be taken for a walk.
_WALK = "sleep 0.04; find . -type f | sort"
#: In a separate world: receives a directory of another world, and writes there on request.
_ACCOMPLICE = """
import os, socket, sys, time
here = sys.argv[1]
server = socket.socket(socket.AF_UNIX)
server.bind(here + "/socket")
server.listen()
os.rename(here + "/socket", here + "/door")
connection, _ = server.accept()
_, (fd,), _, _ = socket.recv_fds(connection, 1, 1)
connection.close()
open(here + "/got", "w").close()
while not os.path.exists(here + "/end"):
    if os.path.exists(here + "/go"):
        try:
            os.close(os.open("planted", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd))
        except OSError:
            pass  # that view is gone
    time.sleep(0.005)
"""
_TRAITOR = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1] + "/door")
socket.send_fds(connection, [b"x"], [os.open(".", os.O_RDONLY | os.O_DIRECTORY)])
connection.recv(1)
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        (started.workspace / "file").write_text("x\n")
        started.serve()
        yield started


def _warm(daemon: Daemon) -> int:
    done = daemon.run("daemon", "status", "--json", cwd=daemon.workspace.parent)
    return int(json.loads(done.stdout)["warm"]) if done.returncode == 0 else 0


def _until_warm(daemon: Daemon, *tier: str) -> None:
    before = _warm(daemon)

    def is_warm() -> bool:
        assert daemon.run(*tier, "-c", _WALK).returncode == 0
        return _warm(daemon) > before

    until(is_warm, "a view that is used again")


@pytest.mark.parametrize("tier", ["workspace", "guarded"])
def test_a_process_with_a_directory_of_a_view_is_not_in_the_next_command_s(
    daemon: Daemon, tier: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = tmp_path_factory.mktemp("shared")
    (here / "accomplice.py").write_text(_ACCOMPLICE)
    (here / "traitor.py").write_text(_TRAITOR)
    isolate = ("--isolate", tier)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    accomplice = daemon.start(
        "--session", "other", *isolate, "-c",
        f"exec {sys.executable} {here}/accomplice.py {here}", cwd=elsewhere,
    )  # fmt: skip
    until((here / "door").exists, "the accomplice")
    _until_warm(daemon, *isolate)
    assert daemon.run(*isolate, "-c", f"{sys.executable} {here}/traitor.py {here}").returncode == 0
    until((here / "got").exists, "a directory in its hands")
    line = f"touch {here}/go; sleep 0.2; ls; rm {here}/go; test ! -e planted"
    for _ in range(5):
        done = daemon.run(*isolate, "-c", line)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"file\n", b"")
        assert daemon.completed()[-1]["changed_files"] == []
    (here / "end").touch()
    accomplice.wait(60)
    assert not (daemon.workspace / "planted").exists()
