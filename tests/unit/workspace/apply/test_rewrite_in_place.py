"""A file that others have open cannot be shut: what they add while it is rewritten stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.model.paths import RelPath
from substrate.workspace.apply.plan import How, Op, Plan, Times
from substrate.workspace.apply.rewrite_in_place import overwrite
from tests.unit.workspace.applying import Ground


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"one\ntwo\n", b"one\ntwo\nthree\n"), (b"one\ntwo\n", b"1\n"), (b"one\n", b"two\n")],
    ids=["longer", "shorter", "as long"],
)
def test_what_a_user_adds_in_between_stays(tmp_path: Path, old: bytes, new: bytes) -> None:
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


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no room can be made")
def test_a_kill_between_two_pages_leaves_the_old_size_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even of a file that has more blocks than it fills (``fallocate --keep-size``, XFS)."""
    path, old, new = tmp_path / "x", b"o" * 10_000, b"n" * 20_000
    path.write_bytes(old)
    write, at = os.pwrite, path.stat()
    at = os.stat_result(at[:10], {"st_blocks": 1000})

    def killed(fd: int, data: bytes, start: int) -> int:
        write(fd, data[:12_288], start)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "pwrite", killed)
    with path.open("r+b") as file, pytest.raises(KeyboardInterrupt):
        overwrite(file.fileno(), old, new, at)
    assert path.stat().st_size == len(new)


@pytest.mark.skipif(os.utime not in os.supports_fd, reason="no times by descriptor")
def test_times_come_with_the_content_where_the_owner_stays(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    wanted = (1_600_000_000_123_456_789, 1_500_000_000_987_654_321)
    ops = []
    for name in ("mine", "given", "edited"):
        (ground.root / name).write_bytes(b"old")
        node = ground.file(b"else" if name == "edited" else b"old")
        ops.append(Op(RelPath(name.encode()), node, ground.file(b"new"), How.IN_PLACE))
    own = (os.stat(ground.root).st_uid, os.stat(ground.root).st_gid)
    before = os.stat(ground.root / "edited").st_mtime_ns
    times = {op.path: Times(wanted, own) for op in ops}
    times[RelPath(b"given")] = Times(wanted, (own[0] + 1, own[1]))
    applier = ground.applier()
    report = applier.carry_out(applier.stage(Plan.of(ops)), times)
    assert report.timed == {b"mine"}
    at = os.stat(ground.root / "mine")
    assert (at.st_atime_ns, at.st_mtime_ns) == wanted
    assert os.stat(ground.root / "given").st_mtime_ns != wanted[1]  # a new owner comes first
    assert os.stat(ground.root / "edited").st_mtime_ns == before
    assert [one.path for one in report.conflicts] == [b"edited"]
