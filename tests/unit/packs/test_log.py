"""From execution logs to packs: what is accepted, what is refused and the messages."""

from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from substrate.errors import UsageError
from substrate.packs.format.manifest import NO_TIME, Pack
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.log_to_pack import LogFile, pack_log
from substrate.packs.store.pack_refs import latest

LOG: dict[str, Any] = {
    "model": {"identifier": "m", "parameters": {"temperature": 0.0, "seed": 2**53 + 1}},
    "system_prompt": "Be careful.",
    "prompts": [{"role": "user", "content": "Häh?"}],
    "inputs": [{"name": "a.txt", "content": "in\n"}],
    "steps": [
        {
            "index": 0,
            "type": "tool_call",
            "tool": "read_file",
            "parameters": {"path": "a.txt"},
            "output": "in\n",
            "deterministic": True,
            "timestamp": "2026-02-10T10:00:00Z",
        },
        {"type": "llm_call", "tool": "claude", "output": "", "timestamp": "2026-02-10T10:00:05Z"},
        {"type": "tool_call", "tool": "write_file"},
    ],
    "outputs": [{"name": "r.md", "content": "out"}],
    "environment": {"os": "linux", "runtime": "py", "tool_versions": {"git": "2.39"}},
}


def pack(store: Store, text: str | bytes, *roots: Path) -> Pack:
    data = text.encode() if isinstance(text, str) else text
    return pack_log(
        store, LogFile("run.json", io.BytesIO(data), roots or (store.directory.parent,))
    )


def refusal(store: Store, log: object, *roots: Path) -> str:
    with pytest.raises(UsageError) as caught:
        pack(store, log if isinstance(log, str) else json.dumps(log), *roots)
    return caught.value.message


def changed(path: str, value: object) -> dict[str, Any]:
    log = json.loads(json.dumps(LOG))
    *way, last = path.split(".")
    spot = log
    for name in way:
        spot = spot[int(name)] if name.isdigit() else spot[name]
    key: Any = int(last) if last.isdigit() else last
    if value is ...:
        del spot[key]
    else:
        spot[key] = value
    return log


def test_a_log_becomes_a_manifest(store: Store) -> None:
    found = pack(store, json.dumps(LOG))
    manifest = found.manifest
    assert manifest.created == "2026-02-10T10:00:05Z"
    assert manifest.model.parameters == {"temperature": 0, "seed": 9007199254740993}
    assert store.objects.read(manifest.system_prompt) == b"Be careful."
    assert store.objects.read(manifest.prompts[0].content_ref) == "Häh?".encode()
    assert manifest.inputs[0].size == 3
    assert [step.index for step in manifest.steps] == [0, 1, 2]
    assert [step.deterministic for step in manifest.steps] == [True, False, True]
    assert store.objects.read(manifest.steps[1].output_ref) == b""
    assert manifest.steps[2].output_ref == ""
    assert manifest.steps[2].timestamp == NO_TIME
    assert store.packs() == [found.ref]
    assert latest(store) == found.ref
    assert list(store.scratch.iterdir()) == []


def test_the_same_log_has_one_hash_however_it_is_spelt(store: Store) -> None:
    plain = pack(store, json.dumps(LOG)).ref
    turned = dict(reversed(LOG.items()))
    assert pack(store, json.dumps(turned, indent=3, ensure_ascii=True)).ref == plain
    lines = [
        {"model": LOG["model"], "system_prompt": "Be careful.", "environment": LOG["environment"]},
        {"prompt": LOG["prompts"][0]},
        {"inputs": LOG["inputs"]},
        *({"step": step} for step in LOG["steps"][:1]),
        *LOG["steps"][1:],
        {"output": LOG["outputs"][0]},
    ]
    assert pack(store, "\n".join(map(json.dumps, lines))).ref == plain
    assert pack(store, "\ufeff" + json.dumps(LOG)).ref == plain


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("model.identifier", ..., "model.identifier: is missing"),
        ("model.identifier", "", "model.identifier: is missing"),
        ("model", ..., "model.identifier: is missing"),
        ("model", 3, "model: an object was expected, not a number"),
        ("model.parameters", [1], "model.parameters: an object was expected, not a list"),
        ("model.temperature", 1, "model.temperature: no such field"),
        ("system_prompt", ..., "system_prompt: is missing"),
        ("system_prompt", "", "system_prompt: is empty"),
        ("system_prompt", 4, "system_prompt: a text was expected, not a number"),
        ("prompts", {}, "prompts: a list was expected, not an object"),
        ("prompts.0", "hi", "prompts[0]: an object was expected, not a text"),
        ("prompts.0.content", 5, "prompts[0].content: a text was expected, not a number"),
        (
            "prompts.0.text",
            "x",
            "prompts[0].text: no such field; there are role, content, content_b64, path",
        ),
        ("inputs.0.content_b64", "aa", "inputs[0].content_b64: there is content already"),
        ("steps.1.tool", ..., "steps[1].tool: is missing"),
        ("steps.1.type", None, "steps[1].type: is missing"),
        ("steps.1.tol", "x", "steps[1].tol: no such field; did you mean tool?"),
        ("steps.1.index", "1", "steps[1].index: an integer was expected, not a text"),
        ("steps.1.index", 1.5, "steps[1].index: an integer was expected, not a number"),
        ("steps.1.index", 2**63, "steps[1].index: a smaller number was expected"),
        ("steps.1.index", 0, "steps[1].index: 0 is steps[0]'s index already"),
        ("steps.1.deterministic", "no", "steps[1].deterministic: true or false was expected"),
        ("steps.1.timestamp", "yesterday", "steps[1].timestamp: not an RFC 3339 time"),
        ("steps.1.output", 7, "steps[1].output: a text was expected, not a number"),
        ("steps.1.output", "\ud800", "steps[1].output: text with half a character"),
        ("steps.1.parameters", {"a": "\ud800"}, "steps[1].parameters: text with half a character"),
        ("outputs.0.name", ..., "outputs[0].name: is missing"),
        ("environment.os", ..., "environment.os: is missing"),
        ("environment.runtime", ..., "environment.runtime: is missing"),
        ("environment.tool_versions", {"git": 2}, "environment.tool_versions.git: a text"),
        ("stepz", [], "stepz: no such field; did you mean steps?"),
    ],
)
def test_a_mistake_is_named_with_its_place(
    store: Store, path: str, value: object, problem: str
) -> None:
    told = refusal(store, changed(path, value))
    assert problem in told
    assert "run.json, line 1: " in told
    assert store.packs() == []


