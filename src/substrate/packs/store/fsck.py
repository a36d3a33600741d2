"""Check a whole store: every object, pack and name, and what each damage breaks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.packs.format import hex_of, is_hex, is_ref, short
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.forks import drafts, needed
from substrate.packs.store.object_files import MissingObjectError
from substrate.packs.store.reachability import needs, read_if_manifest
from substrate.system.files import read_bytes_or_none

Progress = Callable[[int, int], None]


class StoreFinding(NamedTuple):
    """A problem, and what it breaks."""

    #: ``damaged``, ``missing``, ``not-a-pack``, ``listing``, ``ref``, ``draft`` or ``stray``.
    kind: str
    #: The object's address, or the path of what is wrong below `.ctx`.
    what: str
    problem: str
    breaks: tuple[str, ...] = ()


class Health(NamedTuple):
    objects: int
    packs: int
    bytes: int
    findings: tuple[StoreFinding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there are at most strays: they use space but break nothing."""
        return all(finding.kind == "stray" for finding in self.findings)


def check_store(store: Store, progress: Progress = lambda done, total: None) -> Health:
    """Read everything. Nothing is changed."""
    users: dict[str, list[str]] = {}
    for need in needs(store):
        users.setdefault(need.content.ref, []).append(f"{need.root}: {need.content.place}")
    there = list(store.objects)
    findings: list[StoreFinding] = []
    size = 0
    for done, ref in enumerate(there):
        progress(done, len(there))
        try:
            store.objects.check(ref)
            size += store.objects.size(ref)
        except MissingObjectError:
            continue  # collected since it was listed
        except DamagedStoreError as error:
            breaks = tuple(users.get(ref, ("nothing: no pack needs it",)))
            findings.append(StoreFinding("damaged", ref, error.message, breaks))
    known = set(there)
    for ref, places in users.items():
        if ref not in known and ref not in store.objects:
            said = f"object {short(ref)} is missing"
            findings.append(StoreFinding("missing", ref, said, tuple(places)))
    findings += _listings(store)
    findings += _names(store)
    findings += _drafts(store)
    findings += _strays(store)
    return Health(len(there), len(store.packs()), size, tuple(findings))


def _listings(store: Store) -> Iterator[StoreFinding]:
    for name in sorted(os.listdir(store.packs_dir)):
        if not is_hex(name):
            yield StoreFinding(
                "stray", f"packs/{name}", "not the name of a pack; `ctx gc` may help"
            )
            continue
        ref = f"sha256:{name}"
        told = read_bytes_or_none(store.packs_dir / name)
        if (told or b"").strip() != ref.encode():
            said = "it does not hold the address it is named after"
            yield StoreFinding(
                "listing", f"packs/{name}", said, (f"the listing of pack {short(ref)}",)
            )
        try:
            if ref in store.objects and read_if_manifest(store, ref) is None:
                said = f"object {short(ref)} is listed as a pack but is no manifest"
                yield StoreFinding("not-a-pack", ref, said, (f"pack {short(ref)}",))
        except DamagedStoreError:
            pass  # already reported as an object


def _names(store: Store) -> Iterator[StoreFinding]:
    for name, path in pack_refs.files(store):
        text = (_bytes(path) or b"").decode("ascii", "replace").strip()
        where = f"refs/{name}"
        if not is_ref(text):
            yield StoreFinding("ref", where, "it does not hold an address", (f"the name {name}",))
        elif not (store.packs_dir / hex_of(text)).exists():
            yield StoreFinding(
                "ref", where, f"it names {short(text)}, which is no pack", (f"the name {name}",)
            )


def _bytes(path: Path) -> bytes | None:
    try:
        return read_bytes_or_none(path)
    except OSError:  # a link to a directory, a device, a FIFO
        return None


def _drafts(store: Store) -> Iterator[StoreFinding]:
    for path in drafts(store):
        for ref in needed(_bytes(path) or b""):
            if ref not in store.objects:
                said = f"it names object {short(ref)}, which is missing"
                yield StoreFinding("draft", f"drafts/{path.name}", said, ("finalizing the draft",))


def _strays(store: Store) -> Iterator[StoreFinding]:
    for path in store.objects.strays():
        where = path.relative_to(store.directory).as_posix()
        yield StoreFinding("stray", where, "not an object; `ctx gc` takes it away")
