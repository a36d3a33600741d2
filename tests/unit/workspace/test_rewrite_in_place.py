"""A file that others have open cannot be shut: what they add while it is rewritten stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.workspace.rewrite_in_place import overwrite


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"one\ntwo\n", b"one\ntwo\nthree\n"), (b"one\ntwo\n", b"1\n"), (b"one\n", b"two\n")],
    ids=["longer", "shorter", "as long"],
)
def test_what_somebody_adds_meanwhile_stays(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(old + b"x" * max(0, len(new) - len(old)) + b"mine\n")
    fd = os.open(path, os.O_RDWR)
    try:
        overwrite(fd, old, new)
    finally:
        os.close(fd)
    assert path.read_bytes() == new + b"mine\n"


def test_nothing_of_the_old_content_is_left(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for old, new in ((b"longer", b"new"), (b"new", b"longer"), (b"", b"new"), (b"old", b"")):
        path.write_bytes(old)
        with path.open("r+b") as file:
            overwrite(file.fileno(), old, new)
        assert path.read_bytes() == new
