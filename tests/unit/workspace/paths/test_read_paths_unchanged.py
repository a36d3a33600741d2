"""Earlier results are used only for files that have not changed since then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model.paths import RelPath
from substrate.workspace.paths.nofollow_path import Walker
from substrate.workspace.paths.read_node import Seen, look
from substrate.workspace.paths.read_paths import still_so

_PATHS = [RelPath(name) for name in (b"a", b"d/one", b"d/two", b"e/deep/three")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    for path in _PATHS:
        file = made / os.fsdecode(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"content of " + path)
        os.utime(file, (1, 1))
    return made


def _seen(root: Path) -> dict[RelPath, Seen]:
    walker, out = Walker(root), {}
    for path in _PATHS:
        parent, name = walker.parent_of(path)
        with parent:
            out[path] = look(parent, name)
    return out


def test_untouched_files_are_still_so(root: Path) -> None:
    seen = _seen(root)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    assert still_so(root, seen) == seen
    assert (os.listdir("/proc/self/fd") if before else []) == before


def _rewrite(file: Path) -> None:
    at = file.stat()
    file.write_bytes(file.read_bytes().upper())
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))  # the time of change tells


def _replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes())
    os.utime(other, (1, 1))
    os.replace(other, file)


def _move_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name("elsewhere"))
    file.parent.symlink_to("elsewhere")


@pytest.mark.parametrize("change", [_rewrite, _replace, Path.unlink, _move_directory])
def test_what_was_touched_is_not(root: Path, change: Callable[[Path], None]) -> None:
    """Nor is a file that a link on the way leads to, even if it is the very one."""
    seen = _seen(root)
    change(root / "e/deep/three")
    assert still_so(root, seen).keys() == set(_PATHS[:3])
    assert still_so(root, {}) == {}
