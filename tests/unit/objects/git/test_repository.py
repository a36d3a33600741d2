"""Content out of any repository, through one git process that is asked ahead of its answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError
from substrate.objects.git.repository import Repository

#: More than two windows of requests, and more bytes than any pipe holds; some of them odd.
CONTENTS = [
    b"", b"\n", b"no line feed", b"\0\r\n\n", b"x" * 3_000_000,
    *[b"%d\n" % n * (n % 40) + b"end %d" % n for n in range(900)],
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    stream = b"".join(b"blob\ndata %d\n%s\n" % (len(one), one) for one in CONTENTS)
    argv = ["git", "-C", str(made), "fast-import", "--quiet"]
    subprocess.run(argv, input=stream, check=True)
    return made


def oid_of(root: Path, content: bytes) -> bytes:
    argv = ["git", "-C", str(root), "hash-object", "--stdin"]
    return bytes.fromhex(subprocess.run(argv, input=content, capture_output=True).stdout.decode())


@pytest.fixture(scope="module")
def oids(root: Path) -> list[bytes]:
    """In the order of the contents."""
    from hashlib import sha1

    made = [sha1(b"blob %d\0%s" % (len(one), one)).digest() for one in CONTENTS]
    assert made[2] == oid_of(root, CONTENTS[2])
    return made


def test_blobs_come_as_they_are_in_the_order_asked_for(root: Path, oids: list[bytes]) -> None:
    with Repository(root / ".git", root) as repository:
        assert list(repository.read_blobs([])) == []
        for wanted in (oids[:1], oids[:256], oids[:257], oids, oids[::-1]):
            expected = [CONTENTS[oids.index(oid)] for oid in wanted]
            assert [data for _, data in repository.read_blobs(wanted)] == expected


@pytest.mark.parametrize("asked", ["one is missing", "nobody reads on"])
def test_what_was_not_read_is_no_answer_to_the_next_question(
    root: Path, oids: list[bytes], asked: str
) -> None:
    with Repository(root / ".git", root) as repository:
        if asked == "one is missing":
            with pytest.raises(DamagedStoreError):
                list(repository.read_blobs([*oids[:300], b"\x12" * 20, *oids[300:]]))
        else:
            next(repository.read_blobs(oids))
        assert list(repository.read_blobs(oids[5:7])) == [
            *zip(oids[5:7], CONTENTS[5:7], strict=True)
        ]


def test_one_git_answers_and_takes_no_more_than_there_is(root: Path, oids: list[bytes]) -> None:
    with Repository(root / ".git", root) as repository:
        next(repository.read_blobs(oids[:1]))
        reader = repository._reader
        assert reader is not None
        next(repository.read_blobs(oids[1:2]))
        assert repository._reader is reader


@pytest.mark.parametrize("place", [0, 300, 700])
def test_a_blob_that_is_missing_is_reported_and_those_before_it_are_right(
    root: Path, oids: list[bytes], place: int
) -> None:
    missing = b"\x12" * 20
    read = []
    with (
        Repository(root / ".git", root) as repository,
        pytest.raises(DamagedStoreError, match="lacks the content 1212"),
    ):
        for _, data in repository.read_blobs([*oids[:place], missing, *oids[place:]]):
            read.append(data)
    assert read == CONTENTS[:place]


def test_a_git_that_dies_is_reported_however_far_it_was_asked_ahead(
    root: Path, oids: list[bytes], tmp_path: Path
) -> None:
    # A blob whose bytes are not what they were: git gives up, in the middle of the answers.
    damaged = tmp_path / "damaged"
    subprocess.run(["git", "init", "-q", str(damaged)], check=True)
    (pack,) = (root / ".git/objects/pack").glob("*.pack")
    raw = bytearray(pack.read_bytes())
    half = len(raw) // 2
    raw[half : half + 200] = bytes(byte ^ 0xFF for byte in raw[half : half + 200])
    copy = damaged / ".git/objects/pack" / pack.name
    copy.write_bytes(raw)
    copy.with_suffix(".idx").write_bytes(pack.with_suffix(".idx").read_bytes())
    with (
        Repository(damaged / ".git", damaged) as repository,
        pytest.raises(DamagedStoreError, match="cannot read|lacks the content"),
    ):
        list(repository.read_blobs(oids))


_SMALL_PIPES = """
import fcntl, sys
from pathlib import Path
from substrate.objects.git.repository import Repository
root = Path(sys.argv[1])
with Repository(root / ".git", root) as repository:
    for stream in repository._streams():
        fcntl.fcntl(stream.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    oids = map(bytes.fromhex, sys.stdin.read().split())
    for _, data in repository.read_blobs(oids):
        print(len(data))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="pipes have one size elsewhere")
def test_small_pipes_make_no_caller_wait_for_ever(root: Path, oids: list[bytes]) -> None:
    """A user beyond pipe-user-pages-soft gets such: a git that cannot go on reads no requests."""
    asked = "\n".join(oid.hex() for oid in oids)
    argv = [sys.executable, "-c", _SMALL_PIPES, str(root)]
    done = subprocess.run(argv, input=asked, text=True, capture_output=True, timeout=120)
    assert done.stdout.split() == [str(len(one)) for one in CONTENTS], done.stderr
