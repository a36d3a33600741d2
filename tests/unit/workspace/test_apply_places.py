"""Odd names, odd places: long and binary names, submounts, open files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT
from substrate.workspace.apply.plan import How, Plan
from substrate.workspace.apply.trash_reasons import TrashReason
from tests.mounts import mounted, tmpfs_words
from tests.unit.workspace.applying import Ground, Leaving
from tests.unit.workspace.applying import any_ground as ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("posix")

NAMES = [b"n" * 255, b"new\nline", b"-rf", b"--", b"\xff\xfe", b" ", b"*", b"%41", b".part", b"1"]


@pytest.mark.needs("byte-names")
@pytest.mark.parametrize("name", NAMES)
def test_names(ground: Ground, name: bytes) -> None:
    ground.put(name, ground.directory())
    path = name + b"/" + name
    for node in (ground.file(b"1"), ground.file(b"2", 0o600), ground.link(name), ABSENT):
        report = ground.apply(ground.op(path, node))
        assert report.done == (path,) and ground.at(path) == node
    assert Plan.from_json(Plan.of([ground.op(path, ABSENT)]).to_json()).ops[0].path == path


def test_a_deep_path(ground: Ground) -> None:
    parts = [b"d%d" % number for number in range(60)]
    ops = [ground.op(b"/".join(parts[: n + 1]), ground.directory()) for n in range(60)]
    path = b"/".join([*parts, b"file"])
    report = ground.apply(*ops, ground.op(path, ground.file(b"deep")))
    assert len(report.done) == 61 and ground.at(path) == ground.file(b"deep")


def test_hundreds_of_files_at_once(ground: Ground) -> None:
    ops = [ground.op(b"f%d" % n, ground.file(b"%d" % n)) for n in range(300)]
    assert len(ground.apply(*ops).done) == 300
    assert len(ground.apply(*[ground.op(op.path, ABSENT) for op in ops]).done) == 300
    assert ground.listing() == {}


# ------------------------------------------------------------------------ open files


@pytest.mark.needs("linux")
@pytest.mark.parametrize("become", ["content", "absent", "link"])
def test_bytes_written_after_the_replacement_are_in_the_trash(ground: Ground, become: str) -> None:
    """A program keeps the file open across the whole operation and writes later."""
    ground.put(b"log", ground.file(b"one\n"))
    new = {"content": ground.file(b"new"), "absent": ABSENT, "link": ground.link(b"l")}[become]
    with open(ground.where(b"log"), "ab", buffering=0) as writer:
        report = ground.apply(ground.op(b"log", new))
        writer.write(b"two\n")
    assert report.done == report.trashed == (b"log",)
    (entry,) = ground.trash.list()
    assert entry.why.reason is TrashReason.IN_USE
    assert entry.location.read_bytes() == b"one\ntwo\n"


@pytest.mark.needs("linux")
def test_a_writable_mapping_counts_as_open(ground: Ground) -> None:
    import mmap

    ground.put(b"db", ground.file(b"page"))
    with open(ground.where(b"db"), "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 4)
    report = ground.apply(ground.op(b"db", ABSENT))
    mapped[:] = b"PAGE"
    mapped.close()
    assert report.trash_entries[0].location.read_bytes() == b"PAGE"


def test_a_reader_does_not_matter(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    with open(ground.where(b"x"), "rb") as reader:
        report = ground.apply(ground.op(b"x", ground.file(b"new")))
        assert reader.read() == b"old"
    assert report.done == (b"x",) and report.trashed == ()


def test_in_place_a_reader_sees_the_new_bytes(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    with open(ground.where(b"x"), "rb") as reader:
        report = ground.apply(ground.op(b"x", ground.file(b"newer"), How.IN_PLACE))
        assert reader.read() == b"newer"
    assert report.done == (b"x",)


@pytest.mark.needs("linux")
def test_in_place_a_writer_is_a_conflict(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    with open(ground.where(b"x"), "ab") as writer:
        report = ground.apply(ground.op(b"x", ground.file(b"new"), How.IN_PLACE))
        writer.write(b" and more")
    assert "open for writing" in report.conflicts[0].reason
    assert ground.where(b"x").read_bytes() == b"old and more"


@pytest.mark.needs("linux")
def test_a_running_program_is_replaced_instead_of_rewritten(ground: Ground) -> None:
    program = Path("/bin/sleep").read_bytes()
    ground.put(b"prog", ground.file(program, 0o755))
    running = subprocess.Popen([ground.where(b"prog"), "60"])
    try:
        report = ground.apply(ground.op(b"prog", ground.file(b"#!/bin/sh\n", 0o755), How.IN_PLACE))
    finally:
        running.kill()
        running.wait()
    assert report.done == (b"prog",)
    assert ground.at(b"prog") == ground.file(b"#!/bin/sh\n", 0o755)


# ------------------------------------------------------------------------ submounts


@pytest.fixture
def submount(ground: Ground) -> Iterator[Ground]:
    """A ground with another file system mounted at ``mnt``."""
    ground.put(b"mnt", ground.directory())
    with mounted(ground.where(b"mnt"), *tmpfs_words(mode="755")):
        yield ground


@pytest.mark.needs("root", "linux")
def test_on_a_submount_everything_works_as_elsewhere(submount: Ground) -> None:
    ground = submount
    ground.exclusions = Leaving(b"bulk")
    ground.put(b"mnt/d", ground.directory())
    ground.put(b"mnt/d/x", ground.file(b"old", 0o640))
    ground.put(b"mnt/d/gone", ground.file(b"gone"))
    ground.put(b"mnt/e", ground.directory())
    ground.put(b"mnt/e/in", ground.file(b"1"))
    ground.put(b"mnt/bulk", ground.directory())
    ground.put(b"mnt/bulk/in", ground.file(b"excluded"))
    new = {
        b"mnt/d/x": ground.file(b"new", 0o2755),
        b"mnt/d/gone": ABSENT,
        b"mnt/d/link": ground.link(b"x"),
        b"mnt/d/sub": ground.directory(0o711),
        b"mnt/d/sub/y": ground.file(b"y"),
        b"mnt/e": ground.file(b"was a directory"),
        b"mnt/e/in": ABSENT,
        b"mnt/bulk": ABSENT,
    }
    report = ground.apply(*[ground.op(path, node) for path, node in new.items()])
    assert report.complete, report
    assert {path: ground.at(path) for path in new} == new
    assert (ground.trash.list()[0].location / "in").read_bytes() == b"excluded"
    assert [name for name in ground.listing() if b".substrate-" in name] == []


@pytest.mark.needs("root", "linux")
def test_on_a_submount_a_directory_goes_with_its_content(submount: Ground) -> None:
    ground = submount
    ground.put(b"mnt/d", ground.directory())
    ground.put(b"mnt/d/x", ground.file(b"old"))
    report = ground.apply(ground.op(b"mnt/d", ABSENT), ground.op(b"mnt/d/x", ABSENT))
    assert report.complete and os.listdir(ground.where(b"mnt")) == []


@pytest.mark.needs("root", "linux")
def test_a_mount_point_itself_stays(submount: Ground) -> None:
    ground = submount
    report = ground.apply(ground.op(b"mnt", ABSENT))
    (kept,) = report.kept_directories
    assert kept.path == b"mnt" and "mounted" in kept.reason


@pytest.mark.needs("root", "linux")
def test_on_a_full_submount_everything_is_taken_back(ground: Ground) -> None:
    from substrate.errors import DiskFullError

    ground.put(b"mnt", ground.directory())
    with mounted(ground.where(b"mnt"), *tmpfs_words(mode="755", size="64k")):
        ground.put(b"a", ground.file(b"a"))
        before = ground.listing()
        ops = [
            ground.op(b"a", ABSENT),
            ground.op(b"mnt/small", ground.file(b"s")),
            ground.op(b"mnt/zbig", ground.file(b"z" * 100_000)),
        ]
        applier = ground.applier()
        staged = applier.stage(Plan.of(ops))
        with pytest.raises(DiskFullError):
            applier.carry_out(staged)
        assert ground.listing() == before
        ground.assert_swept()
