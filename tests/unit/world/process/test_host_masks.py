"""Paths outside the workspace that a command cannot change."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import substrate
from substrate.system import environment
from substrate.world.process import host_masks


@pytest.mark.parametrize("in_use", [True, False])
def test_the_whole_program_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_use: bool
) -> None:
    """Of a virtual environment that the user works in, the package alone, but all of it."""
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    if in_use:
        monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)

    shut = host_masks.read_only(environment.current(), tmp_path)

    package = Path(os.path.realpath(substrate.__file__)).parent
    above = {package, *package.parents}
    assert above & {Path(os.fsdecode(path)) for path in shut}
