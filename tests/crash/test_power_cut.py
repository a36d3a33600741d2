"""The power fails right after a command was acknowledged: it is there when the power is back.

A loop-mounted ext4 file is shut down without writing out anything that was not synced. The next
commands see another boot id, as they would after a real power cut.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.oracle import Cli, store_problems, tree
from tests.mounts import unmount

pytestmark = [pytest.mark.needs("linux", "loop-devices"), pytest.mark.timeout(0)]

#: FS_IOC_SHUTDOWN: _IOR('X', 125, __u32); the flag drops the journal's unwritten part as well.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_LOOP_MAJOR = 7
ROUNDS = 5


class Disk:
    """An ext4 file system in a file, mounted through a loop device."""

    def __init__(self, base: Path) -> None:
        self.image = base / "disk.img"
        self.mount_point = base / "disk"
        self.mount_point.mkdir()
        with self.image.open("wb") as file:
            file.truncate(96 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)

    def mount(self) -> None:
        command = ["mount", "-o", "loop", str(self.image), str(self.mount_point)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def unmount(self) -> None:
        if os.path.ismount(self.mount_point):
            unmount(self.mount_point)
        # A mount namespace made since then (by a world or another test) still has it mounted, and
        # would pass its dead file system to our next mount.
        for _ in range(600):
            command = ["losetup", "--associated", str(self.image)]
            if not subprocess.run(command, capture_output=True, check=True).stdout:
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.image} stays mounted somewhere else")

    def cut_power(self) -> None:
        fd = os.open(self.mount_point, os.O_RDONLY)
        try:
            # Never anything but our own loop device.
            assert os.path.ismount(self.mount_point)
            assert os.major(os.fstat(fd).st_dev) == _LOOP_MAJOR
            assert os.fstat(fd).st_dev != os.stat(self.image).st_dev
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)
        self.unmount()
        self.mount()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()


class RebootedCli(Cli):
    """Runs the program where the kernel's boot id reads differently after each power cut."""

    def argv(self, *words: str) -> list[str]:
        real = super().argv(*words)
        boot = self.home / "boot-id"
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(boot), *real]


def set_boot(home: Path, number: int) -> None:
    (home / "boot-id").write_text(f"00000000-0000-4000-8000-{number:012d}\n")


def synced(text: str) -> str:
    """What the command wrote is on the disk when it ends; the rest is up to us."""
    return f"printf '{text}\\n' > f; mkdir -p d; printf '{text}\\n' > d/g-{text}; sync f d/* d ."


#: As the daemon runs a call: at its end nothing is closed.
_ENDS_AT_ONCE = """
import os, sys
from substrate.cli.main import substrate
from substrate.system.process import deferred_work as afterwards
afterwards.postpone()
status = substrate(sys.argv[1:])
sys.stdout.flush()
os._exit(status)
"""


@pytest.mark.parametrize("launcher", [(), ("-c", _ENDS_AT_ONCE)], ids=["closed", "ended-at-once"])
def test_an_acknowledged_command_survives(
    disk: Disk, private_environment: Path, launcher: tuple[str, ...]
) -> None:
    workspace = disk.mount_point / "project"
    workspace.mkdir()
    (workspace / "f").write_text("start\n")
    cli = RebootedCli(workspace, private_environment, launcher=launcher)
    set_boot(private_environment, 0)
    cli.ok("-c", "true")
    subprocess.run(["sync", "-f", str(workspace)], check=True)
    states = []
    for number in range(1, ROUNDS + 1):
        cli.ok("-c", synced(f"round-{number}"))
        disk.cut_power()
        set_boot(private_environment, number)
        # A question, or the check, may well be the first to look: neither may see damage.
        if number % 2:
            cli.ok("fsck")
        newest = cli.log()[0]
        commit = str(newest["substrate_git_commit"])
        assert newest["kind"] == "command"
        assert f"round-{number}" in str(newest["command"])
        assert cli.git("show", f"{commit}:f").stdout == f"round-{number}\n".encode()
        states.append(tree(workspace))
        assert store_problems(cli) == []
    for number in range(ROUNDS - 1, 0, -1):
        cli.ok("undo")
        assert tree(workspace) == states[number - 1]
    assert [e["kind"] for e in cli.log()].count("external") == 0


def test_an_acknowledged_undo_survives(disk: Disk, private_environment: Path) -> None:
    workspace = disk.mount_point / "project"
    workspace.mkdir()
    (workspace / "f").write_text("start\n")
    cli = RebootedCli(workspace, private_environment)
    set_boot(private_environment, 0)
    cli.ok("-c", "true")
    subprocess.run(["sync", "-f", str(workspace)], check=True)
    before = tree(workspace)
    for number in range(1, 4):
        cli.ok("-c", synced(f"undone-{number}"))
        after = tree(workspace)
        cli.ok("undo")
        disk.cut_power()
        set_boot(private_environment, number)
        assert tree(workspace) == before, "the files that the undo wrote were not synced"
        cli.ok("redo")
        assert tree(workspace) == after
        cli.ok("undo")
        assert store_problems(cli) == []


def test_a_compacted_history_survives(disk: Disk, private_environment: Path) -> None:
    workspace = disk.mount_point / "project"
    workspace.mkdir()
    cli = RebootedCli(workspace, private_environment)
    set_boot(private_environment, 0)
    for number in range(4):
        cli.ok("--session", "s", "-c", synced(f"many-{number}"))
    cli.ok("session", "close", "s")
    ids = [str(e["command_id"]) for e in cli.log()]
    cli.ok("compact", "--keep-sessions", "0", "--keep-checkpoints", "0")
    disk.cut_power()
    set_boot(private_environment, 1)
    cli.ok("-c", "true")
    assert store_problems(cli) == []
    for one in ids:
        cli.ok("show", one)
