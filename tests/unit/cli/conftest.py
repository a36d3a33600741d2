"""The frame is driven by three sample verbs, in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

SAMPLE_VERBS = {name: f"tests.unit.cli.sample_verbs.{name}" for name in ("run", "parrot", "fail")}

_PROGRAM = f"""
import sys
from substrate.cli.main import substrate
sys.exit(substrate(sys.argv[1:], {SAMPLE_VERBS!r}))
"""

Frame = Callable[..., subprocess.CompletedProcess[bytes]]


def program(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", _PROGRAM, *words]


@pytest.fixture
def frame(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Call the frame with the sample verbs in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath))

    def call(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(program(*words), capture_output=True, check=False)

    return call
