"""The manifest: what is stored, what is read, also from the original."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace

import pytest

from substrate.errors import UsageError
from substrate.packs.format.canonical import canonical_bytes
from substrate.packs.format.manifest import NO_TIME, Manifest, fields, ref_of_manifest, stored_bytes
from substrate.packs.format.manifest_reader import NotAManifestError, instant_ns, read_manifest
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.log_to_pack import LogFile, pack_log

#: As the original writes a pack with one step without parameters, output or time.
GO_PACK = (
    b'{"created":"2026-02-10T14:30:00.123456789Z","environment":{"os":"linux","runtime":"go1.22",'
    b'"tool_versions":null},"hash":"","inputs":[],"model":{"identifier":"m","parameters":null},'
    b'"outputs":[{"content_ref":"sha256:' + b"a" * 64 + b'","name":"r.md"}],"prompts":[],'
    b'"steps":[{"deterministic":false,"index":0,"output_ref":"","parameters":null,'
    b'"timestamp":"0001-01-01T00:00:00Z","tool":"x \\u003c y","type":"llm_call"}],'
    b'"system_prompt":"sha256:' + b"b" * 64 + b'","version":"0.1"}'
)


def test_the_id_is_the_sha256_of_the_stored_bytes(store: Store, manifest: Manifest) -> None:
    pack = store.add(manifest)
    stored = store.objects.path(pack.ref).read_bytes()
    assert pack.ref == "sha256:" + hashlib.sha256(stored).hexdigest()
    assert stored == stored_bytes(manifest)
    assert json.loads(stored)["hash"] == ""
    assert store.load(pack.ref) == pack


def test_the_fields_are_the_seeds_and_no_others(manifest: Manifest) -> None:
    told = fields(manifest, "sha256:" + "0" * 64)
    assert set(told) == {
        *("version", "hash", "created", "model", "system_prompt", "prompts", "inputs"),
        *("steps", "outputs", "environment"),
    }
    assert told["outputs"] == [
        {
            "name": "result.md",
            "content_ref": manifest.outputs[0].content_ref,
            "context_pack": "sha256:" + "0" * 64,
        }
    ]
    assert "parent" in fields(manifest._replace(parent="sha256:" + "1" * 64))


def test_a_steps_result_is_kept_and_left_out_where_there_is_none(
    store: Store, manifest: Manifest
) -> None:
    assert "result" not in json.loads(stored_bytes(manifest))["steps"][0]
    step = replace(manifest.steps[0], result={"exit": 3})
    pack = store.add(manifest._replace(steps=(step,)))
    assert store.load(pack.ref).manifest.steps[0].result == {"exit": 3}


def test_a_big_integer_survives(store: Store, manifest: Manifest) -> None:
    big = manifest._replace(model=manifest.model._replace(parameters={"seed": 2**53 + 1}))
    assert store.load(store.add(big).ref).manifest.model.parameters == {"seed": 2**53 + 1}


def test_a_pack_of_the_original_is_read() -> None:
    found = read_manifest(GO_PACK)
    assert found.steps[0].tool == "x < y"
    assert found.steps[0].parameters == {}
    assert found.steps[0].timestamp == NO_TIME
    assert found.environment.tool_versions == {}
    assert found.outputs[0].name == "r.md"


def test_what_the_original_needs_is_there(manifest: Manifest) -> None:
    """Its times must parse and its lists must be lists, or Go's decoder refuses the whole."""
    told = json.loads(stored_bytes(manifest))
    instant_ns(told["created"])
    assert all(isinstance(told[name], list) for name in ("prompts", "inputs", "steps", "outputs"))
    assert isinstance(told["steps"][0]["index"], int)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'"text"',
        b"{}",
        GO_PACK.replace(b'"steps":[{', b'"steps":[1,{'),
        GO_PACK.replace(b"sha256:b", b"sha512:b"),
        GO_PACK.replace(b'"2026-02-10T', b'"2026-02-31T'),
        GO_PACK.replace(b'"index":0', b'"index":"0"'),
        b"[" * 100_000,
        GO_PACK.replace(b'"parameters":null,', b'"parameters":{"x":NaN},', 1),
        GO_PACK.replace(b'"parameters":null,', b'"parameters":{"x":1e999},', 1),
        GO_PACK.replace(b'"parameters":null,', b'"parameters":{"x":"\\ud800"},', 1),
        GO_PACK.replace(
            b'"parameters":null,', b'"parameters":{"x":%s1%s},' % (b"[" * 250, b"]" * 250)
        ),
    ],
)
def test_anything_else_is_no_manifest(data: bytes) -> None:
    with pytest.raises(NotAManifestError):
        read_manifest(data)


@pytest.mark.parametrize("depth", [150, 180, 185, 190, 195, 199])
def test_what_a_log_may_hold_can_be_read_again(store: Store, depth: int) -> None:
    """No nesting is accepted on the way in that cannot be written, or read, later."""
    log = (
        '{"model": {"identifier": "m"}, "system_prompt": "p", "steps": [{"type": "t", "tool": "t",'
        ' "parameters": {"x": DEEP}}], "environment": {"os": "l", "runtime": "r"}}'
    ).replace("DEEP", "[" * depth + "]" * depth)
    try:
        pack = pack_log(store, LogFile("log", io.BytesIO(log.encode()), (store.directory,)))
    except UsageError as error:
        assert "deep" in error.message
        assert depth >= 185
    else:
        assert store.load(pack.ref) == pack
        assert canonical_bytes(fields(pack.manifest))


def test_order_of_keys_in_memory_does_not_change_the_hash(manifest: Manifest) -> None:
    turned = dict(reversed(list(manifest.model.parameters.items())))
    other = manifest._replace(model=manifest.model._replace(parameters=turned))
    assert ref_of_manifest(other) == ref_of_manifest(manifest)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.5+01:00", 500_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T00:00:00-00:30", 1_800_000_000_000),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert instant_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "2026-02-10", "2026-02-10T14:30:00", "2026-13-10T14:30:00Z", "2026-02-10t14:30:00z"],
)
def test_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        instant_ns(text)
