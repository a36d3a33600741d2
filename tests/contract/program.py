"""The program as its users start it: a process, with a status and two streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

Word = str | bytes


class Done(NamedTuple):
    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape")

    @property
    def errors(self) -> str:
        return self.err.decode("utf-8", "surrogateescape")

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found = json.loads(self.out)
        assert self.out.count(b"\n") == 1, "one document, on one line"
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """What an error with `--json` says on stderr, behind the words for people."""
        document = json.loads(self.errors.splitlines()[-1])
        assert set(document) == {"error"}
        found = document["error"]
        assert isinstance(found, dict)
        return found

    def is_clear(self, status: int, *words: str) -> Done:
        """Check for a proper failure: a status, a message, a hint, and no traceback."""
        shown = f"status {self.status}\n--- stdout\n{self.text}\n--- stderr\n{self.errors}"
        assert self.status == status, shown
        assert "Traceback" not in self.errors, shown
        assert "substrate: error: " in self.errors, shown
        assert "\nhint: " in self.errors, shown
        for word in words:
            assert word in self.errors, shown
        return self

    def went_well(self) -> Done:
        return self.is_status(0)

    def is_status(self, status: int) -> Done:
        assert self.status == status, f"status {self.status}\n{self.text}\n{self.errors}"
        assert "Traceback" not in self.errors
        return self


#: Everything is imported while still root, because another user may not be able to reach the
#: interpreter; then the process becomes that user.
AS_USER = """
import argparse, base64, ctypes, datetime, difflib, encodings, importlib, json, os, pkgutil
import encodings.ascii, resource
import platform, pwd, shlex, signal, subprocess, sys, tempfile, tomllib, traceback, substrate
for module in pkgutil.walk_packages(substrate.__path__, "substrate."):
    try:
        importlib.import_module(module.name if "__main__" not in module.name else "substrate")
    except ImportError:  # a package that this machine lacks
        pass
from substrate.cli.main import substrate as program
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sys.exit(program())
"""


class Program:
    """`substrate`, started in `cwd`; `env` is laid over the test's environment.

    With a `uid` it runs as that user (only root can start it so).
    """

    def __init__(
        self, cwd: Path, env: Mapping[str, str] | None = None, uid: int | None = None
    ) -> None:
        self.cwd = cwd
        self.env = dict(env or {})
        self.uid = uid

    def __call__(
        self,
        *words: Word,
        cwd: Path | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Done:
        module: list[Word] = ["-m", "substrate"]
        how = module if self.uid is None else ["-c", AS_USER, str(self.uid)]
        return self.start([sys.executable, *how, *words], cwd, stdin, env or {})

    def start(
        self, argv: Sequence[Word], cwd: Path | None, stdin: bytes, env: Mapping[str, str]
    ) -> Done:
        done = subprocess.run(
            argv, cwd=cwd or self.cwd, input=stdin, capture_output=True, check=False,
            env={**os.environ, "SUBSTRATE_DAEMON": "off", **self.env, **env}, timeout=250,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def on_a_terminal(
        self, columns: int, *words: str, typed: bytes = b"", status: int = 0
    ) -> list[str]:
        """The lines that a terminal of this width shows; `typed` is what the user answers."""
        import termios  # no Windows has it

        leader, follower = os.openpty()
        termios.tcsetwinsize(follower, (24, columns))
        env = {**os.environ, **self.env, "SUBSTRATE_DAEMON": "off", "TERM": "dumb"}
        process = subprocess.Popen(
            [sys.executable, "-m", "substrate", *words], cwd=self.cwd, env=env,
            stdin=follower, stdout=follower, stderr=follower,
        )  # fmt: skip
        os.close(follower)
        os.write(leader, typed)
        shown = b""
        with suppress(OSError):  # Linux's way to say that the other side has closed
            while data := os.read(leader, 65536):
                shown += data
        os.close(leader)
        assert process.wait() == status, shown
        return shown.decode().replace("\r", "").splitlines()

    def sh(self, line: Word, env: Mapping[str, str] | None = None) -> Done:
        """Run and record a shell line, which must succeed."""
        return self("-c", line, env=env).went_well()

    def json(self, *words: Word) -> dict[str, Any]:
        return self(*words, "--json").went_well().document
