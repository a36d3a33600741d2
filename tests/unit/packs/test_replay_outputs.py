"""What commands printed, kept for a replay: until it is old or too much."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from substrate.recorder.command import captured_output
from substrate.recorder.packing.session_steps import captured_stdout
from substrate.system import clock, environment


def keep(directory: Path, name: str, size: int, age_s: int) -> Path:
    path = directory / name
    path.mkdir(parents=True)
    (path / "stdout").write_bytes(b"x" * size)
    when = clock.now_ns() - age_s * 10**9
    os.utime(path, ns=(when, when))
    return path


def test_the_old_and_the_oldest_of_too_much_go(tmp_path: Path) -> None:
    new, middle = keep(tmp_path, "c", 60, 1), keep(tmp_path, "b", 60, 100)
    old = keep(tmp_path, "a", 1, 10_000)
    assert captured_output.prune(tmp_path, most_bytes=100, oldest_ns=5_000 * 10**9) == 2
    assert (new.exists(), middle.exists(), old.exists()) == (True, False, False)
    assert captured_output.prune(tmp_path) == 0


def test_it_is_looked_through_now_and_then(private_environment: Path) -> None:
    here = environment.current()
    directory = here.substrate_home / captured_output.DIRECTORY
    old = keep(directory, "spn_old", 1, 0)
    first = clock.now_ns()
    clock.set_clock(lambda: first)
    capture = captured_output.capture_for(here.substrate_home, "spn_1")
    assert capture.directory == directory / "spn_1"
    assert old.exists()
    clock.set_clock(lambda: first + 40 * 24 * 3600 * 10**9)
    captured_output.capture_for(here.substrate_home, "spn_2")
    assert not old.exists()
    clock.set_clock(None)


def test_only_ids_of_our_form_are_read(tmp_path: Path) -> None:
    keep(tmp_path / captured_output.DIRECTORY, "spn_1", 1, 0)
    elsewhere = keep(tmp_path, "elsewhere", 1, 0)
    assert captured_output.read(tmp_path, "spn_1", "stdout") == b"x"
    for forged in (str(elsewhere), "../elsewhere", "spn_1/../../elsewhere", "", ".", "spn_1\n"):
        assert captured_output.read(tmp_path, forged, "stdout") is None, forged


@pytest.mark.parametrize(("kept", "found"), [(b"said\n", True), (b"sai", False), (None, False)])
def test_only_the_very_bytes_count(tmp_path: Path, kept: bytes | None, found: bool) -> None:
    path = tmp_path / "stdout"
    if kept is not None:
        path.write_bytes(kept)
    sha256 = hashlib.sha256(b"said\n").hexdigest()
    span: dict[str, object] = {
        "stdout": {"sha256": sha256, "bytes": 5, "ref": str(path)},
        "stderr": {"sha256": None, "bytes": None, "ref": None},
    }
    captured = captured_stdout(span)
    assert captured.sha256 == sha256
    assert (captured.data == path) == found
    assert not captured.alone


def test_an_output_that_was_not_captured_is_not_known() -> None:
    assert captured_stdout({}).sha256 == ""
    assert captured_stdout({"stdout": {"sha256": None}}).sha256 == ""
    empty = {"stdout": {"sha256": "e3", "bytes": 0, "ref": None}, "stderr": {"sha256": "e3"}}
    assert captured_stdout(dict(empty)).is_empty
    assert captured_stdout(dict(empty)).alone
