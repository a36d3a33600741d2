"""Bundles: what goes out comes in; what was tampered with does not."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError, NotFoundError, RefusedError
from substrate.packs.exchange.bundle import export
from substrate.packs.exchange.bundle_read import import_bundle
from substrate.packs.exchange.signatures import add_signature, signature_files
from substrate.packs.format.manifest import Manifest, Pack
from substrate.packs.store.ctx_store import Store, make_store
from substrate.packs.store.pack_refs import latest

Edit = Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]


@pytest.fixture
def other(tmp_path: Path) -> Store:
    directory = tmp_path / "other" / ".ctx"
    directory.mkdir(parents=True)
    return make_store(directory)


@pytest.fixture
def bundle(store: Store, manifest: Manifest, tmp_path: Path) -> Path:
    pack = store.add(manifest)
    path = tmp_path / "one.tar"
    export(store, [pack.ref], path)
    return path


def everything(store: Store) -> dict[str, bytes]:
    return {
        path.relative_to(store.directory).as_posix(): path.read_bytes()
        for path in store.directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz", "b.tgz"])
def test_a_bundle_brings_packs_and_their_ancestors(
    store: Store, other: Store, manifest: Manifest, tmp_path: Path, name: str
) -> None:
    big = store.objects.write(b"x" * 3_000_001).ref
    first = store.add(manifest)
    second = store.add(manifest._replace(parent=first.ref, system_prompt=big))
    add_signature(store, second.ref, b"a signature")
    done = export(store, [second.ref], tmp_path / name)
    assert done.packs == (second.ref, first.ref)
    taken = import_bundle(other, tmp_path / name)
    assert set(taken.packs) == {first.ref, second.ref}
    assert other.load(second.ref) == store.load(second.ref)
    assert set(other.objects) == set(store.objects)
    assert len(signature_files(other, second.ref)) == 1
    assert list(other.scratch.iterdir()) == []
    again = tmp_path / f"again-{name}"
    export(other, [second.ref], again)
    assert again.read_bytes() == (tmp_path / name).read_bytes()
    assert import_bundle(other, again).packs == taken.packs


def test_latest_is_what_came_unless_something_was_made_here(
    store: Store, other: Store, bundle: Path, manifest: Manifest, tmp_path: Path
) -> None:
    [came] = import_bundle(other, bundle).packs
    assert latest(other) == came
    newer = store.add(manifest._replace(parent=came))
    export(store, [newer.ref], tmp_path / "two.tar")
    import_bundle(other, tmp_path / "two.tar")
    assert latest(other) == came


def test_without_parents(store: Store, other: Store, manifest: Manifest, tmp_path: Path) -> None:
    second = store.add(manifest._replace(parent=store.add(manifest).ref))
    export(store, [second.ref], tmp_path / "b.tar", parents=False)
    assert import_bundle(other, tmp_path / "b.tar").packs == (second.ref,)


def test_plain_tar_reads_it(bundle: Path) -> None:
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        index = archive.extractfile("ctx-bundle.json")
        assert index is not None
        assert json.load(index)["format"] == "ctx-bundle"
    assert all(name == "ctx-bundle.json" or name.startswith("objects/") for name in names)


def test_a_damaged_pack_is_not_exported(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    pack: Pack = store.add(manifest)
    path = store.objects.path(manifest.system_prompt)
    path.chmod(0o600)
    path.write_bytes(b"tampered")
    with pytest.raises(DamagedStoreError, match="damaged"):
        export(store, [pack.ref], tmp_path / "b.tar")
    path.unlink()
    with pytest.raises(DamagedStoreError, match="system_prompt is missing"):
        export(store, [pack.ref], tmp_path / "b.tar")
    assert [p.name for p in tmp_path.iterdir() if "b.tar" in p.name] == []
    with pytest.raises(NotFoundError, match="no directory"):
        export(
            store,
            [store.add(manifest._replace(system_prompt=manifest.prompts[0].content_ref)).ref],
            tmp_path / "nosuch" / "b.tar",
        )


def test_a_damaged_object_heals_by_import(store: Store, bundle: Path, manifest: Manifest) -> None:
    path = store.objects.path(manifest.system_prompt)
    path.chmod(0o600)
    path.write_bytes(b"tampered")
    import_bundle(store, bundle)
    assert store.objects.read(manifest.system_prompt) == b"You are careful."


def tampered(bundle: Path, edit: Edit) -> Path:
    members = []
    with tarfile.open(bundle) as archive:
        for info in archive:
            file = archive.extractfile(info)
            members.append((info, file.read() if file else b""))
    edit(members)
    out = bundle.with_name("tampered.tar")
    with tarfile.open(out, "w", format=tarfile.GNU_FORMAT) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out


def new(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Edit:
    def edit(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        members.append((info, data if kind == tarfile.REGTYPE else b""))

    return edit


def flip(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    info, data = members[3]
    members[3] = info, bytes([data[0] ^ 1]) + data[1:]


def drop(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    del members[3]


def twice(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append(members[2])


def index(**changes: object) -> Edit:
    def edit(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        info, data = members[0]
        members[0] = info, json.dumps(json.loads(data) | changes).encode()

    return edit


def reorder(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    members.append(members.pop(0))


OBJECT = "objects/" + "0" * 2 + "/" + "0" * 62
#: The object of no bytes: a link in its place would hash as it should.
EMPTY = "objects/e3/b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    "edit",
    [
        *(flip, drop, twice, reorder),
        *(new(name) for name in ("../evil", "/etc/evil", "objects/../../evil", "objects/ab/../x")),
        *(
            new(name)
            for name in ("packs/x", "refs/latest", "config.json", "objects/AB/" + "c" * 62)
        ),
        *(new(name) for name in (OBJECT, "x" * 200, "é", "signatures/" + "0" * 64 + "/a.sig")),
        new("signatures/" + "0" * 64 + "/../x.sig"),
        new(OBJECT, kind=tarfile.SYMTYPE, link="/etc/passwd"),
        new(OBJECT, kind=tarfile.LNKTYPE, link="ctx-bundle.json"),
        *(new(EMPTY, kind=kind, link="x") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)),
        *(new(OBJECT, kind=kind) for kind in (tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)),
        *(index(format="x"), index(version=2), index(packs=[]), index(packs="sha256:00")),
        index(packs=["sha256:" + "0" * 64]),
    ],
)
def test_a_bundle_that_is_wrong_anywhere_changes_nothing(
    other: Store, bundle: Path, tmp_path: Path, edit: Edit
) -> None:
    bad = tampered(bundle, edit)
    before = everything(other)
    outside = set(tmp_path.iterdir())
    with pytest.raises(RefusedError, match="was not imported"):
        import_bundle(other, bad)
    assert everything(other) == before
    assert list(other.scratch.iterdir()) == []
    assert set(tmp_path.iterdir()) == outside


def test_the_tampering_above_is_what_is_refused(other: Store, bundle: Path) -> None:
    assert import_bundle(other, tampered(bundle, lambda members: None)).packs


@pytest.mark.parametrize("keep", [0, 1, 511, 512, 700, 2000])
def test_a_bundle_that_is_cut_off(other: Store, bundle: Path, keep: int) -> None:
    for data in (bundle.read_bytes()[:keep], gzip.compress(bundle.read_bytes())[: keep // 4 + 3]):
        cut = bundle.with_name("cut")
        cut.write_bytes(data)
        with pytest.raises(RefusedError):
            import_bundle(other, cut)
    assert other.packs() == []


def test_a_bomb_is_bounded(other: Store, tmp_path: Path) -> None:
    bomb = io.BytesIO()
    with tarfile.open(fileobj=bomb, mode="w") as archive:
        data = json.dumps({"format": "ctx-bundle", "version": 1, "packs": ["sha256:" + "0" * 64]})
        info = tarfile.TarInfo("ctx-bundle.json")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data.encode()))
        info = tarfile.TarInfo(OBJECT)
        info.size = 50_000_000
        archive.addfile(info, io.BytesIO(bytes(50_000_000)))
    (tmp_path / "bomb.tgz").write_bytes(gzip.compress(bomb.getvalue()))
    with pytest.raises(RefusedError, match="more than the limit"):
        import_bundle(other, tmp_path / "bomb.tgz", max_bytes=1_000_000)
    assert list(other.objects) == []


def test_signatures_without_end_are_refused(other: Store, bundle: Path) -> None:
    digits = other_digits(bundle)

    def edit(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        for number in range(257):
            new(f"signatures/{digits}/{number:x}.sig", bytes(1 << 16))(members)

    with pytest.raises(RefusedError, match="too many signatures"):
        import_bundle(other, tampered(bundle, edit))


def other_digits(bundle: Path) -> str:
    with tarfile.open(bundle) as archive:
        file = archive.extractfile("ctx-bundle.json")
        assert file is not None
        return str(json.load(file)["packs"][0]).removeprefix("sha256:")


def test_a_pack_whose_contents_are_here_already_may_be_lean(
    store: Store, manifest: Manifest, tmp_path: Path
) -> None:
    """What counts is that every listed pack is whole afterwards."""
    pack = store.add(manifest)
    export(store, [pack.ref], tmp_path / "b.tar")

    def lean(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        digits = manifest.system_prompt[7:]
        members[:] = [m for m in members if not m[0].name.endswith(digits[2:])]

    (tmp_path / "b.tar").rename(tmp_path / "one.tar")
    assert import_bundle(store, tampered(tmp_path / "one.tar", lean)).packs == (pack.ref,)
