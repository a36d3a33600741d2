"""What `substrate doctor` advises."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from substrate.world.capabilities import probes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux only")
@pytest.mark.parametrize(
    ("error", "fix"),
    [(PermissionError, "chmod 666 /dev/fuse"), (FileNotFoundError, "modprobe fuse")],
)
def test_a_device_that_is_there_but_closed_to_us_needs_no_module(
    error: type[OSError], fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_: Any) -> int:
        raise error(1, "refused", path)

    monkeypatch.setattr(probes, "_which", lambda _: True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "open", refuse)
    found = probes.fuse_overlayfs()
    monkeypatch.undo()
    assert found.fix.startswith(fix)