def test_a_missing_text_suggestion(store: Store) -> None:
    assert "prompts[0].contents: no such field; did you mean content?" in refusal(
        store, changed("prompts.0.contents", "x")
    )


def test_lines_are_reported(store: Store) -> None:
    text = json.dumps(changed("steps.1.tool", ...), indent=1)
    line = next(n for n, row in enumerate(text.split("\n"), 1) if '"llm_call"' in row) - 1
    assert f"run.json, line {line}: steps[1].tool: is missing" in refusal(store, text)
    lines = [json.dumps(LOG), json.dumps({"step": {"tool": "x"}}), json.dumps({"model": {}})]
    told = refusal(store, "\n".join(lines))
    assert "line 2: steps[3].type: is missing" in told
    assert "line 3: model: is there a second time" in told


def test_every_mistake_is_reported_at_once(store: Store) -> None:
    told = refusal(store, {"steps": [{}] * 9})
    assert told.startswith("run.json has 22 mistakes:")
    assert told.endswith("and 12 more")


@pytest.mark.parametrize("text", ["", "  \n", "[]", "3", "null", '{"a":', "{} x"])
def test_what_is_no_log_at_all(store: Store, text: str) -> None:
    assert refusal(store, text).startswith("run.json")


def test_contents_in_base64_and_in_files(store: Store, tmp_path: Path) -> None:
    blob = bytes(range(256)) * 5000
    (tmp_path / "big.bin").write_bytes(blob)
    encoded = base64.encodebytes(blob).decode()
    log = changed(
        "inputs", [{"name": "i", "content_b64": encoded}, {"name": "j", "path": "big.bin"}]
    )
    log["steps"][0] |= {"output": {"path": "big.bin"}}
    log["steps"][1] = {"type": "t", "tool": "t", "output_b64": encoded}
    log["steps"][2] = {"type": "t", "tool": "t", "output_path": "big.bin"}
    log["system_prompt"] = {"content_b64": base64.b64encode(blob).decode()}
    manifest = pack(store, json.dumps(log), tmp_path).manifest
    refs = {manifest.system_prompt, *(item.content_ref for item in manifest.inputs)}
    refs |= {step.output_ref for step in manifest.steps}
    assert len(refs) == 1
    assert store.objects.read(refs.pop()) == blob
    assert manifest.inputs[0].size == len(blob)


@pytest.mark.parametrize("value", ["a", "====", "aGk=aGk=", "a*bc", "aGk", "é"])
def test_what_is_no_base64(store: Store, value: str) -> None:
    log = changed("inputs", [{"name": "i", "content_b64": value}])
    assert "inputs[0].content_b64: is not base64" in refusal(store, log)


@pytest.mark.needs("posix")
def test_a_path_reads_no_device_no_fifo_and_nothing_outside(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    root.mkdir()
    os.mkfifo(root / "fifo")
    (root / "link").symlink_to("/etc/passwd")
    (root / "zero").symlink_to("/dev/zero")
    for name, problem in (
        ("/etc/passwd", "outside the project"),
        ("../../etc/passwd", "outside the project"),
        ("link", "outside the project"),
        ("zero", "outside the project"),
        ("fifo", "not a regular file"),
        ("nosuch", "No such file"),
        ("", "not a regular file"),
        ("a\0b", "NUL"),
    ):
        told = refusal(store, changed("inputs", [{"name": "i", "path": name}]), root)
        assert "inputs[0].path" in told
        assert problem in told
    assert store.packs() == []


def test_a_long_text_in_parameters_stays_in_the_manifest(store: Store) -> None:
    text = "é\n" * 40_000
    found = pack(store, json.dumps(changed("steps.0.parameters", {"content": [text]})))
    assert store.load(found.ref).manifest.steps[0].parameters == {"content": [text]}
