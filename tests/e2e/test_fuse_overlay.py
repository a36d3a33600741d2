"""Commands over fuse-overlayfs: as over the kernel's overlay, and when its process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-fuse-overlayfs", "root")
PATIENCE_S = 60.0


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    (project / "old" / "deep").mkdir(parents=True)
    for name in ("a", "b", "old/x", "old/deep/y", ".wh.b"):
        (project / name).write_text(f"{name}\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=project, check=True)
    env = {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")}
    return Program(project, env | {"SUBSTRATE_WORLD_STRATEGY": "fuse-overlayfs"})


def names(root: Path) -> set[str]:
    found = (str(path.relative_to(root)) for path in root.rglob("*"))
    return {name for name in found if not name.startswith((".substrate-git", ".git/"))}


def test_what_a_command_did_arrives_and_is_undone(program: Program) -> None:
    before = names(program.cwd)
    inode = (program.cwd / "a").stat().st_ino
    program.sh(
        "echo more >> a; rm -r old; mkdir -p old/new/er; echo n > old/new/er/n; mkdir empty;"
        " echo c > c; mkdir -p dist/deep; echo d > dist/deep/d; git commit -qam two"
    )
    assert (program.cwd / "a").read_text() == "a\nmore\n"
    assert (program.cwd / "a").stat().st_ino == inode, "written in place, as it was in the world"
    here = names(program.cwd)
    assert here - before == {
        "old/new", "old/new/er", "old/new/er/n", "empty", "c", "dist", "dist/deep", "dist/deep/d",
    }  # fmt: skip
    assert before - here == {"old/x", "old/deep", "old/deep/y"}
    assert not any(os.listxattr(path) for path in program.cwd.rglob("*") if not path.is_symlink())
    assert not list((program.cwd / ".git").rglob(".wh.*")), "its marks stay in the world"
    subprocess.run(["git", "fsck", "--strict"], cwd=program.cwd, check=True, capture_output=True)
    [entry] = program.json("log", "--limit", "1")["commands"]
    assert entry["isolation"]["strategy"] == "fuse-overlayfs"
    program("undo", "--with-git").went_well()
    assert names(program.cwd) == before
    assert (program.cwd / ".wh.b").read_text() == ".wh.b\n"
    assert (program.cwd / "b").read_text() == "b\n"
    assert not serving(program)


def serving(program: Program) -> list[int]:
    """The processes that hold a directory of this project's worlds open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() != "fuse-overlayfs":
                continue
            held = {os.readlink(fd) for fd in (process / "fd").iterdir()}
        except OSError:
            continue
        if any(path.startswith(str(program.cwd)) for path in held):
            found.append(int(process.name))
    return found


def test_its_process_is_killed_and_the_world_waits(program: Program) -> None:
    line = "echo first > first; sync first; touch /tmp/$MARK; sleep 60; echo second > second"
    mark = f"substrate-test-{os.getpid()}-{program.cwd.stat().st_ino}"
    argv = [sys.executable, "-m", "substrate", "-c", line.replace("sleep 60", "cat /tmp/$MARK.p")]
    env = {**os.environ, **program.env, "MARK": mark}
    pipe = Path(f"/tmp/{mark}.p")
    os.mkfifo(pipe)
    started = subprocess.Popen(argv, cwd=program.cwd, env=env, stderr=subprocess.PIPE)
    try:
        until(Path(f"/tmp/{mark}").exists)
        [daemon] = serving(program)
        os.kill(daemon, signal.SIGKILL)
        pipe.write_bytes(b"")
        _, said = started.communicate(timeout=PATIENCE_S)
    finally:
        pipe.unlink()
        Path(f"/tmp/{mark}").unlink(missing_ok=True)
    assert started.returncode not in (0, 125), "the command's own writes failed"
    assert b"fuse-overlayfs was killed by signal 9" in said
    assert not (program.cwd / "first").exists()
    [world] = program.json("world", "list")["worlds"]
    assert world["state"] == "held"
    program("world", "apply", world["world_id"]).went_well()
    assert (program.cwd / "first").read_text() == "first\n"
    assert names(program.cwd) >= {"a", "b", "old/x", "old/deep/y"}
    program.sh("echo next > next")
    assert (program.cwd / "next").exists()


def test_a_killed_waiter_leaves_no_process(program: Program) -> None:
    mark = program.cwd.parent / "mark"
    line = f"mkdir -p new/deep; echo n > new/deep/n; touch {mark}; sleep 60"
    started = subprocess.Popen(
        [sys.executable, "-m", "substrate", "-c", line],
        cwd=program.cwd, env={**os.environ, **program.env},
    )  # fmt: skip
    until(mark.exists)
    assert serving(program)
    started.kill()
    started.wait()
    until(lambda: not serving(program))
    [world] = program.json("world", "list")["worlds"]
    assert world["state"] == "crashed"
    program("world", "apply", world["world_id"]).went_well()
    assert {"new", "new/deep", "new/deep/n"} == {
        name for name in names(program.cwd) if name.startswith("new")
    }


def test_an_unknown_strategy(program: Program) -> None:
    program("-c", "true", env={"SUBSTRATE_WORLD_STRATEGY": "magic"}).is_clear(125, "fuse-overlayfs")


def until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
