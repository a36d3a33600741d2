"""Files over the size cap: known by inode, size and time, and not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.contract.program import Done, Program

pytestmark = pytest.mark.needs("world-overlay")

MIB = 1 << 20
#: A hole, and many times what the program reads of its own.
SPARSE = 1024 * MIB
MOST_READ = 256 * MIB


def read_so_far() -> int:
    """Bytes that this process and its ended children have read."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise AssertionError("no rchar in /proc/self/io")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    root = tmp_path / "project"
    root.mkdir()
    (root / "small").write_text("1\n")
    home = tmp_path / "home"
    home.mkdir()
    program = Program(root, {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")})
    program("-c", "true").went_well()
    (root / ".substrate-git/config.toml").write_text("[exclude]\nmax_file_mib = 1\n")
    return program


def unread(program: Program, *words: str) -> Done:
    before = read_so_far()
    done = program(*words).went_well()
    assert read_so_far() - before < MOST_READ, words
    return done


def trash(program: Program) -> list[str]:
    return [path.name for path in (program.cwd / ".substrate-git/trash").rglob("entry.json")]


def test_the_measure_sees_a_child_that_reads(program: Program) -> None:
    os.truncate(os.open(program.cwd / "big", os.O_CREAT | os.O_WRONLY), SPARSE)
    before = read_so_far()
    program("-c", "cat big > /dev/null").went_well()
    assert read_so_far() - before >= SPARSE


@pytest.mark.parametrize("world", [(), ("--no-world",)], ids=["world", "no-world"])
def test_a_large_file_is_never_read(program: Program, world: tuple[str, ...]) -> None:
    big = program.cwd / "big"
    for line, size, mode in (
        (f"truncate -s {SPARSE} big", SPARSE, 0o644),
        ("echo 2 > small", SPARSE, 0o644),
        ("touch -d @1000 big", SPARSE, 0o644),
        ("chmod 600 big", SPARSE, 0o600),
        ("printf x >> big", SPARSE + 1, 0o600),
        ("printf y | dd of=big conv=notrunc bs=1 seek=5 2>/dev/null", SPARSE + 1, 0o600),
    ):
        unread(program, *world, "-c", f"umask 022; {line}")
        at = big.stat()
        assert (at.st_size, at.st_mode & 0o777) == (size, mode), line
    with big.open("rb") as file:
        assert file.read(7) == b"\0\0\0\0\0y\0"
    unread(program, *world, "-c", "mv big other")
    assert not big.exists()
    unread(program, *world, "-c", "rm other")
    assert not (program.cwd / "other").exists()


def test_undo_brings_it_back_unread(program: Program) -> None:
    program("-c", f"truncate -s {SPARSE} big; printf x >> big").went_well()
    unread(program, "-c", "rm big")
    unread(program, "undo")
    assert (program.cwd / "big").stat().st_size == SPARSE + 1
    unread(program, "-c", "mv big other")
    unread(program, "undo")
    assert (program.cwd / "big").stat().st_size == SPARSE + 1
    assert not (program.cwd / "other").exists()


def test_new_bytes_behind_the_same_size_and_time_arrive(program: Program) -> None:
    big = program.cwd / "big"
    big.write_bytes(b"a" * 3 * MIB)
    line = "touch -r big then; printf b | dd of=big conv=notrunc bs=1 seek=2M 2>/dev/null"
    program("-c", f"{line}; touch -r then big; rm then").went_well()
    content = big.read_bytes()
    assert len(content) == 3 * MIB
    assert content[2 * MIB : 2 * MIB + 2] == b"ba"
    program("undo").went_well()
    assert big.read_bytes() == b"a" * 3 * MIB


@pytest.mark.parametrize("line", ["touch big", "chmod 600 big", "cp big x && cat x > big; rm x"])
def test_the_same_content_stays_the_same_file(program: Program, line: str) -> None:
    big = program.cwd / "big"
    big.write_bytes(os.urandom(3 * MIB))
    before, content = big.stat(), big.read_bytes()
    program("-c", line).went_well()
    assert big.stat().st_ino == before.st_ino
    assert big.read_bytes() == content
    assert trash(program) == []


def test_undo_and_redo_exchange_a_small_file_and_a_large_one(program: Program) -> None:
    """Seen: undo deleted the small file and left the large one in the trash."""
    big = program.cwd / "big"
    big.write_bytes(bytes(2 * MIB))
    program("-c", "mv small big").went_well()
    for _ in range(2):
        program("undo").went_well()
        assert (big.stat().st_size, (program.cwd / "small").read_text()) == (2 * MIB, "1\n")
        program("redo").went_well()
        assert big.read_text() == "1\n" and not (program.cwd / "small").exists()


def test_a_rollback_over_several_kinds_of_content_takes_all_of_them_back(program: Program) -> None:
    """Seen: the large file stayed, as if nothing was to be changed."""
    file = program.cwd / "file"
    program("checkpoint").went_well()
    program("-c", "echo small > file").went_well()
    program("-c", "truncate -s 2M file").went_well()
    program("rollback", "--checkpoint", "1").went_well()
    assert not file.exists()
    program("redo").went_well()
    assert file.stat().st_size == 2 * MIB
    program("undo").went_well()
    assert file.read_text() == "small\n"


def test_a_rollback_brings_back_the_large_file_below_a_small_one(program: Program) -> None:
    file = program.cwd / "file"
    file.write_bytes(bytes(2 * MIB))
    program("checkpoint").went_well()
    program("-c", "rm file").went_well()
    program("-c", "echo small > file").went_well()
    program("rollback", "--checkpoint", "1").went_well()
    assert file.stat().st_size == 2 * MIB
    program("redo").went_well()
    assert file.read_text() == "small\n"
    program("undo").went_well()
    assert not file.exists()
