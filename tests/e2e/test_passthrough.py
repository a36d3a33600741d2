"""``substrate -c`` behaves like the command: bytes, status and signals are the command's own."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE_S = 60.0
SUBSTRATE = [sys.executable, "-m", "substrate"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "kept.txt").write_text("kept\n")
    (root / "gone.txt").write_text("gone\n")
    return root


def substrate(
    workspace: Path, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*SUBSTRATE, *words],
        cwd=workspace,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        timeout=PATIENCE_S,
        check=False,
    )


def spans(home: Path) -> list[dict[str, object]]:
    trace = home / ".substrate" / "trace.jsonl"
    return [json.loads(line) for line in trace.read_text().splitlines()]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_bytes_pass_through_unchanged(workspace: Path) -> None:
    data = bytes(range(256)) * 1000
    done = substrate(workspace, "-c", "cat; printf 'err\\377' >&2", stdin=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"err\xff")


@pytest.mark.parametrize("status", [0, 1, 2, 5, 70, 125, 255])
def test_the_status_is_the_commands(workspace: Path, status: int) -> None:
    done = substrate(workspace, "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


def test_an_agents_own_hook_is_not_recorded(workspace: Path, private_environment: Path) -> None:
    """Claude Code puts its prefix before hooks, too: they work on the real files."""
    hook = "cat > told; echo $AI_AGENT; kill -PIPE $$"
    env = {"AI_AGENT": "claude-code_2-1-325_harness"}
    done = substrate(workspace, "-c", hook, stdin=b'{"tool_name": "Bash"}', env=env)
    assert (done.returncode, done.stdout, done.stderr) == (
        -signal.SIGPIPE, b"claude-code_2-1-325_harness\n", b""
    )  # fmt: skip
    assert (workspace / "told").read_bytes() == b'{"tool_name": "Bash"}'
    assert not (workspace / ".substrate-git").exists()
    assert not (private_environment / ".substrate" / "trace.jsonl").exists()
    env = {"AI_AGENT": "claude-code_2-1-325_agent"}
    substrate(workspace, "-c", "cat > told", stdin=b"recorded", env=env)
    assert [span["command"] for span in spans(private_environment)] == ["cat > told"] * 2


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_death_by_signal(workspace: Path, signum: signal.Signals) -> None:
    assert substrate(workspace, "-c", f"kill -{signum.value} $$").returncode == -signum


def test_a_death_by_signal_leaves_no_core_file_of_ours(workspace: Path) -> None:
    limits = "import resource, os, sys; resource.setrlimit(resource.RLIMIT_CORE, (-1, -1));"
    start = [sys.executable, "-c", limits + "os.execv(sys.argv[1], sys.argv[1:])", *SUBSTRATE]
    pid = os.posix_spawn(
        start[0], [*start, "-C", str(workspace), "-c", "ulimit -c 0; kill -SEGV $$"], os.environ
    )
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGSEGV
    assert not os.WCOREDUMP(status)


@pytest.mark.needs("root", "linux")
def test_as_pid_1_no_signal_can_kill_it(workspace: Path) -> None:
    words = ["unshare", "-pf", "--mount-proc", *SUBSTRATE, "-c", "kill -TERM $$"]
    assert subprocess.run(words, cwd=workspace, check=False).returncode == 128 + signal.SIGTERM


def test_a_reader_that_goes_away_ends_it_quietly(workspace: Path) -> None:
    line = f"{shlex.join(SUBSTRATE)} -c yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=workspace, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"y\n141\n", b"")


def test_a_program_that_is_not_there(workspace: Path) -> None:
    done = substrate(workspace, "run", "--", "no-such-program")
    assert done.returncode == 127
    assert b"no-such-program: command not found" in done.stderr


def test_a_file_that_is_no_program(workspace: Path) -> None:
    assert substrate(workspace, "run", "--", "./kept.txt").returncode == 126


def test_arguments_are_not_read_by_a_shell(workspace: Path) -> None:
    done = substrate(workspace, "run", "--", "printf", "%s|", "a b", "$HOME", "*", "--json")
    assert done.stdout == b"a b|$HOME|*|--json|"


def test_a_timeout(workspace: Path, private_environment: Path) -> None:
    done = substrate(workspace, "run", "--timeout", "0.3", "--", "sleep", "60")
    assert done.returncode == 124
    assert b"0.3 s" in done.stderr
    assert spans(private_environment)[-1]["outcome"] == "timed_out"


def test_what_happened_is_in_the_trace(workspace: Path, private_environment: Path) -> None:
    line = "echo new > new.txt; echo more >> kept.txt; rm gone.txt; mkdir e"
    substrate(workspace, "--no-world", "-c", line)
    start, complete = spans(private_environment)
    assert (start["event_type"], complete["event_type"]) == ("command_start", "command_complete")
    assert start["span_id"] == complete["span_id"]
    root = workspace.resolve()
    assert complete["fs_diff"] == {
        "writes": [f"{root}/e", f"{root}/new.txt"],
        "mods": [f"{root}/kept.txt"],
        "deletes": [f"{root}/gone.txt"],
        "truncated": False,
    }
    assert complete["changed_files"] == ["e", "gone.txt", "kept.txt", "new.txt"]
    assert len(str(complete["substrate_git_commit"])) == 40
    isolation = complete["isolation"]
    assert isinstance(isolation, dict)
    assert (isolation["strategy"], isolation["tier"]) == ("direct", "none")
    assert isolation["reason"]


def test_a_command_that_changes_nothing_has_no_commit(
    workspace: Path, private_environment: Path
) -> None:
    substrate(workspace, "-c", "touch kept.txt")
    complete = spans(private_environment)[-1]
    assert complete["substrate_git_commit"] is None
    assert complete["changed_files"] == []


def test_a_secret_is_in_none_of_the_lines(workspace: Path, private_environment: Path) -> None:
    secret = "hunter2hunter2"
    line = f"TOKEN={secret} true; echo x --password {secret} https://u:{secret}@h > out.txt"
    substrate(workspace, "-c", line, env={"AWS_SECRET_ACCESS_KEY": secret})
    text = json.dumps(spans(private_environment))
    assert secret not in text
    assert "[redacted]" in text
    log = substrate(workspace, "log", "--json")
    assert secret.encode() not in log.stdout
    messages = subprocess.run(
        ["git", "--git-dir", str(workspace / ".substrate-git" / ".git"), "log", "--format=%B"],
        capture_output=True,
        check=True,
    )
    assert b"TOKEN=[redacted] true" in messages.stdout
    assert secret.encode() not in messages.stdout


def test_a_signal_to_us_reaches_the_command_and_is_recorded(
    workspace: Path, private_environment: Path
) -> None:
    # Beside the workspace: what happens in it may be seen only when the command is over.
    up = workspace.with_name("up")
    line = f"trap 'echo told > told.txt; exit 9' TERM; touch {up}; while :; do sleep 0.05; done"
    process = subprocess.Popen([*SUBSTRATE, "-c", line], cwd=workspace)
    until(up.exists)
    process.terminate()
    assert process.wait(PATIENCE_S) == 9
    complete = spans(private_environment)[-1]
    assert complete["exit"] == 9
    assert complete["changed_files"] == ["told.txt"]


@pytest.mark.needs("posix")
def test_ctrl_c_ends_the_command_and_it_is_recorded(
    workspace: Path, private_environment: Path
) -> None:
    import pty

    up = workspace.with_name("up")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workspace)
        # No program makes the mark: bash goes on if one that it waits for ends in peace.
        line = f"echo before > made.txt; : > {up}; exec sleep 60"
        os.execv(SUBSTRATE[0], [*SUBSTRATE, "-c", line])
    until(up.exists)
    os.write(terminal, b"\x03")
    shown = b""
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    assert b"Traceback" not in shown
    complete = spans(private_environment)[-1]
    assert (complete["exit"], complete["outcome"]) == (130, "killed")
    assert complete["changed_files"] == ["made.txt"]


def test_a_nested_command_knows_its_parent(workspace: Path, private_environment: Path) -> None:
    inner = f"{shlex.quote(sys.executable)} -m substrate -c true"
    assert substrate(workspace, "--no-world", "-c", inner).returncode == 0
    by_command = {
        str(span["command"]): span
        for span in spans(private_environment)
        if span["event_type"] == "command_complete"
    }
    assert by_command["true"]["parent_span"] == by_command[inner]["span_id"]
    assert by_command["true"]["session_id"] == by_command[inner]["session_id"]


def test_commands_side_by_side_each_have_their_two_lines(
    workspace: Path, private_environment: Path
) -> None:
    processes = [
        subprocess.Popen([*SUBSTRATE, "-c", f"echo {n} > {n}.txt"], cwd=workspace) for n in range(4)
    ]
    assert [process.wait(PATIENCE_S) for process in processes] == [0] * 4
    found = spans(private_environment)
    for n in range(4):
        mine = [span for span in found if span["command"] == f"echo {n} > {n}.txt"]
        assert [span["event_type"] for span in mine] == ["command_start", "command_complete"]


def test_a_trace_that_cannot_be_written_is_reported(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    env = {"SUBSTRATE_TRACE": str(tmp_path / "dir")}
    done = substrate(workspace, "-c", "echo ran", env=env)
    assert b"trace" in done.stderr
    assert b"Traceback" not in done.stderr
