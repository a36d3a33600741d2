"""The quick reader of git's index says the same as the careful one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrate.objects.index.git_index import IndexEntry, UnusualIndexError, parse_index
from substrate.objects.index.index_by_directory import IndexTable, columns, read_table


def git(repo: Path, *args: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(["git", *args], cwd=repo, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def entries_of(table: IndexTable) -> list[IndexEntry]:
    found = []
    for directory in table.directories:
        read = columns(table.rows_of(directory))
        assert read is not None
        names, oids, modes, sizes, mtimes_ns, ctimes_ns, inos = read
        rest = zip(oids, modes, sizes, mtimes_ns, ctimes_ns, inos, strict=True)
        paths = (directory + name for name in names)
        found += [IndexEntry(path, *one) for path, one in zip(paths, rest, strict=True)]
    return sorted(found)


def paths_of(table: IndexTable) -> list[bytes]:
    return [directory + row[1] for directory, row in table.all_rows()]


PARTS = st.binary(min_size=1, max_size=9).filter(
    lambda part: not {0, 47} & set(part) and part not in (b".", b"..") and b"g" not in part.lower()
)
PATHS = st.sets(st.lists(PARTS, min_size=1, max_size=3).map(b"/".join), max_size=25)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


@given(paths=PATHS, version=st.sampled_from([2, 4]))
@settings(max_examples=60, deadline=None, database=None)
def test_both_readers_agree(paths: set[bytes], version: int) -> None:
    files = [path for path in paths if not any(o.startswith(path + b"/") for o in paths)]
    with tempfile.TemporaryDirectory() as top:
        repo = Path(top)
        git(repo, "init", "-q")
        for path in files:
            full = os.path.join(os.fsencode(top), path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(path)
        git(repo, "add", "-f", "-A")
        git(repo, "update-index", "--index-version", str(version))
        data = (repo / ".git/index").read_bytes()
    table = read_table(data)
    assert entries_of(table) == sorted(parse_index(data))
    assert paths_of(table) == sorted(files)
    assert table.count == len(files)
    parsed = sorted(parse_index(data))
    assert table.sizes_and_ids() == (tuple(e.size for e in parsed), tuple(e.oid for e in parsed))
    for name in {path.rpartition(b"/")[2] for path in files}:
        wanted = {path for path in files if path.rpartition(b"/")[2] == name}
        assert table.paths_named(name) == wanted


def test_every_directory_above_has_rows(repo: Path) -> None:
    oid = git(repo, "hash-object", "-w", "--stdin", stdin=b"x").strip().decode()
    (repo / "a/b/c").mkdir(parents=True)
    (repo / "a/b/c/d").write_bytes(b"x")
    git(repo, "add", "a")
    table = read_table((repo / ".git/index").read_bytes())
    assert set(table.directories) == {b"", b"a/", b"a/b/", b"a/b/c/"}
    assert [oid.hex() for oid in table.sizes_and_ids()[1]] == [oid]


@pytest.mark.parametrize("length", [4093, 4094, 4095])
def test_a_path_longer_than_the_flags_can_say(repo: Path, length: int) -> None:
    path = "/".join(["p" * 200] * 30)[: length - 1] + "q"
    here = os.getcwd()
    for part in path.split("/")[:-1]:
        os.makedirs(part if os.getcwd() != here else repo / part, exist_ok=True)
        os.chdir(part if os.getcwd() != here else repo / part)
    try:
        Path(path.split("/")[-1]).write_bytes(b"deep")
    finally:
        os.chdir(here)
    git(repo, "add", "p" * 200)
    data = (repo / ".git/index").read_bytes()
    assert paths_of(read_table(data)) == [path.encode()]


def damaged(data: bytes, change: str) -> bytes:
    if change == "a flipped bit":
        return data[:40] + bytes([data[40] ^ 1]) + data[41:]
    if change == "no checksum":
        return data[:-20] + bytes(20)
    if change == "torn":
        return data[:-30]
    body = data[:8] + (9).to_bytes(4, "big") + data[12:-20]  # more entries than there are
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


@pytest.mark.parametrize("change", ["a flipped bit", "no checksum", "torn", "a wrong count"])
def test_a_damaged_index_is_not_believed(repo: Path, change: str) -> None:
    for name in "ab":
        (repo / name).write_text(name)
        git(repo, "add", name)
    data = (repo / ".git/index").read_bytes()
    assert read_table(data).count == 2
    with pytest.raises(UnusualIndexError):
        read_table(damaged(data, change))


def test_marked_entries_are_not_plain(repo: Path) -> None:
    (repo / "m").write_text("m")
    git(repo, "add", "m")
    git(repo, "update-index", "--assume-unchanged", "m")
    table = read_table((repo / ".git/index").read_bytes())
    assert columns(table.rows_of(b"")) is None


@pytest.mark.parametrize("version", [2, 4])
def test_more_entries_than_are_matched_at_once(repo: Path, version: int) -> None:
    """In one directory, with another one in its middle; as many as a pattern takes, and more."""
    names = [f"d/{number:04}" for number in range(2500)] + ["d/1200x/e", "d/1200x/f", "last"]
    (repo / "d/1200x").mkdir(parents=True)
    for name in names:
        (repo / name).touch()
    git(repo, "update-index", "--index-version", str(version))
    for count in (1000, 1001, 1002, 2001, len(names)):
        git(repo, "update-index", "--add", "--stdin", stdin="\n".join(names[:count]).encode())
        data = (repo / ".git/index").read_bytes()
        table = read_table(data)
        assert paths_of(table) == sorted(name.encode() for name in names[:count])
        assert entries_of(table) == sorted(parse_index(data))
    assert table.weights().keys() == table.directories.keys()
    assert sum(table.weights().values()) > 2400
    assert table.paths_named(b"1199") == {b"d/1199"}
    assert table.paths_named(b"e") == {b"d/1200x/e"}
    assert table.paths_named(b"ast") == set()


def test_a_directory_as_an_entry_is_not_read_this_way(repo: Path) -> None:
    """As in a sparse index: the name would be empty."""
    for name in ("aa", "bc"):
        (repo / name).write_text(name)
    git(repo, "add", "aa", "bc")
    data = (repo / ".git/index").read_bytes()
    body = data[:-20].replace(b"\0\2bc\0", b"\0\2b/\0")
    assert body != data[:-20]
    with pytest.raises(UnusualIndexError):
        read_table(body + hashlib.sha1(body, usedforsecurity=False).digest())


READ = """
import sys
from substrate.objects.index.git_index import UnusualIndexError
from substrate.objects.index.index_by_directory import read_table
try:
    read_table(open(sys.argv[1], "rb").read())
except UnusualIndexError:
    print("unusual")
"""


@pytest.mark.parametrize("how", ["--skip-worktree", "--intent-to-add"])
def test_an_entry_with_extended_flags_is_refused_soon(repo: Path, how: str) -> None:
    """It is longer: trying every padding of all other entries would never end."""
    names = [f"d{number % 7}/{'n' * (number % 23)}{number}" for number in range(500)]
    for name in names:
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).touch()
    git(repo, "add", "-A")
    if how == "--intent-to-add":
        (repo / "d3/x").touch()
        git(repo, "add", how, "d3/x")
    else:
        git(repo, "update-index", how, names[123])
    command = [sys.executable, "-c", READ, str(repo / ".git/index")]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert done.stdout == b"unusual\n"
