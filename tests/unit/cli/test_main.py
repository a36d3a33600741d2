"""Every way a call can end, seen from outside: exit status, stdout, stderr."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import substrate
from substrate import errors
from tests.unit.cli.conftest import Frame, program

ERROR_KINDS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, errors.SubstrateError)
]


@pytest.mark.parametrize("kind", ERROR_KINDS, ids=lambda kind: kind.__name__)
def test_each_error_becomes_a_message_a_hint_and_its_status(
    frame: Frame, kind: type[errors.SubstrateError]
) -> None:
    done = frame("--json", "fail", kind.__name__)
    assert done.returncode == kind.exit_code
    assert done.stdout == b""
    message, more, hint, document = done.stderr.decode().splitlines()
    first = "nothing was changed: it went" if kind is errors.MovedBranchesError else "it went"
    assert message == f"substrate: error: {first}"
    assert more == "  wrong \\x1b[2J"
    assert hint == "hint: do better"
    fields = json.loads(document)["error"]
    assert fields == {"kind": kind.kind, "message": f"{first}\nwrong \x1b[2J", "hint": "do better"}


def test_conflicts_name_their_paths_in_json(frame: Frame) -> None:
    done = frame("fail", "conflict", "--json")
    assert json.loads(done.stderr.splitlines()[-1])["error"]["paths"] == ["a", "b"]
    assert done.returncode == 1


def test_json_prints_one_document_and_nothing_else(frame: Frame) -> None:
    done = frame("parrot", "--json", "--session", "s-1")
    assert done.returncode == 0
    assert done.stderr == b""
    assert json.loads(done.stdout)["session"] == "s-1"


@pytest.mark.parametrize("how", ["twice", "mixed"])
def test_a_verb_that_breaks_the_json_promise_is_caught(frame: Frame, how: str) -> None:
    assert frame("--json", "fail", how).returncode == errors.EXIT_BUG


@pytest.mark.parametrize("words", [(), ("lgo",), ("parrot", "--bogus"), ("--session",)])
def test_usage_errors_exit_2(frame: Frame, words: tuple[str, ...]) -> None:
    done = frame(*words)
    assert done.returncode == errors.EXIT_USAGE
    assert done.stderr.startswith(b"substrate: error: ")
    assert b"\nhint: " in done.stderr
    assert done.stdout == b""


def test_run_gives_the_commands_own_status(frame: Frame) -> None:
    done = frame("--session", "s-9", "-c", "exit 42")
    assert done.returncode == 42
    assert json.loads(done.stdout)["session"] == "s-9"


@pytest.mark.parametrize(
    "words",
    [("-c", "fail"), ("-c", "crash"), ("run", "--bogus", "--", "ls"), ("run", "-c"), ("-c",)],
)
def test_substrates_own_failure_under_run_is_125(frame: Frame, words: tuple[str, ...]) -> None:
    assert frame(*words).returncode == errors.EXIT_RUN_FAILED


def test_a_bug_leaves_a_private_redacted_report(frame: Frame, private_environment: Path) -> None:
    done = frame("fail", "bug", "--session", "token=ghp_0123456789abcdefghijABCDEFGHIJ012345")
    assert done.returncode == errors.EXIT_BUG
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert "hunter2" not in said
    [report] = (private_environment / ".substrate" / "crash").iterdir()
    assert str(report) in said
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert stat.S_IMODE(report.parent.stat().st_mode) == 0o700
    text = report.read_text()
    assert f"substrate {substrate.__version__}" in text
    assert "ZeroDivisionError" in text
    assert "hunter2" not in text
    assert "ghp_" not in text
    assert str(private_environment) not in text, "no value from the environment"


def test_a_bug_is_reported_where_the_home_cannot_be_written(
    frame: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file where a directory should be")
    monkeypatch.setenv("SUBSTRATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = frame("fail", "bug")
    assert done.returncode == errors.EXIT_BUG
    [report] = tmp_path.glob("substrate-crash-*/*.txt")
    assert str(report).encode() in done.stderr


@pytest.mark.parametrize("number", ["ENOSPC", "EROFS", "EACCES", "EIO"])
def test_what_the_machine_refuses_is_no_bug(
    frame: Frame, private_environment: Path, number: str
) -> None:
    done = frame("fail", number)
    assert done.returncode == errors.EXIT_REFUSED
    assert b"some/file" in done.stderr
    assert b"\nhint: " in done.stderr
    assert not (private_environment / ".substrate" / "crash").exists()


def test_an_interrupt_is_130(frame: Frame) -> None:
    done = frame("fail", "interrupt")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_reader_that_goes_away_is_no_error(frame: Frame) -> None:
    assert frame("parrot").returncode == 0  # the fixture has set the environment
    process = subprocess.Popen(
        program("fail", "flood"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"line 0\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_reader_that_was_never_there_is_no_error(frame: Frame) -> None:
    assert frame("parrot").returncode == 0
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(program("parrot"), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_earlier_output_comes_before_the_error(frame: Frame) -> None:
    assert frame("parrot").returncode == 0
    done = subprocess.run(
        program("fail", "late"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.stdout.splitlines() == [b"first", b"substrate: error: then"]


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    "words",
    [["parrot"], ["parrot", "--json"], ["--help"], ["--version"], ["--version", "--json"]],
    ids=" ".join,
)
def test_a_full_stdout_is_reported(frame: Frame, words: list[str]) -> None:
    assert frame("parrot").returncode == 0
    with open("/dev/full", "wb") as full:
        done = subprocess.run(program(*words), stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == errors.EXIT_MISSING
    said, hint, *document = done.stderr.decode().splitlines()
    assert said.startswith("substrate: error: the answer could not be written to stdout: No space")
    assert hint.startswith("hint: ")
    assert [json.loads(line)["error"]["kind"] for line in document] == ["output"] * len(document)
    assert len(document) == ("--json" in words)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("name", ["substrate", "ctx"])
def test_a_help_page_larger_than_the_buffer_is_not_lost_in_silence(name: str) -> None:
    """argparse ignores a write error; here each write meets the full device at once."""
    call = f"from substrate.cli.{'ctx' if name == 'ctx' else 'main'} import {name}; exit({name}())"
    verb = "pack" if name == "ctx" else "log"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-u", "-c", call, verb, "--help"], stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode == errors.EXIT_MISSING
    assert b"could not be written to stdout" in done.stderr


def test_a_word_the_locale_cannot_spell_is_escaped(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = frame("parrot", "--session", "grün")
    assert done.returncode == 0
    assert rb"gr\xfcn" in done.stdout
    assert json.loads(frame("--json", "parrot", "--session", "grün").stdout)["session"] == "grün"


def test_version_and_help(frame: Frame) -> None:
    assert frame("--version").stdout.decode() == f"substrate {substrate.__version__}\n"
    assert json.loads(frame("--version", "--json").stdout) == {"version": substrate.__version__}
    overview = frame("--help")
    assert overview.returncode == 0
    assert b"substrate parrot hello --times 2" in overview.stdout
    for words in (("parrot", "--help"), ("--help", "parrot")):
        done = frame(*words)
        assert done.returncode == 0
        assert b"usage: substrate parrot" in done.stdout
        assert b"example:" in done.stdout
        assert done.stderr == b""


def test_workspace_option_moves_the_start(
    frame: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    for words in (("-C", "b", "parrot"), ("parrot", "--workspace", str(tmp_path / "a" / "b"))):
        assert json.loads(frame("--json", *words).stdout)["cwd"] == str(tmp_path / "a" / "b")


@pytest.mark.needs("posix")
def test_a_current_directory_that_is_gone(frame: Frame, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    before = Path.cwd()
    os.chdir(gone)
    try:
        gone.rmdir()
        done = frame("parrot")
    finally:
        os.chdir(before)
    assert done.returncode == errors.EXIT_REFUSED
    assert b"current directory is no longer there" in done.stderr
