"""Job control as with any other program: bash and zsh, two users, a real terminal."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capabilities import present
from tests.contract.as_user import NOBODY
from tests.daemons import is_in_foreground, until

pytestmark = pytest.mark.needs("world-overlay")
PATIENCE_S = 60.0
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "--noediting", "-i"],
    "zsh": ["zsh", "-f", "-i", "+Z", "-o", "no_prompt_sp"],
}


class Shell:
    """An interactive shell on a terminal of its own; `substrate` is what runs Substrate there."""

    def __init__(self, name: str, base: Path, uid: int | None) -> None:
        import pty

        self.cwd = base / "project"
        #: How the shell reports a job that stopped.
        self.stopped = "Stopped" if name == "bash" else "suspended"
        # Written down before the user changes: the interpreter may be out of that user's reach.
        self.substrate = shlex.join([sys.executable, "-m", "substrate"])
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(self.cwd)
            home = str(base / "home")
            os.environ.update(
                PS1="", PROMPT="", RPROMPT="", SUBSTRATE_DAEMON="off", TERM="dumb", HOME=home,
                SUBSTRATE_HOME=home + "/s",
            )  # fmt: skip
            if uid is not None:
                os.fchown(0, uid, -1)
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            os.execvp(name, SHELLS[name])
        self.seen = b""
        self.say("stty -echo; unset zle_bracketed_paste; TRAPEXIT() { :; }")
        self.say("echo ready$((1+1))")
        self.wait_for("ready2")

    def say(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self.seen += os.read(self._fd, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def say_until(self, line: str, text: str) -> None:
        """A shell reports its jobs only when it reads a line."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen!r}"
            self.say(line)
            time.sleep(0.2)
            while select.select([self._fd], [], [], 0)[0]:
                self.seen += os.read(self._fd, 65536)

    def is_alive(self) -> bool:
        """Reads the next line and has the terminal."""
        self.say("echo alive$((1+1))")
        self.wait_for("alive2")
        return os.tcgetpgrp(self._fd) == self.pid

    def processes(self) -> str:
        """The processes of the session and their states, for the message of a failure."""
        words = ["ps", "-s", str(self.pid), "-o", "pid,ppid,pgid,tpgid,stat,wchan:20,args"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


_PYTHON = Path(os.path.realpath(sys.executable))
#: The lane of an ordinary user runs these too; another user may not be able to run root's Python.
_USERS = (
    [None, NOBODY] if all(p.stat().st_mode & 1 for p in (_PYTHON, *_PYTHON.parents)) else [None]
)


@pytest.fixture(params=_USERS, ids=["own", "nobody"][: len(_USERS)])
def base(request: pytest.FixtureRequest, private_environment: Path) -> Iterator[Path]:
    if request.param is not None and not present("other-user"):
        pytest.skip("needs other-user")
    if request.param is not None and not _is_reachable(request.param):
        pytest.skip("needs an interpreter that another user can execute")
    made = Path(tempfile.mkdtemp(prefix="substrate-test-"))
    for name in ("project", "home"):
        (made / name).mkdir()
    if request.param is not None:
        for path in (made, *made.iterdir()):
            os.chown(path, request.param, request.param)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def _is_reachable(uid: int) -> bool:
    words = [sys.executable, "-m", "substrate", "--version"]
    done = subprocess.run(words, user=uid, group=uid, extra_groups=[], cwd="/", check=False)
    return done.returncode == 0


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, base: Path) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"needs {request.param}")
    owner = base.stat().st_uid
    made = Shell(request.param, base, None if owner == os.geteuid() else owner)
    yield made
    made.close()


def go_on(shell: Shell) -> str:
    """Words of a command that starts, and ends when the test says so: a file outside its world."""
    go = shell.cwd.parent / "home" / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    return f"{shell.substrate} -c 'echo st''arted; {wait}; echo done > made'"


def test_put_in_the_background_it_leaves_the_terminal_alone(shell: Shell) -> None:
    shell.say(go_on(shell))
    shell.wait_for("started")
    shell.press(b"\x1a")
    shell.wait_for(shell.stopped)
    shell.say("bg; echo in$((1+1))")
    shell.wait_for("in2")
    (shell.cwd.parent / "home" / "go").touch()
    until((shell.cwd / "made").exists, lambda: f"the end of the command; {shell.processes()}")
    shell.say("wait; echo waited$((1+1))")
    shell.wait_for("waited2")
    assert shell.is_alive()


def test_killed_as_a_job_it_leaves_the_terminal_alone(shell: Shell) -> None:
    shell.say(go_on(shell))
    shell.wait_for("started")
    shell.press(b"\x1a")
    shell.wait_for(shell.stopped)
    shell.say("kill %1; wait; echo waited$((1+1))")
    shell.wait_for("waited2")
    assert shell.is_alive()


def test_a_key_ends_the_loop_around_it(shell: Shell) -> None:
    shell.say(
        f"for n in 1 2 3; do {shell.substrate} -c 'echo up; exec sleep 600'; echo after$n; done"
    )
    shell.wait_for("up")
    until(lambda: is_in_foreground("sleep", str(shell.cwd)), "the command in the foreground")
    shell.press(b"\x03")
    assert shell.is_alive()
    assert b"after" not in shell.seen
    shell.say("echo n=$n")
    shell.wait_for("n=1")


def test_in_the_background_it_stops_when_it_reads(shell: Shell) -> None:
    shell.say(f"{shell.substrate} -c 'read -r line; echo got:$line' &")
    shell.say_until("jobs", shell.stopped)
    assert shell.is_alive()
    shell.say("fg")
    until(lambda: os.tcgetpgrp(shell._fd) != shell.pid, "the command in the foreground")
    shell.say("words")
    shell.wait_for("got:words")
    assert shell.is_alive()
