"""A command cannot pretend that processes live, or keep others from showing that they do."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from substrate.system.sync import liveness_locks
from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("world-overlay")

#: Also a descriptor for reading can lock: every byte that no process has locked.
LOCK = """
import fcntl, os, struct, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
taken, step = 0, 1 << 48
for start in range(0, 1 << 56, step):
    try:
        lock = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, start, step, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
        taken += 1
    except OSError:
        pass
open(sys.argv[2], "w").write(str(taken))
time.sleep(60)
"""


def test_a_command_holds_no_lock_of_ours(tmp_path: Path) -> None:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    cli = Cli(root, home)
    place = home / ".substrate"
    place.mkdir(parents=True, mode=0o700)
    liveness_locks.release(place, liveness_locks.hold(place))
    (tmp_path / "lock.py").write_text(LOCK)
    told = tmp_path / "told"
    words = f"exec python3 {tmp_path}/lock.py {place / liveness_locks.NAME} {told}"
    running = subprocess.Popen(cli.argv("-c", words), cwd=root, env=cli.environment)
    try:
        while running.poll() is None and not (told.exists() and told.read_text()):
            time.sleep(0.02)
        assert told.read_text(), "the command did not get so far"
        assert not liveness_locks.is_held(place, "0" * 13 + "7")
        token = liveness_locks.hold(place)
        assert token, "another process cannot show that it lives"
        liveness_locks.release(place, token)
    finally:
        running.terminate()
        running.wait()
