"""Real mappings, of this process and of another one."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.system.linux import shared_mappings

pytestmark = pytest.mark.needs("linux")

_MAP = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4)"


def test_only_shared_and_writable_ones_count(tmp_path: Path) -> None:
    root = tmp_path / "a root"
    root.mkdir()
    kinds = {
        "shared": mmap.ACCESS_WRITE, "odd\nname": mmap.ACCESS_WRITE,
        "read only": mmap.ACCESS_READ, "private": mmap.ACCESS_COPY, "../beside": mmap.ACCESS_WRITE,
    }  # fmt: skip
    kept = []
    for name, access in kinds.items():
        (root / name).write_bytes(b"1234")
        with (root / name).open("r+b") as file:
            kept.append(mmap.mmap(file.fileno(), 4, access=access))
    found = shared_mappings.writable_below(os.fsencode(root))
    assert found == {os.fsencode(root / name) for name in ("shared", "odd\nname")}
    for one in kept:
        one.close()
    assert shared_mappings.writable_below(os.fsencode(root)) == set()


def test_another_process_counts_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    words = [
        sys.executable,
        "-c",
        f"{_MAP}; print(flush=True); sys.stdin.read()",
        str(tmp_path / "file"),
    ]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    assert shared_mappings.writable_below(os.fsencode(tmp_path)) == {bytes(tmp_path / "file")}
    other.communicate()
    assert shared_mappings.writable_below(os.fsencode(tmp_path)) == set()
