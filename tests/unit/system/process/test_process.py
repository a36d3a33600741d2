from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError, SubstrateError, WorkspaceError
from substrate.system.process import process


def test_output_and_status_are_captured() -> None:
    done = process.run(["sh", "-c", "printf out; printf err >&2; exit 3"])
    assert done == process.Completed(3, b"out", b"err")


def test_input_goes_in_and_large_output_comes_out() -> None:
    data = os.urandom(3_000_000)
    assert process.run(["cat"], input=data).stdout == data


def test_without_input_there_is_none_to_read() -> None:
    assert process.run(["cat"]).stdout == b""


def test_directory_and_environment(tmp_path: Path) -> None:
    done = process.run(["/bin/sh", "-c", "pwd; echo $ONLY"], cwd=tmp_path, env={"ONLY": "this"})
    assert done.stdout.decode().split() == [str(tmp_path.resolve()), "this"]


def test_bytes_arguments_arrive_as_they_are() -> None:
    assert process.run([b"printf", b"%s", b"a\xff\n"]).stdout == b"a\xff\n"


def test_our_descriptors_do_not_leak_into_it() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        done = process.run([sys.executable, "-c", f"import os; os.fstat({write})"])
    finally:
        os.close(read)
        os.close(write)
    assert b"Bad file descriptor" in done.stderr


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(MissingDependencyError) as caught:
        process.run(["no-such-program"])
    assert "no-such-program" in caught.value.message
    assert caught.value.hint


def test_a_program_that_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    with pytest.raises(MissingDependencyError, match="Permission denied"):
        process.run([str(tmp_path / "plain")])


def test_a_directory_that_is_not_there_is_not_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        process.run(["true"], cwd=tmp_path / "gone")


def test_a_timeout_is_an_error_and_ends_the_program() -> None:
    with pytest.raises(SubstrateError, match="sleep did not finish within 0.1 s"):
        process.run(["sleep", "60"], timeout_s=0.1)


def test_check_reports_what_the_program_printed() -> None:
    with pytest.raises(SubstrateError, match="sh exited with status 3: second"):
        process.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"], check=True)


def test_check_reports_the_signal() -> None:
    with pytest.raises(SubstrateError, match="killed by signal 9"):
        process.run(["sh", "-c", "kill -9 $$"], check=True)


def test_what_stdin_is(tmp_path: Path) -> None:
    read, write = os.pipe()
    (tmp_path / "f").touch()
    null, file = os.open(os.devnull, os.O_RDONLY), os.open(tmp_path / "f", os.O_RDONLY)
    kinds = [process.stdin_kind(fd) for fd in (read, null, file)]
    for fd in (read, write, null, file):
        os.close(fd)
    assert kinds == ["pipe", "null", "file"]
    assert process.stdin_kind(file) == "closed"
