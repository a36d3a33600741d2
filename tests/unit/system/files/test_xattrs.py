from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from substrate.system.files.xattrs import read_xattrs, write_xattrs

pytestmark = pytest.mark.needs("user-xattrs")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("x")
    return path


def test_read_what_was_written_sorted_with_binary_values(file: Path) -> None:
    wanted = ((b"user.a", b"\0\xff"), (b"user.b", b""), (b"user.\xff", b"3"))
    write_xattrs(file, wanted, ())
    assert read_xattrs(file) == tuple(sorted(wanted))
    fd = os.open(file, os.O_RDONLY)
    try:
        assert read_xattrs(fd) == tuple(sorted(wanted))
    finally:
        os.close(fd)


def test_only_the_difference_is_written(file: Path) -> None:
    old = ((b"user.a", b"1"), (b"user.b", b"2"))
    write_xattrs(file, old, ())
    new = ((b"user.b", b"3"), (b"user.c", b"4"))
    write_xattrs(file, new, old)
    assert read_xattrs(file) == new
    write_xattrs(file, (), new)
    assert read_xattrs(file) == ()


def test_an_attribute_that_vanished_in_between_is_no_error(file: Path) -> None:
    write_xattrs(file, (), ((b"user.never", b"1"),))
    assert read_xattrs(file) == ()


def test_links_are_not_followed_unless_asked(file: Path) -> None:
    write_xattrs(file, ((b"user.a", b"1"),), ())
    link = file.with_name("link")
    link.symlink_to("file")
    assert read_xattrs(link) == ()
    assert read_xattrs(link, follow=True) == ((b"user.a", b"1"),)
    with pytest.raises(OSError):
        write_xattrs(link, ((b"user.a", b"2"),), ())
    assert read_xattrs(file) == ((b"user.a", b"1"),)


@pytest.mark.needs("linux")
def test_a_place_without_attributes_reads_as_none_and_refuses_to_write() -> None:
    assert read_xattrs("/proc/self/stat") == ()
    with pytest.raises(OSError) as caught:
        write_xattrs("/proc/self/stat", ((b"user.a", b"1"),), ())
    assert caught.value.errno in (errno.ENOTSUP, errno.EPERM, errno.EACCES)
