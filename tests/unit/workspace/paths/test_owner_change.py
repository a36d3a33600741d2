"""A change of owner lends no rights to the content of another user, and hits no other file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from substrate.history.arrival.apply_times import give_touches
from substrate.history.arrival.arrival_plan import Touch
from substrate.model import RelPath
from substrate.workspace.paths import Directory, change_owner

pytestmark = pytest.mark.needs("root")

ADA = 12345


def state(path: Path) -> tuple[int, int]:
    at = path.lstat()
    return at.st_uid, stat.S_IMODE(at.st_mode)


def program(path: Path, uid: int, mode: int) -> Path:
    path.write_text("#!/bin/sh\nid\n")
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def test_set_id_bits_of_another_user_do_not_change_hands(tmp_path: Path) -> None:
    hers, ours = program(tmp_path / "hers", ADA, 0o6755), program(tmp_path / "ours", 0, 0o4755)
    shared = program(tmp_path / "shared", 0, 0o4775)
    with Directory.open_root(tmp_path) as directory:
        for path in (hers, ours, shared):
            change_owner(directory, os.fsencode(path.name), lambda _: (0, 5))
    assert [state(path) for path in (hers, ours, shared)] == [(0, 0o755), (0, 0o4755), (0, 0o775)]


def test_a_command_s_chown_arrives_without_the_set_id_bits_of_the_old_owner(tmp_path: Path) -> None:
    """The owner can set them again at any moment before the file changes hands."""
    hers = program(tmp_path / "hers", ADA, 0o6755)
    give_touches(tmp_path, [Touch(RelPath(b"hers"), (1, 1), (0, 0), only=False)], 0)
    assert state(hers) == (0, 0o755)


def test_what_gets_the_name_in_that_moment_keeps_its_owner(tmp_path: Path) -> None:
    seen, other = program(tmp_path / "seen", ADA, 0o644), program(tmp_path / "other", ADA, 0o644)

    def swap(_: os.stat_result) -> tuple[int, int]:
        seen.rename(tmp_path / "away")
        other.rename(seen)
        return 0, 0

    with Directory.open_root(tmp_path) as directory:
        change_owner(directory, b"seen", swap)
    assert [state(tmp_path / name)[0] for name in ("seen", "away")] == [ADA, 0]


def test_a_link_s_own_owner_changes(tmp_path: Path) -> None:
    target = program(tmp_path / "target", ADA, 0o644)
    (tmp_path / "link").symlink_to("target")
    with Directory.open_root(tmp_path) as directory:
        change_owner(directory, b"link", lambda _: (ADA, ADA))
        change_owner(directory, b"link", lambda _: (5, 5))
    assert (state(target)[0], state(tmp_path / "link")[0]) == (ADA, 5)
