"""Replaying packs made of logs: exact, degraded, failed, by the rules of docs/REPLAY.md."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from substrate.errors import DamagedStoreError, MissingDependencyError, RefusedError, UsageError
from substrate.packs.replay.replay_steps import first_divergence
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.log_to_pack import LogFile, pack_log
from substrate.recorder.replay.pack_replay import Replayed, ReplayOptions, replay_pack
from substrate.recorder.replay.replay_shell import joined_path
from substrate.recorder.replay.tool_versions import drift, programs_of, versions_of
from substrate.system import environment

Replay = Callable[..., Replayed]


@pytest.fixture
def replay(store: Store, tmp_path: Path) -> Replay:
    """Pack some steps and replay them."""

    def run(
        *steps: dict[str, Any],
        options: ReplayOptions = ReplayOptions(timeout_s=60),  # noqa: B008
        **more: Any,
    ) -> Replayed:
        log = {
            "model": {"identifier": "m"},
            "system_prompt": "s",
            "inputs": [{"name": "src/a.txt", "content": "hello\nworld\n"}],
            "steps": list(steps),
            "environment": {"os": "linux", "runtime": "r"},
        }
        file = io.BytesIO(json.dumps(log | more).encode())
        pack = pack_log(store, LogFile("log", file, (tmp_path,)))
        return replay_pack(store, pack, environment.current(), options)

    return run


def step(tool: str, output: str | None = None, *, llm: bool = False, **parameters: Any) -> Any:
    found = {"type": "tool_call", "tool": tool, "parameters": parameters, "deterministic": not llm}
    return found if output is None else found | {"output": output}


def statuses(replayed: Replayed) -> list[str]:
    return [report.status for report in replayed.steps]


def test_every_tool_once_and_all_of_it_exact(replay: Replay) -> None:
    replayed = replay(
        step("read_file", "hello\nworld\n", path="src/a.txt"),
        step("write_file", "ok", path="b.txt", content="x\n"),
        step("edit_file", "done", path="b.txt", old="x", new="y"),
        step("list_dir", "b.txt\nsrc/", path="."),
        step("search", "b.txt:1:y", pattern="y", path="b.txt"),
        step("shell", "hello\nworld\ny\n", command="cat src/a.txt b.txt; echo err >&2"),
        step("shell", "a b\n", command=["echo", "a b"]),
        step("Bash", "out\nerr", command="echo out; sleep 0.2; echo err >&2"),
        step("exec_command", "out\n", cmd="echo out", workdir="src"),
        step("Read", "1\thello\n2\tworld\n3\t", file_path="src/a.txt"),
        step("gpt", "words", llm=True),
        outputs=[{"name": "b.txt", "content": "y\n"}, {"name": "answer.md", "content": "!"}],
    )
    assert replayed.fidelity == "exact", [s.reason for s in replayed.steps]
    assert [output.status for output in replayed.outputs] == ["matched", "absent"]
    assert not replayed.steps[-1].ran


def test_a_step_that_gives_something_else_degrades_and_is_shown(replay: Replay) -> None:
    replayed = replay(
        step("shell", "same\n", command="echo same"),
        step("shell", "one\ntwo\nthree\n", command="printf 'one\\n2\\nthree\\n'"),
        step("read_file", "other\n", path="src/a.txt"),
    )
    assert replayed.fidelity == "degraded"
    assert statuses(replayed) == ["matched", "diverged", "diverged"]
    first = first_divergence(replayed.steps)
    assert first is not None
    assert first.at == 1
    assert "-two" in first.diff
    assert "+2" in first.diff


def test_an_unknown_tool_fails_and_is_named_and_the_rest_goes_on(replay: Replay) -> None:
    replayed = replay(step("teleport", "there"), step("shell", "x\n", command="echo x"))
    assert replayed.fidelity == "failed"
    assert statuses(replayed) == ["failed", "matched"]
    assert "'teleport'" in replayed.steps[0].reason


@pytest.mark.parametrize("path", ["missing", "/etc/passwd", "../x", "/dev/zero"])
def test_a_missing_input_fails(replay: Replay, path: str) -> None:
    replayed = replay(step("read_file", "root", path=path))
    assert replayed.fidelity == "failed"
    assert path.removeprefix("../") in replayed.steps[0].reason


def test_a_missing_program_fails_unless_it_was_missing_before(replay: Replay) -> None:
    replayed = replay(step("shell", "1.0\n", command="no-such-program-here --version"))
    assert replayed.fidelity == "failed"
    assert "no-such-program-here" in replayed.steps[0].reason
    assert replay(step("shell", "", command="no-such-program-here")).fidelity == "exact"


def test_a_command_that_takes_too_long_fails(replay: Replay) -> None:
    options = ReplayOptions(timeout_s=0.3)
    replayed = replay(step("shell", "", command="sleep 3600"), options=options)
    assert replayed.fidelity == "failed"
    assert "did not end within" in replayed.steps[0].reason


@pytest.mark.needs("posix")
def test_a_fifo_made_by_a_step_hangs_nothing(replay: Replay) -> None:
    replayed = replay(
        step("shell", "", command="mkfifo pipe; ln -s /etc/passwd link"),
        step("read_file", "x", path="pipe"),
        step("read_file", "x", path="link"),
        outputs=[{"name": "pipe", "content": "x"}],
    )
    assert statuses(replayed) == ["matched", "failed", "failed"]


def test_non_deterministic_steps_do_not_count_even_when_they_run(replay: Replay) -> None:
    steps = (step("shell", "then\n", llm=True, command="echo now"), step("gpt", "x", llm=True))
    kept = replay(*steps)
    assert kept.fidelity == "exact"
    assert [s.ran for s in kept.steps] == [False, False]
    again = replay(*steps, options=ReplayOptions(rerun=True))
    assert again.fidelity == "exact"
    assert [(s.ran, s.status) for s in again.steps] == [(True, "diverged"), (False, "matched")]


def test_an_output_that_a_step_made_differently_degrades(replay: Replay) -> None:
    replayed = replay(
        step("shell", "", command="echo now > result.md"),
        outputs=[{"name": "result.md", "content": "then\n"}],
    )
    assert replayed.fidelity == "degraded"
    assert replayed.outputs[0].status == "diverged"
    assert "+now" in replayed.outputs[0].diff


def test_secrets_of_the_environment_stay_out_and_given_ones_come_in(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "very-secret")
    show = step("shell", "[]\n", command='echo "[$MY_API_TOKEN]"')
    assert replay(show).fidelity == "exact"
    options = ReplayOptions(variables={"MY_API_TOKEN": "given"})
    again = replay(show, options=options)
    assert "+[given]" in again.steps[0].diff


def test_recorded_variables_stdin_umask_and_directory(replay: Replay) -> None:
    replayed = replay(
        step(
            "shell",
            "set\nwords\nsrc\n600\n",
            command='echo "$WHO"; cat; basename "$PWD"; touch f; stat -c %a f',
            env={"WHO": "set", "PATH": "/usr/bin:/bin"},
            stdin="words\n",
            umask="0177",
            cwd="src",
        )
    )
    assert replayed.fidelity == "exact", replayed.steps[0].diff


def test_a_directory_that_is_not_there_fails(replay: Replay) -> None:
    replayed = replay(step("shell", "", command="true", cwd="nowhere"))
    assert replayed.fidelity == "failed"
    assert "nowhere" in replayed.steps[0].reason


def test_what_a_command_leaves_running_is_ended(replay: Replay, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    # In a world the process would have another number.
    options = ReplayOptions(strategy="direct")
    replay(step("shell", "", command=f"sleep 3600 & echo $! > {note}"), options=options)
    pid = int(note.read_text())
    stat_file = Path(f"/proc/{pid}/stat")
    assert not stat_file.exists() or stat_file.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_flood_of_output_is_cut_off(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    from substrate.packs.tools import registry

    monkeypatch.setattr(registry.Limits, "__new__", _small_limits(registry.Limits))
    replayed = replay(step("shell", "", command="yes"))
    assert replayed.fidelity == "failed"
    assert "printed more than" in replayed.steps[0].reason


def _small_limits(limits: Any) -> Any:
    real = limits.__new__

    def make(cls: Any, timeout_s: float = 60.0, output_bytes: int = 100_000) -> Any:
        return real(cls, timeout_s, output_bytes)

    return make


def test_a_large_file_is_compared_without_being_held(replay: Replay) -> None:
    make = step("shell", "", command="head -c 30000000 /dev/zero > big; truncate -s 2T sparse")
    big = "0" * 3_000_000 + "\n"
    replayed = replay(
        make,
        step("read_file", "x", path="sparse"),
        step("shell", "", command="printf '%03000000d\\n' 0 > zeros"),
        step("read_file", big, path="zeros"),
        outputs=[{"name": "zeros", "content": big}, {"name": "big", "content": "other"}],
    )
    assert statuses(replayed) == ["matched", "failed", "matched", "matched"]
    assert "larger than" in replayed.steps[1].reason
    assert [one.status for one in replayed.outputs] == ["matched", "diverged"]


def test_a_damaged_recorded_output_is_no_match(replay: Replay, store: Store) -> None:
    replayed = replay(step("shell", "x\n", command="echo x"))
    path = store.objects.path(replayed.steps[0].recorded)
    path.chmod(0o600)
    path.write_bytes(b"y\n")
    with pytest.raises(DamagedStoreError):
        replay_pack(store, store.load(replayed.ref), environment.current())


def test_no_scratch_directory_is_left_unless_it_is_kept(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    replay(step("shell", "", command="mkdir d; touch d/f; chmod 0 d"))
    assert list(scratch.iterdir()) == []
    kept = replay(step("shell", "", command="echo x > f"), options=ReplayOptions(keep=True))
    assert kept.kept is not None
    assert (kept.kept / "f").read_text() == "x\n"


def test_a_strategy_that_cannot_be_had_is_an_error(replay: Replay) -> None:
    with pytest.raises(UsageError, match="no strategy"):
        replay(step("shell", ""), options=ReplayOptions(strategy="magic"))
    with pytest.raises(MissingDependencyError, match="nothing to protect"):
        replay(step("shell", ""), options=ReplayOptions(strategy="fuse-overlayfs"))
    direct = replay(step("shell", "", command="true"), options=ReplayOptions(strategy="direct"))
    assert direct.isolation.strategy == "direct"


# -- a user's own tools ---------------------------------------------------------------------------

TOOL = """#!/bin/sh
read question
case "$question" in
  *'"word": "b64"'*) echo '{"output_b64": "aGkK"}' ;;
  *'"word": "no"'*) echo '{"error": "not today"}' ;;
  *'"word": "rubbish"'*) echo rubbish ;;
  *'"word": "die"'*) echo dying >&2; exit 3 ;;
  *'"word": "write"'*) echo made > made-by-tool; echo '{"output": ""}' ;;
