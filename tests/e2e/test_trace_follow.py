"""`substrate trace`: its filters, and following while commands run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.trace.writer import TraceWriter
from tests.contract.program import Program


@pytest.fixture
def trace(private_environment: Path) -> TraceWriter:
    writer = TraceWriter(private_environment / ".substrate" / "trace.jsonl")
    for n in range(6):
        writer.append({"ts": f"2026-01-0{n + 1}T00:00:00.000Z", "session_id": f"s-{n % 2}", "n": n})
    return writer


def found(program: Program, *words: str) -> list[int]:
    return [span["n"] for span in program.json("trace", *words)["spans"]]


@pytest.mark.usefixtures("trace")
def test_filters_work_together(tmp_path: Path) -> None:
    substrate = Program(tmp_path)
    assert found(substrate) == [0, 1, 2, 3, 4, 5]
    assert found(substrate, "--limit", "2") == [4, 5]
    assert found(substrate, "--session", "s-1") == [1, 3, 5]
    assert found(substrate, "--session", "s-1", "--limit", "2") == [3, 5]
    assert found(substrate, "--since", "2026-01-03", "--session", "s-0") == [2, 4]
    assert found(substrate, "--limit", "0") == []
    substrate("trace", "--limit", "-1").is_clear(2, "--limit")


@pytest.mark.needs("posix")
def test_follow_goes_on_across_a_rotation_until_interrupted(
    tmp_path: Path, trace: TraceWriter
) -> None:
    follow = subprocess.Popen(
        [sys.executable, "-m", "substrate", "trace", "--follow", "--json", "--limit", "1"],
        cwd=tmp_path, stdout=subprocess.PIPE, env={**os.environ, "SUBSTRATE_DAEMON": "off"},
    )  # fmt: skip
    assert follow.stdout is not None
    assert json.loads(follow.stdout.readline())["n"] == 5
    trace.append({"n": 6})
    assert json.loads(follow.stdout.readline())["n"] == 6
    trace.path.rename(trace.path.with_name("trace.jsonl.1"))
    trace.append({"n": 7})
    assert json.loads(follow.stdout.readline())["n"] == 7
    follow.send_signal(signal.SIGINT)
    assert follow.wait(60) == 130
    assert follow.stdout.read() == b""
    follow.stdout.close()
