"""`ctx replay` as a user meets it: statuses, words, many packs at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]


def ctx(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CTX, *words], cwd=where, capture_output=True, text=True, check=False)


def pack(where: Path, *steps: dict[str, Any]) -> str:
    log = {
        "model": {"identifier": "m"},
        "system_prompt": "s",
        "inputs": [{"name": "a.txt", "content": "hello\n"}],
        "steps": list(steps),
        "environment": {"os": "linux", "runtime": "r"},
    }
    (where / "log.json").write_text(json.dumps(log))
    done = ctx(where, "pack", "log.json")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def shell(command: str, output: str) -> dict[str, Any]:
    parameters = {"command": command}
    return {"type": "tool_call", "tool": "shell", "parameters": parameters, "output": output}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    assert ctx(root, "init").returncode == 0
    return root


def test_the_three_statuses_and_their_words(project: Path) -> None:
    exact = pack(project, shell("cat a.txt", "hello\n"))
    done = ctx(project, "replay", exact)
    assert done.returncode == 0
    assert "exact" in done.stdout.splitlines()[-1]

    degraded = pack(project, shell("cat a.txt", "hello\n"), shell("echo now", "then\n"))
    done = ctx(project, "replay", degraded)
    assert done.returncode == 1
    assert "first: step 1 (shell echo now) diverged" in done.stdout
    assert "-then\n+now\n" in done.stdout

    failed = pack(project, {"type": "t", "tool": "teleport", "output": "x"})
    done = ctx(project, "replay", failed)
    assert done.stdout.count("no tool is known as") == 1
    assert done.returncode == 2
    assert "'teleport'" in done.stdout

    done = ctx(project, "replay", "--all")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "3 packs: 1 exact, 1 degraded, 1 failed"
    answer = json.loads(ctx(project, "replay", "--all", "--json").stdout)
    assert answer["summary"] == {"packs": 3, "exact": 1, "degraded": 1, "failed": 1}


def test_the_json_answer_names_each_step_and_the_first_divergence(project: Path) -> None:
    pack(project, shell("true", ""), shell("echo now", "then\n"), shell("exit 3", ""))
    done = ctx(project, "replay", "latest", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert [step["status"] for step in answer["steps"]] == ["matched", "diverged", "matched"]
    assert answer["fidelity"] == "degraded"
    assert answer["first_divergence"]["index"] == 1
    assert "-then" in answer["first_divergence"]["diff"]
    assert answer["steps"][2]["exit"] == 3
    assert answer["isolation"]["strategy"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 64, "name a pack"),
        (("latest", "--all"), 64, "name a pack"),
        (("latest", "--bogus"), 64, "--bogus"),
        (("latest", "--timeout", "0"), 64, "--timeout"),
        (("latest", "--env", "=x"), 64, "--env"),
        (("latest", "--env", "NOT_SET_ANYWHERE"), 64, "no such variable"),
        (("latest", "--in-place-of-world", "magic"), 64, "no strategy"),
        (("abcdef12",), 4, "abcdef12"),
    ],
)
def test_words_that_are_off(project: Path, words: tuple[str, ...], status: int, said: str) -> None:
    pack(project, shell("true", ""))
    done = ctx(project, "replay", *words)
    assert done.returncode == status
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert done.stdout == ""


def test_a_damaged_pack_stops_only_itself(project: Path) -> None:
    good = pack(project, shell("true", ""))
    bad = pack(project, shell("echo x", "x\n")).removeprefix("ctx://")
    path = project / ".ctx/objects" / bad[:2] / bad[2:]
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    assert ctx(project, "replay", bad).returncode == 6
    done = ctx(project, "replay", "--all")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == "2 packs: 1 exact, 0 degraded, 1 failed"
    assert ctx(project, "replay", good).returncode == 0


def test_an_empty_store_is_reported(project: Path) -> None:
    done = ctx(project, "replay", "--all")
    assert done.returncode == 0
    assert "no pack" in done.stderr


def test_help_says_what_the_statuses_mean(project: Path) -> None:
    said = ctx(project, "replay", "--help").stdout
    assert "1 degraded" in said
    assert "64" in said


def test_a_transcript_is_packed_shown_and_replayed(project: Path) -> None:
    records: list[dict[str, Any]] = [
        {"type": "user", "cwd": "/home/ada/p", "message": {"content": "look"}},
        {"type": "assistant", "cwd": "/home/ada/p", "timestamp": "2026-01-02T03:04:05Z",
         "message": {"model": "m", "content": [
             {"type": "tool_use", "id": "1", "name": "Bash", "input": {"command": "pwd"}}]}},
        {"type": "user", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "1", "content": "/home/ada/p"}]}},
        {"type": "strange"},
    ]  # fmt: skip
    text = "".join(json.dumps(record) + "\n" for record in records) + '{"torn'
    (project / "t.jsonl").write_text(text)
    done = ctx(project, "pack", "--from", "claude-code", "t.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ctx://")
    assert "1 strange" in done.stderr
    assert "cut short" in done.stderr
    again = json.loads(ctx(project, "pack", "--from", "claude-code", "t.jsonl", "--json").stdout)
    assert again["uri"] == done.stdout.strip()
    assert again["transcript"]["left_out"] == {"strange": 1}
    assert ctx(project, "replay", "latest").returncode == 0
    assert ctx(project, "pack", "--from", "claude-code").returncode == 2
    assert ctx(project, "pack", "--from", "aider", "t.jsonl").returncode == 2
    assert ctx(project, "pack", "--from", "codex", "t.jsonl").returncode == 2
    assert ctx(project, "pack", "--from", "codex", "missing.jsonl").returncode == 4
