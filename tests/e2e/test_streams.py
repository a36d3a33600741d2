"""Closed streams, and directories in their place: the command has them as from a shell."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon_in

pytestmark = pytest.mark.needs("linux")

PATIENCE_S = 60.0
#: What a command finds as its streams, and what comes of using them.
_LOOK = """
for fd in 0 1 2; do
    if [ -e /proc/$$/fd/$fd ]; then echo $fd open; else echo $fd closed; fi
done > seen
cat > copied; echo $? >> seen
echo out; echo $? >> seen
echo err >&2; echo $? >> seen
exit 3
"""
_CLOSED = [words for words in product(("", "<&-"), ("", ">&-"), ("", "2>&-")) if any(words)]


def looked(root: Path, program: list[str], redirections: str) -> tuple[int, bytes]:
    root.mkdir()
    line = f"{shlex.join([*program, '-c', _LOOK])} {redirections}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=root, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, (root / "seen").read_bytes()


@pytest.mark.parametrize("words", _CLOSED, ids=" ".join)
@pytest.mark.parametrize("world", ["--world", "--no-world"])
def test_what_is_closed_is_closed_for_the_command(
    tmp_path: Path, words: tuple[str, ...], world: str
) -> None:
    """Nothing of ours in its place: `cat` would wait for a pipe of ours, for ever."""
    bare = looked(tmp_path / "bare", ["bash"], " ".join(words))
    ours = [sys.executable, "-m", "substrate", "run", world]
    assert looked(tmp_path / "ours", ours, " ".join(words)) == bare


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as made:
        yield made.serve()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_directory_through_the_daemon(daemon: Daemon, place: int) -> None:
    """The launcher has set it aside, and it is taken back: `python -m` would not start with it."""
    code = "import sys; from substrate.cli.startup import substrate; sys.exit(substrate())"
    daemon.program = [sys.executable, "-c", code]
    line = f"readlink /proc/$$/fd/{place} > seen; env | grep -c STREAMS_ASIDE >> seen"
    here = os.open(daemon.workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        env = {**daemon.env, "SUBSTRATE_STREAMS_ASIDE": f"{here}:{place}"}
        done = daemon.run("-c", line, pass_fds=(here,), env=env)
    finally:
        os.close(here)
    # The status is grep's: there was none. If the daemon had declined it, a note would say so.
    assert (done.returncode, done.stderr) == (1, b"")
    assert (daemon.workspace / "seen").read_text() == f"{daemon.workspace}\n0\n"
