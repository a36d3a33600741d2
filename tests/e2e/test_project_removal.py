"""`rm -rf project` by its owner works at any time, also while worlds wait or run there.

overlayfs shuts its work directory, and a command may shut any directory; for root that is no
obstacle, so what concerns modes runs as an ordinary user.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import AS_USER, Program
from tests.daemons import until

pytestmark = pytest.mark.needs("linux", "world-overlay")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a").write_text("a\n")
    return made


def remove(project: Path) -> None:
    done = subprocess.run(["rm", "-rf", project], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not project.exists()


def start(project: Path, line: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "substrate", "--world", "-c", line]
    return subprocess.Popen(
        words, cwd=project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "SUBSTRATE_DAEMON": "off"},
    )  # fmt: skip


def test_while_worlds_are_held(project: Path) -> None:
    substrate = Program(project)
    substrate.sh("true")
    for name in "xy":
        substrate("--hold", "-c", f"echo {name} > {name}; rm -f a").went_well()
    assert len(substrate.json("world", "list")["worlds"]) == 2
    assert list(project.glob(".substrate-git/worlds/wld_*/work/work")), "what overlayfs shuts"
    remove(project)


@pytest.mark.parametrize("line", ["true", "echo x > x", "rm a", "chmod 555 ."])
def test_right_after_a_command(project: Path, line: str) -> None:
    substrate = Program(project)
    substrate.sh("true")
    substrate.sh(line)
    project.chmod(0o755)
    remove(project)


def test_after_a_command_that_was_killed(project: Path) -> None:
    Program(project).sh("true")
    running = start(project, "echo x > x; sleep 100")
    until(lambda: bool(list(project.glob(".substrate-git/worlds/wld_*/upper/x"))))
    running.kill()
    running.wait()
    remove(project)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestReadOnlyDirectories:
    """What is kept of the user's below the project does not stop its removal."""

    @pytest.fixture
    def owner(self) -> Iterator[Program]:
        """An ordinary user with a project; root makes one for the test."""
        base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
        base.chmod(0o755)
        uid = NOBODY if os.geteuid() == 0 else None
        root, home = base / "project", base / "home"
        root.mkdir()
        home.mkdir()
        for made in (base, root, home):
            if uid is not None:
                os.chown(made, uid, uid)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}
        try:
            yield Program(root, env, uid)
        finally:
            subprocess.run(["chmod", "-R", "u+rwx", base], check=True)
            shutil.rmtree(base)

    def by_owner(self, owner: Program, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", line], cwd=owner.cwd, user=owner.uid, group=owner.uid, text=True,
            capture_output=True, check=False,
        )  # fmt: skip

    def remove(self, owner: Program) -> None:
        done = self.by_owner(owner, 'cd /; rm -rf "$OLDPWD"')
        assert done.stderr == ""
        assert not owner.cwd.exists()

    MADE = (
        "mkdir -p node_modules/a/b node_modules/c/d; echo 1 > node_modules/a/b/f;"
        " echo 1 > node_modules/c/d/f; chmod 0555 node_modules/a/b node_modules/a;"
        " chmod 0000 node_modules/c/d; chmod 0311 node_modules/c; chmod 0555 node_modules"
    )
    GONE = "chmod 755 node_modules; chmod -R u+rwx node_modules; rm -rf node_modules"
    MODES = (("a", 0o555), ("a/b", 0o555), ("c", 0o311), ("c/d", 0o000), ("", 0o555))

    def modes(self, owner: Program) -> list[tuple[str, int]]:
        # As the tests' own user sees it: the owner cannot look into all of them.
        below = owner.cwd / "node_modules"
        return [(name, mode(below / name)) for name, _ in self.MODES]

    @pytest.mark.needs("root")
    def test_in_the_trash(self, owner: Program) -> None:
        assert self.by_owner(owner, self.MADE).returncode == 0
        owner.sh("true")
        owner.sh(self.GONE)
        assert list(owner.cwd.glob(".substrate-git/trash/*/*/item"))
        owner("undo").went_well()
        assert self.modes(owner) == list(self.MODES)
        assert (owner.cwd / "node_modules/c/d/f").read_text() == "1\n"
        owner("redo").went_well()
        assert not (owner.cwd / "node_modules").exists()
        self.remove(owner)

    @pytest.mark.needs("root")
    def test_what_stays_in_the_trash_stays_open_and_a_part_comes_out_exact(
        self, owner: Program
    ) -> None:
        assert self.by_owner(owner, self.MADE).returncode == 0
        owner.sh("true")
        owner.sh(self.GONE)
        [entry] = owner.json("log", "--limit", "1")["commands"]
        owner.sh("echo taken > node_modules")
        owner("recover", "restore", entry["command_id"], "node_modules/a").is_status(0)
        assert self.by_owner(owner, "rm node_modules; mkdir node_modules").returncode == 0
        owner("recover", "restore", entry["command_id"], "node_modules/a").went_well()
        assert [mode(owner.cwd / "node_modules" / name) for name in ("a", "a/b")] == [0o555] * 2
        assert self.by_owner(owner, "chmod -R u+w node_modules").returncode == 0
        self.remove(owner)

    @pytest.mark.parametrize("line", ["", "world discard @", "world diff @"])
    def test_in_a_world_that_waits(self, owner: Program, line: str) -> None:
        owner.sh("true")
        owner("--hold", "-c", f"{self.MADE}; mkdir d; echo 1 > d/f; chmod 555 d .").went_well()
        [world] = owner.json("world", "list")["worlds"]
        if line:
            owner(*line.replace("@", world["world_id"]).split()).went_well()
        self.remove(owner)

    @pytest.mark.needs("root")
    def test_a_world_that_waited_arrives_with_exact_modes(self, owner: Program) -> None:
        owner.sh("mkdir old; echo 1 > old/f")
        owner("--hold", "-c", f"{self.MADE}; mkdir d; echo 1 > d/f; chmod 555 d old").went_well()
        [world] = owner.json("world", "list")["worlds"]
        owner("world", "apply", world["world_id"]).went_well()
        assert self.modes(owner) == list(self.MODES)
        assert [mode(owner.cwd / name) for name in ("d", "old")] == [0o555] * 2

    def test_a_mode_alone_waits_and_arrives(self, owner: Program) -> None:
        """While it waits its directory looks in the layer as it does in the tree."""
        owner.sh("mkdir old; echo 1 > old/f; chmod 755 old")
        owner("--hold", "-c", "chmod 555 old").went_well()
        [world] = owner.json("world", "list")["worlds"]
        owner("world", "diff", world["world_id"]).went_well()
        owner("world", "apply", world["world_id"]).went_well()
        assert mode(owner.cwd / "old") == 0o555

    def test_in_a_world_whose_recorder_was_killed(self, owner: Program) -> None:
        owner.sh("true")
        line = f"{self.MADE}; touch made; sleep 100"
        how = ["-m", "substrate"] if owner.uid is None else ["-c", AS_USER, str(owner.uid)]
        running = subprocess.Popen(
            [sys.executable, *how, "--world", "-c", line], cwd=owner.cwd,
            env={**os.environ, "SUBSTRATE_DAEMON": "off", **owner.env},
        )  # fmt: skip
        until(lambda: bool(list(owner.cwd.glob(".substrate-git/worlds/wld_*/upper/made"))))
        running.kill()
        running.wait()
        owner("-c", "true").went_well()
        assert owner.json("world", "list")["worlds"][0]["state"] == "crashed"
        self.remove(owner)
