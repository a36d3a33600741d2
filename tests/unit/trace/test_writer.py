from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.system import environment
from substrate.trace.reader import TraceReader
from substrate.trace.writer import TraceWriter, encode

APPENDER = """
import sys
from pathlib import Path
from substrate.trace.writer import TraceWriter
path, who, count, rotate, kept = sys.argv[1:]
writer = TraceWriter(Path(path), rotate_bytes=int(rotate), kept_files=int(kept))
sys.stdin.readline()
for number in range(int(count)):
    writer.append({"who": who, "number": number, "padding": "x" * (number * 37 % 9000)})
"""


def append_from_many(path: Path, *, count: int, rotate_bytes: int, kept_files: int = 99) -> None:
    """Eight processes that start at the same moment."""
    processes = []
    for who in range(8):
        argv = [str(path), str(who), str(count), str(rotate_bytes), str(kept_files)]
        processes.append(
            subprocess.Popen([sys.executable, "-c", APPENDER, *argv], stdin=subprocess.PIPE)
        )
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 8


def written(*paths: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def test_one_span_is_one_line(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "trace.jsonl")
    writer.append({"a": 1, "text": "two\nlines"})
    writer.append({"b": [None, True, "é"]})
    assert (tmp_path / "trace.jsonl").read_text() == (
        '{"a":1,"text":"two\\nlines"}\n{"b":[null,true,"é"]}\n'
    )


def test_text_without_a_utf8_form_is_escaped() -> None:
    line = encode({"a": "x\udcff"})
    assert line == b'{"a":"x\\udcff"}\n'
    assert json.loads(line) == {"a": "x\udcff"}


def test_eight_processes_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    append_from_many(path, count=150, rotate_bytes=10**9)
    spans = written(path)
    assert len(spans) == 8 * 150
    for who in range(8):
        mine = [span["number"] for span in spans if span["who"] == str(who)]
        assert mine == list(range(150))


def test_nothing_is_lost_when_all_of_them_rotate(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    append_from_many(path, count=150, rotate_bytes=200_000)
    files = [file for file in tmp_path.iterdir() if not file.name.endswith(".lock")]
    assert len(files) > 2  # a writer without the lock leaves rotation to the next
    aside = [file for file in files if file != path]
    assert all(file.stat().st_size > 200_000 - 10_000 for file in aside)
    spans = written(*files)
    assert {(span["who"], span["number"]) for span in spans} == {
        (str(who), number) for who in range(8) for number in range(150)
    }
    assert len(spans) == 8 * 150


def test_a_full_file_is_put_aside_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    writer = TraceWriter(path, rotate_bytes=20, kept_files=2)
    for number in range(6):
        writer.append({"number": number})
    names = [path, path.with_name("trace.jsonl.1"), path.with_name("trace.jsonl.2")]
    assert [[span["number"] for span in written(name)] for name in names] == [[5], [4], [3]]
    assert not path.with_name("trace.jsonl.3").exists()


def test_a_line_longer_than_a_file_may_be_is_still_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    writer = TraceWriter(path, rotate_bytes=20)
    writer.append({"text": "x" * 100})
    assert len(written(path)) == 1


def test_a_torn_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"whole":1}\n{"tor')
    TraceWriter(path).append({"next": 2})
    TraceWriter(path).append({"next": 3})
    assert path.read_bytes() == b'{"whole":1}\n{"tor\n{"next":2}\n{"next":3}\n'


def test_a_writer_killed_in_the_middle_harms_no_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), "0", "1000000", "1000000000", "9"],
        stdin=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.close()
    while not path.exists() or path.stat().st_size < 200_000:
        pass
    process.kill()
    process.wait()
    TraceWriter(path).append({"who": "after"})
    assert list(TraceReader(path).spans())[-1] == {"who": "after"}


@pytest.mark.needs("linux")
def test_a_disk_full_in_the_middle_of_a_line_leaves_none_of_it(tmp_path: Path) -> None:
    # A limit on the file's size is met as a full disk is: by a short write, then an error.
    script = """
import resource, signal, sys
from pathlib import Path
from substrate.errors import WorkspaceError
from substrate.trace.writer import TraceWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
writer = TraceWriter(Path(sys.argv[1]))
writer.append({"n": 1})
try:
    writer.append({"text": "x" * 200})
except WorkspaceError:
    writer.append({"n": 2})
"""
    path = tmp_path / "trace.jsonl"
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.read_text() == '{"n":1}\n{"n":2}\n'


def test_a_writer_that_holds_the_lock_for_ever_does_not_stop_the_others(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl", reason="needs posix")
    path = tmp_path / "trace.jsonl"
    with path.open("w") as stuck:
        fcntl.flock(stuck, fcntl.LOCK_EX)
        TraceWriter(path).append({"n": 1})
    assert written(path) == [{"n": 1}]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_others_cannot_read_it(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "deep" / "home"
    old = os.umask(umask)
    try:
        TraceWriter(home / "trace.jsonl", home=home).append({})
    finally:
        os.umask(old)
    assert stat.S_IMODE((home / "trace.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o700


def test_what_was_readable_is_made_private(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    path = home / "trace.jsonl"
    path.touch(mode=0o644)
    TraceWriter(path, home=home).append({})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_directory_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    TraceWriter(shared / "t.jsonl", home=tmp_path / "home").append({})
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


def test_the_environment_says_where(private_environment: Path) -> None:
    TraceWriter.of(environment.current()).append({"a": 1})
    assert written(private_environment / ".substrate" / "trace.jsonl") == [{"a": 1}]


def test_a_device_will_do() -> None:
    TraceWriter(Path(os.devnull)).append({"a": 1})


def test_a_trace_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").mkdir()
    with pytest.raises(WorkspaceError) as caught:
        TraceWriter(tmp_path / "trace.jsonl").append({})
    assert "SUBSTRATE_TRACE" in caught.value.hint


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(WorkspaceError):
        TraceWriter(tmp_path / "home" / "trace.jsonl").append({})


@pytest.mark.needs("linux")
def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(WorkspaceError, match="No space left"):
        TraceWriter(Path("/dev/full")).append({"a": 1})
