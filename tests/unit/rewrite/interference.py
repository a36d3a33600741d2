"""Interfere at a chosen moment of a rewrite: a `git` that does so and then runs the real git."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

#: Moments, by what the product asks of git right then.
AFTER_CAPTURE = "update-ref --no-deref refs/manifold/recovery/"
DURING_SURVEY = "diff-files"
BEFORE_INDEX = "--index-info"


def interfere(monkeypatch: pytest.MonkeyPatch, place: Path, moment: str, script: str) -> None:
    """Run `script` (sh) once, when git is called with `moment` among its words."""
    real = shutil.which("git")
    place.mkdir()
    wrapper = place / "git"
    wrapper.write_text(
        f"""#!/bin/sh
case "$*" in
*"{moment}"*) if mkdir "{place}/once" 2>/dev/null; then
{script}
fi ;;
esac
exec {real} "$@"
"""
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


def acted(place: Path) -> bool:
    return (place / "once").is_dir()
