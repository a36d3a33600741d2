"""Logs, drafts, bundles, sidecars and stores with anything in them: an answer, never a crash."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from substrate.cli.ctx import ctx

LOG: dict[str, Any] = {
    "model": {"identifier": "m", "parameters": {"t": 0}},
    "system_prompt": "p",
    "prompts": [{"role": "user", "content": "Go."}],
    "inputs": [{"name": "n", "content": "c"}],
    "steps": [
        {"type": "t", "tool": "t", "parameters": {"n": n}, "output": f"{n}\n"} for n in range(4)
    ],
    "outputs": [{"name": "r.md", "content": "x"}],
    "environment": {"os": "l", "runtime": "r", "tool_versions": {"g": "1"}},
}
VALUES = (
    *("null", "true", "0", "-1", str(2**70), "1.5", "1e300", '""', '"x"', '"\\ud800"', '"\\u0000"'),
    *("[]", "{}", "[1]", '{"a": 1}', '{"path": "/etc/passwd"}', '{"content_b64": "!"}'),
    *(f'"sha256:{"0" * 64}"', '"../x"', json.dumps("é" * 20_000), '"2026-02-10T10:00:00Z"'),
)
KEYS = (
    "tool",
    "content",
    "path",
    "output",
    "index",
    "steps",
    "parent",
    "foo",
    "name",
    "content_ref",
)
#: Every status but those of a bug.
FINE = (0, 1, 2, 4, 5, 6)


def mutated(rng: random.Random, whole: object) -> str:
    """The document with a few fields changed, added or taken away, anywhere."""
    out = json.loads(json.dumps(whole))
    for _ in range(rng.randint(1, 3)):
        spot = out
        for _ in range(rng.randint(0, 4)):
            inner = list(spot.values()) if isinstance(spot, dict) else spot
            below = [item for item in inner if isinstance(item, (dict, list))]
            spot = rng.choice(below) if below else spot
        value = json.loads(rng.choice(VALUES))
        if isinstance(spot, dict):
            key = rng.choice([*spot, *KEYS])
            spot[key] = value
            if rng.random() < 0.3:
                del spot[key]
        else:
            spot.insert(rng.randint(0, len(spot)), value)
    return json.dumps(out)


def flipped(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        out[at] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del out[at : at + rng.randint(1, 40)]
        if not out:
            return b"\0"
    return bytes(out)


def check(*words: str) -> int:
    status = ctx(list(words))
    assert status in FINE, words
    return status


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 40))]
)
def test_nonsense_is_answered(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    Path("good.json").write_text(json.dumps(LOG))
    assert check("init") == check("pack", "good.json") == check("tag", "good", "latest") == 0
    assert check("export", "good", "good.tar") == 0
    bundle = Path("good.tar").read_bytes()
    for round_ in range(40):
        Path("log.json").write_text(mutated(rng, LOG))
        if check("pack", "log.json", "--sidecars", "side") == 0:
            for words in (["show", "--content"], ["diff", "good", "latest", "--human"], ["log"]):
                check(*words)
        Path("log.json").write_bytes(flipped(rng, json.dumps(LOG).encode()))
        check("pack", "log.json")
        Path("bad.tar").write_bytes(flipped(rng, bundle))
        check("import", "bad.tar")
        check("fork", "good")
        draft = next(Path(".ctx/drafts").iterdir())
        draft.write_text(mutated(rng, json.loads(draft.read_text())))
        check("finalize", str(draft))
        draft.unlink(missing_ok=True)
        Path("r.md").write_text("x")
        sidecar = {"context_pack": "sha256:" + "0" * 64, "inputs": [], "tools": ["t"]}
        Path("r.md.ctx.json").write_text(mutated(rng, sidecar))
        check("verify", "r.md")
        if round_ % 8 == 0:
            _damaged_store(rng)
    assert check("fsck") == 0
    told = capfd.readouterr()
    assert "a bug in Substrate" not in told.err


def _damaged_store(rng: random.Random) -> None:
    """Any file of the store flipped, everything asked, and the file put back."""
    files = [
        Path(top, name) for top, _, names in os.walk(".ctx") for name in names if name != "lock"
    ]
    file = rng.choice([path for path in files if path.stat().st_size])
    whole = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(flipped(rng, whole))
    for words in (["fsck"], ["log"], ["gc", "--dry-run"], ["show", "good"], ["tag"]):
        check(*words)
    file.write_bytes(whole)
