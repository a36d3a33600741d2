"""The daemon without its speed layer: every command takes the plain path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon_in

pytestmark = pytest.mark.needs("linux", "world-overlay")


def _speed(value: str) -> dict[str, str]:
    home = os.environ["SUBSTRATE_HOME"]
    return {"SUBSTRATE_HOME": home, "SUBSTRATE_DAEMON_SPEED": value}


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path, _speed("off")) as started:
        yield started.serve()


def test_commands_are_recorded_and_nothing_is_prepared(plain: Daemon) -> None:
    for number in range(3):
        done = plain.run("-c", f"cat file; echo {number} > file; exit {number}")
        assert (done.returncode, done.stdout) == (number, b"%d\n" % (number - 1) if number else b"")
        assert plain.worlds() == []  # removed before the answer
        state = plain.state()
        assert state is not None
        prepared = (state["speed"], state["spares"], state["ahead"], state["warm"])
        assert prepared == (False, 0, 0, 0)
    assert [span["isolation"]["strategy"] for span in plain.completed()] == ["overlay"] * 3
    assert plain.run("undo").returncode == 0
    assert (plain.workspace / "file").read_bytes() == b"1\n"
    assert plain.serves()


def test_the_setting_does_the_same(tmp_path: Path, private_environment: Path) -> None:
    home = private_environment / ".substrate"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[daemon]\nspeed = false\n")
    with daemon_in(tmp_path) as daemon:
        state = daemon.serve().state()
        assert state is not None
        assert (state["speed"], state["spares"]) == (False, 0)


def test_any_other_value_is_a_usage_error(tmp_path: Path) -> None:
    with daemon_in(tmp_path, _speed("fast")) as daemon:
        done = daemon.run("daemon", "serve")
    assert done.returncode == 2
    assert b"SUBSTRATE_DAEMON_SPEED must be on or off" in done.stderr
