"""Fork, edit, finalize."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from substrate.errors import NotFoundError, UsageError
from substrate.packs.format.manifest import Manifest, Pack
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.forks import finalize, find_draft, fork
from substrate.packs.store.fsck import check_store


@pytest.fixture
def pack(store: Store, manifest: Manifest) -> Pack:
    return store.add(manifest)


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=1))


def test_an_edited_draft_becomes_a_pack_with_a_parent(store: Store, pack: Pack) -> None:
    path = fork(store, pack)
    edit(
        path,
        system_prompt="Be bold.",
        prompts=[{"role": "user", "content": "New words"}],
        model={"identifier": "m-2", "parameters": {"seed": 2**60 + 1}},
    )
    done = finalize(store, path, store.directory.parent)
    found = store.load(done.pack.ref).manifest
    assert found.parent == pack.ref
    assert store.objects.read(found.system_prompt) == b"Be bold."
    assert store.objects.read(found.prompts[0].content_ref) == b"New words"
    assert found.model.parameters == {"seed": 2**60 + 1}
    assert found.steps == pack.manifest.steps
    assert found.created == pack.manifest.created
    assert not done.unchanged
    assert not path.exists()
    assert pack_refs.latest(store) == done.pack.ref


def test_what_a_recorded_step_did_stays_in_the_fork(store: Store, manifest: Manifest) -> None:
    # Of what a command changed and a later one changed again a pack has the address alone.
    gone = "sha256:" + "5" * 64
    result = {"exit": 1, "changed": [{"path": "a", "change": "modified", "content": gone}]}
    recorded = replace(manifest.steps[0], tool="shell", result=result)
    path = fork(store, store.add(manifest._replace(steps=(recorded,))))
    assert check_store(store).is_sound
    done = finalize(store, path, store.directory.parent)
    assert store.load(done.pack.ref).manifest.steps == (recorded,)
    assert done.unchanged


def test_a_second_fork_leaves_the_edits_of_the_first(store: Store, pack: Pack) -> None:
    first = fork(store, pack)
    edit(first, system_prompt="My edits.")
    edited = first.read_bytes()
    second, third = fork(store, pack), fork(store, pack)
    assert len({first, second, third}) == 3
    assert first.read_bytes() == edited
    one = finalize(store, first, store.directory.parent).pack
    two = finalize(store, second, store.directory.parent)
    assert store.objects.read(one.manifest.system_prompt) == b"My edits."
    assert two.unchanged
    assert third.exists()


def test_contents_may_come_from_files_and_base64(store: Store, pack: Pack) -> None:
    root = store.directory.parent
    (root / "new.bin").write_bytes(b"\0new")
    path = fork(store, pack)
    step = json.loads(path.read_text())["steps"][0]
    del step["output_ref"]
    edit(
        path,
        inputs=[{"name": "n", "path": "new.bin"}],
        outputs=[{"name": "o", "content_b64": "AG5ldw=="}],
        steps=[step | {"output_path": "new.bin"}, step | {"index": 5}],
    )
    found = finalize(store, path, root).pack.manifest
    expected = store.objects.write(b"\0new").ref
    assert found.inputs[0][1:] == (expected, 4)
    assert found.outputs[0].content_ref == expected
    assert [s.output_ref for s in found.steps] == [expected, ""]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parent": ""}, "parent: is missing"),
        ({"parent": "sha256:" + "0" * 64}, "parent: is not a pack"),
        ({"stepz": []}, "stepz: no such field"),
        ({"steps": {}}, "steps: a list was expected"),
        ({"model": 3}, "model: an object was expected"),
        ({"created": "now"}, "created: not an RFC 3339 time"),
        ({"system_prompt": "sha256:" + "0" * 64}, "system_prompt: there is no object 000000000000"),
        ({"prompts": [{"role": "user"}]}, "prompts[0].content_ref: is missing"),
        ({"prompts": [{"content_ref": "x"}]}, "prompts[0].content_ref: is not a content address"),
        ({"outputs": [{"content": "x"}]}, "outputs[0].name: is missing"),
        ({"inputs": [{"name": "x", "path": "/etc/passwd"}]}, "outside the project"),
    ],
)
def test_a_mistake_in_a_draft_is_named_and_the_draft_stays(
    store: Store, pack: Pack, changes: dict[str, Any], problem: str
) -> None:
    path = fork(store, pack)
    edit(path, **changes)
    edited = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        finalize(store, path, store.directory.parent)
    assert problem in caught.value.message
    assert "line " in caught.value.message
    assert path.read_bytes() == edited
    assert store.packs() == [pack.ref]


def test_broken_json_is_reported_by_line(store: Store, pack: Pack) -> None:
    path = fork(store, pack)
    path.write_text('{\n "a": \n')
    with pytest.raises(UsageError, match="line 3"):
        finalize(store, path, store.directory.parent)


def test_finding_a_draft(store: Store, pack: Pack, tmp_path: Path) -> None:
    path = fork(store, pack)
    name = path.name
    for text in (str(path), name, name.removesuffix(".draft.json"), f"ctx://{pack.ref[7:]}"):
        assert find_draft(store, text, tmp_path) == path
    fork(store, pack)
    with pytest.raises(NotFoundError, match="several"):
        find_draft(store, name[:6], tmp_path)
    with pytest.raises(NotFoundError, match="no draft"):
        find_draft(store, "zzz", tmp_path)


def test_a_draft_elsewhere_stays(store: Store, pack: Pack, tmp_path: Path) -> None:
    path = fork(store, pack)
    moved = path.rename(tmp_path / "mine.json")
    assert finalize(store, moved, tmp_path).kept == moved
    assert moved.exists()
