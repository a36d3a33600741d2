"""A transcript of a recorded session, packed, carried elsewhere, replayed exactly.

The transcript shows one file of the project; the project's own history has the others.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_replay_session import SUBSTRATE, Bench
from tests.hook_reports import Claude, Report, encoded

COUNT = "wc -l < calc.src > count.txt; cat count.txt"
PROMPT = "count the lines of the calculator"

pytestmark = pytest.mark.needs("posix")


class Worked:
    """A session of Claude Code in a project: an edit by its own tool, then a command."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.claude = Claude(bench.project, "5d0e7c1a-9f11-4c1b-8a44-0c7f2f9d3a10")
        self.records: list[dict[str, Any]] = []
        assert bench.record("true").returncode == 0
        self.report(self.claude.start())
        self.report(self.claude.prompt(PROMPT))
        self.said("user", PROMPT)
        self.edit("notes.md", "", "lines:\n")
        self.run(COUNT)
        self.report(self.claude.stop())
        # Work since then: neither the start nor the end of the session.
        (bench.project / "calc.src").write_text("changed by a person\n")
        (bench.project / "count.txt").write_text("99\n")
        assert bench.record("true").returncode == 0

    def report(self, report: Report) -> None:
        subprocess.run(
            [*SUBSTRATE, "hook", "claude-code"], input=encoded(report), cwd=self.bench.project,
            env=self.bench.env, check=True,
        )  # fmt: skip

    def said(self, kind: str, content: object, **more: object) -> None:
        self.records.append(
            {
                "type": kind, "message": {"role": kind, "content": content, "model": "claude-x"},
                "cwd": str(self.bench.project), "sessionId": self.claude.session,
                "version": "2.1.325", "timestamp": "2026-01-02T03:04:05.678Z",
                "uuid": f"u{len(self.records)}", **more,
            }
        )  # fmt: skip

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.bench.project / name
        call = {"file_path": str(path), "content": new}
        self.report(self.claude.before("Write", "t1", **call))
        path.write_text(new)
        self.report(self.claude.write(path, "t1", new, old or None))
        block = {"type": "tool_use", "id": "t1", "name": "Write", "input": call}
        self.said("assistant", [block])
        self.answered("t1", f"File created successfully at: {path}", {"type": "create"})

    def run(self, command: str) -> None:
        done = self.bench.call(
            self.bench.project, "env", *(f"{k}={v}" for k, v in self.claude.variables.items()),
            *SUBSTRATE, "-c", command,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        block = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": command}}
        self.said("assistant", [block])
        self.answered("t2", done.stdout.strip(), {"stdout": done.stdout.strip()})

    def answered(self, call: str, text: str, result: object) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        self.said("user", [block], toolUseResult=result)

    def transcript(self, **changes: object) -> Path:
        path = self.bench.elsewhere / "transcript.jsonl"
        path.write_text("".join(json.dumps({**one, **changes}) + "\n" for one in self.records))
        return path

    def pack(self, path: Path) -> dict[str, Any]:
        assert self.bench.ctx(self.bench.project, "init").returncode == 0
        words = ("pack", "--from", "claude-code", str(path), "--json")
        done = self.bench.ctx(self.bench.project, *words)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def worked(tmp_path: Path) -> Worked:
    return Worked(Bench(tmp_path))


def test_the_session_is_replayed_exactly_after_the_project_is_gone(worked: Worked) -> None:
    made = worked.pack(worked.transcript())
    assert any("recorded for this session" in note for note in made["notes"])
    worked.bench.carry_away(made["uri"])
    status, answer = worked.bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer
    assert {one["name"]: one["status"] for one in answer["outputs"]} == {
        "count.txt": "matched", "notes.md": "matched",
    }  # fmt: skip


def test_without_the_history_it_is_degraded_and_says_why(worked: Worked) -> None:
    made = worked.pack(worked.transcript(sessionId="another", timestamp="1999-01-01T00:00:00Z"))
    assert any("only the files that the transcript shows" in note for note in made["notes"])
    worked.bench.carry_away(made["uri"])
    status, answer = worked.bench.replay()
    assert (status, answer["fidelity"]) == (1, "degraded"), answer


def test_another_projects_files_are_not_named_into_a_pack(worked: Worked, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret.txt").write_text("secret\n")
    assert worked.bench.call(private, *SUBSTRATE, "-c", "true").returncode == 0
    made = worked.pack(worked.transcript(cwd=str(private)))
    shown = worked.bench.ctx(worked.bench.project, "show", made["uri"], "--json").stdout
    assert "secret.txt" not in shown
    assert "count.txt" in shown


def test_a_recorded_session_has_its_prompts(worked: Worked) -> None:
    assert worked.bench.ctx(worked.bench.project, "init").returncode == 0
    session = next(
        one["session_id"]
        for one in json.loads(worked.bench.substrate("log", "--json").stdout)["commands"]
        if one["kind"] == "edit"
    )
    done = worked.bench.ctx(worked.bench.project, "pack", "--session", session)
    assert done.returncode == 0, done.stderr
    pack = done.stdout.splitlines()[0]
    shown = json.loads(worked.bench.ctx(worked.bench.project, "show", pack, "--json").stdout)
    assert [one["role"] for one in shown["prompts"]] == ["user"]
    assert shown["model"]["identifier"] == "claude-sonnet-4-5"
    worked.bench.carry_away(pack)
    status, answer = worked.bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer
    assert {one["name"] for one in answer["outputs"]} == {"count.txt", "notes.md"}