esac
"""


@pytest.fixture
def own_tool(store: Store) -> None:
    project = store.directory.parent
    (project / "tools").mkdir()
    (project / "tools" / "lookup").write_text(TOOL)
    (project / "tools" / "lookup").chmod(0o755)
    config = {"version": "0.1", "tools": {"lookup": {"command": ["tools/lookup"]}}}
    (store.directory / "config.json").write_text(json.dumps(config))


@pytest.mark.usefixtures("own_tool")
@pytest.mark.needs("posix")
def test_a_users_own_tool_answers(replay: Replay) -> None:
    replayed = replay(
        step("lookup", "hi\n", word="b64"),
        step("lookup", "", word="write"),
        step("read_file", "made\n", path="made-by-tool"),
        step("lookup", "x", word="no"),
        step("lookup", "x", word="rubbish"),
        step("lookup", "x", word="die"),
        options=ReplayOptions(timeout_s=60, trust_tools=True),
    )
    assert statuses(replayed) == ["matched", "matched", "matched", "failed", "failed", "failed"]
    assert "not today" in replayed.steps[3].reason
    assert "JSON" in replayed.steps[4].reason
    assert "status 3: dying" in replayed.steps[5].reason
    assert "tools of .ctx/config.json ran outside any world: lookup" in replayed.notes


@pytest.mark.usefixtures("own_tool")
@pytest.mark.needs("posix")
def test_a_users_own_tool_is_trusted_once_and_as_it_was_then(replay: Replay, store: Store) -> None:
    asked = step("lookup", "hi\n", word="b64")
    with pytest.raises(RefusedError, match=r"config\.json has programs run for lookup"):
        replay(asked)
    assert replay(asked | {"deterministic": False}).steps[0].ran is False  # nothing to refuse
    replay(asked, options=ReplayOptions(trust_tools=True))
    assert statuses(replay(asked)) == ["matched"]
    config = {"version": "0.1", "tools": {"lookup": {"command": ["tools/lookup", "--other"]}}}
    (store.directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedError, match="lookup"):
        replay(asked)


@pytest.mark.usefixtures("own_tool")
@pytest.mark.needs("posix")
def test_a_trusted_tool_that_a_command_has_changed_is_not_run(replay: Replay, store: Store) -> None:
    """Any command in a world can write in the project; tools run outside."""
    asked = step("lookup", "hi\n", word="b64")
    replay(asked, options=ReplayOptions(trust_tools=True))
    proof = store.directory.parent / "ran"
    (store.directory.parent / "tools" / "lookup").write_text(f"#!/bin/sh\ntouch {proof}\n")
    with pytest.raises(RefusedError, match="lookup"):
        replay(asked)
    assert not proof.exists()


@pytest.mark.parametrize("config", [{"tools": []}, {"tools": {"x": 1}}, {"tools": {"x": {}}}])
def test_a_wrong_configuration_names_its_field(
    replay: Replay, store: Store, config: dict[str, object]
) -> None:
    (store.directory / "config.json").write_text(json.dumps({"version": "0.1"} | config))
    with pytest.raises(UsageError, match=r"config\.json: tools"):
        replay(step("x", ""))


# -- the environment ------------------------------------------------------------------------------


def test_the_recorded_path_rules_but_a_tool_put_before_it_is_seen() -> None:
    assert joined_path("/a:/b", "/new:/a:/b") == "/new:/a:/b"
    assert joined_path("/mine:/a", "/a:/c") == "/mine:/a:/c"
    assert joined_path("", "/a") == "/a"
    assert joined_path("/a", "") == "/a"


def test_programs_are_found_in_commands() -> None:
    commands: list[str | tuple[str, ...]] = [
        "cd src && CC=gcc make -j2 test | tee log; if true; then python3 x.py; fi",
        ("/usr/bin/cargo", "build"),
        "echo 'a; b'",
    ]
    assert programs_of(commands) == ["cargo", "make", "python3", "tee"]


@pytest.mark.needs("posix")
def test_a_changed_program_is_drift(tmp_path: Path) -> None:
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\necho 1\n")
    tool.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}/usr/bin"
    recorded = versions_of(["mytool", "no-such-program"], path)
    assert list(recorded) == ["mytool"]
    assert drift(recorded, path) == ([], [])
    tool.write_text("#!/bin/sh\necho 2\n")
    found, _ = drift(recorded, path)
    assert [one.name for one in found] == ["mytool"]
    assert versions_of(["mytool"], path, since_ns=1)["mytool"].endswith("(changed since)")
    assert drift({"thing": "1.0"}, path) == ([], ["thing"])


def test_another_system_is_drift(replay: Replay) -> None:
    replayed = replay(environment={"os": "plan9", "runtime": "r"})
    assert [one.name for one in replayed.drift] == ["os"]
    assert replayed.fidelity == "exact"
