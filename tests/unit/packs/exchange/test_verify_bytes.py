"""Verifying an artifact: each kind of failure is distinguished."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from substrate.errors import NotFoundError, UsageError
from substrate.packs.exchange.sidecars import sidecar_of, sidecar_path, to_bytes
from substrate.packs.exchange.verify_bytes import verify
from substrate.packs.format.manifest import Manifest, Output, Pack
from substrate.packs.store.ctx_store import Store


@pytest.fixture
def artifact(store: Store, manifest: Manifest) -> Path:
    """An example `result.md` with a true sidecar."""
    pack = store.add(manifest)
    path = store.directory.parent / "result.md"
    path.write_bytes(b"It greets.\n")
    sidecar_path(path).write_bytes(to_bytes(sidecar_of(pack, "high", "by hand")))
    return path


def rewrite(path: Path, **changes: object) -> None:
    beside = sidecar_path(path)
    beside.write_text(json.dumps(json.loads(beside.read_text()) | changes))


def test_the_recorded_bytes_are_verified(store: Store, artifact: Path, manifest: Manifest) -> None:
    verdict = verify(store, artifact)
    assert verdict.verified
    assert verdict.output == manifest.outputs[0]
    assert verdict.artifact.ref == manifest.outputs[0].content_ref
    assert verdict.sidecar is not None
    assert verdict.sidecar.confidence == "high"


@pytest.mark.parametrize(
    "data", [b"", b"It greets.", b"It greets.\r\n", b"It greets.\n\n", b"it greets.\n"]
)
def test_any_other_bytes_are_modified(store: Store, artifact: Path, data: bytes) -> None:
    artifact.write_bytes(data)
    assert verify(store, artifact).status == "modified"


def test_a_missing_sidecar(store: Store, artifact: Path) -> None:
    sidecar_path(artifact).unlink()
    assert verify(store, artifact).status == "sidecar_missing"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"context_pack": "sha256:12"}', '{"context_pack": 3}', "\x00"]
)
def test_a_broken_sidecar(store: Store, artifact: Path, text: str) -> None:
    sidecar_path(artifact).write_text(text)
    assert verify(store, artifact).status == "sidecar_broken"


def test_a_sidecar_with_a_field_of_the_wrong_type_is_broken(store: Store, artifact: Path) -> None:
    rewrite(artifact, tools="read_file")
    assert verify(store, artifact).status == "sidecar_broken"


def test_a_sidecar_that_names_no_pack_of_this_store(store: Store, artifact: Path) -> None:
    rewrite(artifact, context_pack="sha256:" + "0" * 64)
    assert verify(store, artifact).status == "pack_missing"
    rewrite(artifact, context_pack=store.objects.write(b"no pack").ref)
    assert verify(store, artifact).status == "pack_missing"


def test_a_sidecar_of_another_pack_is_mismatched(
    store: Store, artifact: Path, manifest: Manifest
) -> None:
    other = store.add(manifest._replace(outputs=(Output("other.md", manifest.system_prompt),)))
    rewrite(artifact, context_pack=other.ref)
    verdict = verify(store, artifact)
    assert verdict.status == "sidecar_mismatched"
    assert "other.md" in verdict.reason


@pytest.mark.parametrize(
    "lie", [{"tools": ["trusted_tool"]}, {"tools": []}, {"inputs": []}, {"inputs": ["sha256:00"]}]
)
def test_a_sidecar_that_says_other_things_than_its_pack_is_forged(
    store: Store, artifact: Path, lie: dict[str, object]
) -> None:
    rewrite(artifact, **lie)
    assert verify(store, artifact).status == "sidecar_forged"


def test_a_damaged_manifest(store: Store, artifact: Path) -> None:
    (ref,) = store.packs()
    path = store.objects.path(ref)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"result.md", b"resulT.md"))
    assert verify(store, artifact).status == "pack_damaged"


def test_of_two_outputs_of_one_last_name_the_right_one_counts(
    store: Store, manifest: Manifest
) -> None:
    one, two = store.objects.write(b"1").ref, store.objects.write(b"2").ref
    pack = store.add(manifest._replace(outputs=(Output("a/x", one), Output("b/x", two))))
    root = store.directory.parent
    for name, data in (("a", b"1"), ("b", b"2")):
        (root / name).mkdir()
        (root / name / "x").write_bytes(data)
        assert verify(store, root / name / "x", pack).verified
    (root / "a" / "x").write_bytes(b"2")
    assert verify(store, root / "a" / "x", pack).status == "modified"


def test_lineage_is_followed_to_where_it_breaks(store: Store, manifest: Manifest) -> None:
    first = store.add(manifest._replace(parent="sha256:" + "0" * 64))
    second = store.add(manifest._replace(parent=first.ref))
    third = store.add(manifest._replace(parent=second.ref))
    path = store.directory.parent / "result.md"
    path.write_bytes(b"It greets.\n")
    verdict = verify(store, path, third)
    assert verdict.verified
    assert [(a.ref, a.state) for a in verdict.lineage] == [
        (second.ref, "sound"),
        (first.ref, "sound"),
        ("sha256:" + "0" * 64, "missing"),
    ]


@pytest.mark.needs("posix")
def test_what_is_no_file_is_refused_at_once(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(UsageError):
            verify(store, tmp_path / name)
    with pytest.raises(UsageError):
        verify(store, Path("/dev/zero"))
    with pytest.raises(NotFoundError):
        verify(store, tmp_path / "nosuch")
    with pytest.raises(UsageError, match="is a sidecar"):
        verify(store, tmp_path / "x.ctx.json")


def test_gits_name_for_the_bytes(store: Store, artifact: Path) -> None:
    found: Pack | None = verify(store, artifact).pack
    assert found is not None
    # printf 'It greets.\n' | git hash-object --stdin
    assert verify(store, artifact).artifact.blob_oid.hex() == (
        "9fbb596bdac7714dc2f8e681c90473a885436ca4"
    )
