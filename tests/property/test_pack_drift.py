"""One hundred generated cases of drift, one change each: type and first divergence are right.

Each case packs a run and the same run with one change, through real logs and a real store, and
asks the program. The change says itself what must be found.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from substrate.packs.drift.compare_packs import compare
from substrate.packs.format.manifest import Pack
from substrate.packs.store.ctx_store import Store, make_store
from substrate.packs.store.log_to_pack import LogFile, pack_log

TOOLS = ("read_file", "write_file", "shell", "search", "list_dir")


class Expected(NamedTuple):
    type: str
    #: The first divergence: a step's index, or None outside the steps.
    step: int | None


Change = Callable[[random.Random, dict[str, Any]], Expected]


def run(rng: random.Random) -> dict[str, Any]:
    """A run whose steps are all different, as real ones nearly are; tools repeat."""
    count = rng.randint(2, 14)
    return {
        "model": {"identifier": "m-1", "parameters": {"temperature": 0, "top_p": 0.5}},
        "system_prompt": "Be careful.",
        "prompts": [{"role": "user", "content": f"prompt {n}"} for n in range(rng.randint(1, 3))],
        "inputs": [{"name": f"in{n}", "content": f"input {n}"} for n in range(rng.randint(1, 3))],
        "steps": [
            {
                "type": "tool_call",
                "tool": rng.choice(TOOLS),
                "parameters": {"path": f"file{n}", "limit": n},
                "output": f"output {n}\n" * rng.randint(1, 5),
                "timestamp": f"2026-02-10T10:00:{n:02d}Z",
            }
            for n in range(count)
        ],
        "outputs": [{"name": f"out{n}", "content": f"result {n}"} for n in range(2)],
        "environment": {"os": "linux", "runtime": "py", "tool_versions": {"git": "2.39"}},
    }


def prompt(rng: random.Random, log: dict[str, Any]) -> Expected:
    kind = rng.randrange(4)
    if kind == 0:
        log["system_prompt"] += " Very."
    elif kind == 1:
        rng.choice(log["prompts"])["content"] += "!"
    elif kind == 2:
        log["prompts"].insert(rng.randint(0, len(log["prompts"])), {"role": "user", "content": "x"})
    else:
        del log["prompts"][rng.randrange(len(log["prompts"]))]
    return Expected("prompt_drift", None)


def model(rng: random.Random, log: dict[str, Any]) -> Expected:
    kind = rng.randrange(3)
    if kind == 0:
        log["model"]["identifier"] = "m-2"
    elif kind == 1:
        log["model"]["parameters"]["temperature"] = 2**53 + 1
    else:
        del log["model"]["parameters"]["top_p"]
    return Expected("model_drift", None)


def parameter(rng: random.Random, log: dict[str, Any]) -> Expected:
    at = rng.randrange(len(log["steps"]))
    changed = rng.choice([{"path": "elsewhere"}, {"limit": 2**60 + at}, {"new": [1, {"a": None}]}])
    log["steps"][at]["parameters"] |= changed
    return Expected("param_drift", at)


def tool(rng: random.Random, log: dict[str, Any]) -> Expected:
    at = rng.randrange(len(log["steps"]))
    log["steps"][at]["tool"] = "another_tool"
    return Expected("tool_drift", at)


def order(rng: random.Random, log: dict[str, Any]) -> Expected:
    old, new = rng.sample(range(len(log["steps"])), 2)
    log["steps"].insert(new, log["steps"].pop(old))
    return Expected("tool_drift", min(old, new))


def insert(rng: random.Random, log: dict[str, Any]) -> Expected:
    at = rng.randint(0, len(log["steps"]))
    step = {"type": "tool_call", "tool": rng.choice(TOOLS), "parameters": {"x": 1}, "output": "new"}
    log["steps"].insert(at, step)
    return Expected("tool_drift", at)


def delete(rng: random.Random, log: dict[str, Any]) -> Expected:
    at = rng.randrange(len(log["steps"]))
    del log["steps"][at]
    return Expected("tool_drift", at)


def step_output(rng: random.Random, log: dict[str, Any]) -> Expected:
    at = rng.randrange(len(log["steps"]))
    log["steps"][at]["output"] += "one more line\n"
    return Expected("reasoning_drift", at)


def output(rng: random.Random, log: dict[str, Any]) -> Expected:
    kind = rng.randrange(3)
    if kind == 0:
        log["outputs"][rng.randrange(2)]["content"] += "."
    elif kind == 1:
        log["outputs"].append({"name": "extra", "content": ""})
    else:
        del log["outputs"][rng.randrange(2)]
    return Expected("output_drift", None)


def input_(rng: random.Random, log: dict[str, Any]) -> Expected:
    kind = rng.randrange(3)
    if kind == 0:
        rng.choice(log["inputs"])["content"] += "\0"
    elif kind == 1:
        log["inputs"].insert(0, {"name": "extra", "content": ""})
    else:
        del log["inputs"][rng.randrange(len(log["inputs"]))]
    return Expected("input_drift", None)


def environment(rng: random.Random, log: dict[str, Any]) -> Expected:
    kind = rng.randrange(3)
    if kind == 0:
        log["environment"]["os"] = "darwin"
    elif kind == 1:
        log["environment"]["runtime"] = "py2"
    else:
        log["environment"]["tool_versions"]["git"] = "2.40"
    return Expected("environment_drift", None)


CHANGES: tuple[Change, ...] = (
    *(prompt, model, parameter, tool, order, insert, delete, step_output, output, input_),
    environment,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    directory: Path = tmp_path_factory.mktemp("project") / ".ctx"
    directory.mkdir()
    return make_store(directory)


def packed(store: Store, log: dict[str, Any]) -> Pack:
    data = io.BytesIO(json.dumps(log).encode())
    return pack_log(store, LogFile("run.json", data, (store.directory,)))


def found(store: Store, seed: int) -> tuple[list[tuple[str, int | None]], Expected]:
    rng = random.Random(seed)
    log = run(rng)
    before = packed(store, log)
    change = CHANGES[seed % len(CHANGES)]
    expected = change(rng, log)
    report = compare(store.objects, before, packed(store, log))
    return [(drift.type, drift.step) for drift in report.entries], expected


@pytest.mark.parametrize("seed", range(110))
def test_one_change_is_found_as_what_it_is_and_where_it_is(store: Store, seed: int) -> None:
    entries, expected = found(store, seed)
    assert entries == [tuple(expected)]


def test_the_check_can_fail(store: Store) -> None:
    """Two changes at once must not pass for one."""
    rng = random.Random(1)
    log = run(rng)
    before = packed(store, log)
    parameter(rng, log)
    environment(rng, log)
    assert len(compare(store.objects, before, packed(store, log)).entries) == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 4000))
def test_many_more(store: Store, seed: int) -> None:
    entries, expected = found(store, seed)
    assert entries == [tuple(expected)]
