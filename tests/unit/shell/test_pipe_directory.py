"""What others may have put where shells once had their pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("linux")

_MAKE = """
import pathlib, sys
from substrate.shell import pipe_directory
pipe_directory.make(pathlib.Path(sys.argv[1]))
"""


def test_a_pipe_in_a_temporary_directory_holds_up_no_shell(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    for name, text in (("a", None), ("b", "__substrate_pid=999999999\n")):
        old = temporary / f"substrate-shell-{name}"
        old.mkdir(parents=True)
        if text is None:
            os.mkfifo(old / "rc")
        else:
            (old / "rc").write_text(text)
    subprocess.run(
        [sys.executable, "-c", _MAKE, str(tmp_path / "home")],
        env={**os.environ, "TMPDIR": str(temporary)}, check=True, timeout=60,
    )  # fmt: skip
    assert os.listdir(temporary) == ["substrate-shell-a"]
