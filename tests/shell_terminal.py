"""A person at a terminal, in front of the interactive shell."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.contract.program import AS_USER

PATIENCE_S = 60.0
PROMPT = b"ready> "
RC = "PS1='ready> '; alias greet='echo hello'; HISTCONTROL=ignoreboth; HISTSIZE=100\n"

_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    def __init__(
        self, cwd: Path, *words: str, before: tuple[str, ...] = (), uid: int | None = None,
        env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`before` are arguments before ours: the program that leads the terminal's session."""
        self._leader, follower = os.openpty()
        self.shown = b""
        self.cwd = cwd
        self._env = {**os.environ, "TERM": "dumb", **(env or {})}
        how = ["-m", "substrate"] if uid is None else ["-c", AS_USER, str(uid)]
        self._substrate = [sys.executable, *how]
        if uid is not None:
            os.fchown(follower, uid, -1)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, *before, *self._substrate, *words],
            cwd=cwd, stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            env=self._env,
        )  # fmt: skip
        os.close(follower)
        #: What came before the first prompt.
        self.greeting = self.until(PROMPT)

    def line(self, text: str) -> bytes:
        """Enter a line; what it printed until the next prompt."""
        self.type(text.encode() + b"\r")
        return self.until(PROMPT)

    def type(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def until(self, text: bytes) -> bytes:
        """What was shown up to `text`, which must come."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} never came after {self.shown!r}"
            if select.select([self._leader], [], [], 0.1)[0]:
                self.shown += os.read(self._leader, 65536)
        before, _, self.shown = self.shown.partition(text)
        return before

    def press(self, keys: bytes, text: bytes) -> None:
        """As people do: again, if nothing happens. A program that sets up its terminal throws away
        what was typed before."""
        for _ in range(int(PATIENCE_S)):
            self.type(keys)
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                if select.select([self._leader], [], [], 0.1)[0]:
                    self.shown += os.read(self._leader, 65536)
                if text in self.shown:
                    self.until(text)
                    return
        raise AssertionError(f"{text!r} never came after {self.shown!r}")

    def resize(self, rows: int, columns: int) -> None:
        import termios

        termios.tcsetwinsize(self._leader, (rows, columns))

    def exit(self, text: str = "exit") -> int:
        self.type(text.encode() + b"\r")
        return self.process.wait(PATIENCE_S)

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._leader)
        self._leader = -1

    def close(self) -> None:
        if self._leader >= 0:
            self.hang_up()
        self.process.kill()
        self.process.wait()

    # ------------------------------------------------------------------ what is known afterwards

    def substrate(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """A call outside, by the same user."""
        return subprocess.run(
            [*self._substrate, *words], cwd=self.cwd, capture_output=True, check=False,
            env={**self._env, "SUBSTRATE_DAEMON": "off"}, timeout=PATIENCE_S,
        )  # fmt: skip

    def json(self, *words: str) -> dict[str, Any]:
        done = self.substrate(*words, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def commands(self) -> list[dict[str, Any]]:
        """What `log` knows, oldest first."""
        found = self.json("log", "--limit", "0")["commands"]
        return [entry for entry in reversed(found) if entry["kind"] == "command"]

    def lines(self) -> list[tuple[str, int, list[str]]]:
        return [(one["command"], one["exit"], one["changed_files"]) for one in self.commands()]

    def changed_by(self, line: str) -> list[str]:
        [found] = [files for text, _, files in self.lines() if text == line]
        return found
