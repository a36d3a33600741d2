"""Reachability: which objects a pack needs, and what keeps an object in the store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.packs.format import Content, Manifest, NotAManifestError, read_manifest, short
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.forks import drafts
from substrate.system.files import read_bytes_or_none

_MENTION = re.compile(rb"sha256:[0-9a-f]{64}")


class Root(NamedTuple):
    """Something that names an object and therefore keeps it."""

    #: ``pack``, ``tag``, ``latest`` or ``draft``.
    kind: str
    ref: str


def roots(store: Store) -> Iterator[Root]:
    """Packs, tags, `latest`, and whatever a draft mentions."""
    for ref in store.packs():
        yield Root("pack", ref)
    for ref in pack_refs.tags(store).values():
        yield Root("tag", ref)
    newest = pack_refs.latest(store)
    if newest is not None:
        yield Root("latest", newest)
    for path in drafts(store):
        for ref in mentions(read_bytes_or_none(path) or b""):
            yield Root("draft", ref)


def mentions(data: bytes) -> Iterator[str]:
    """Every address in some bytes, including those in a step's parameters."""
    for found in dict.fromkeys(_MENTION.findall(data)):
        yield found.decode()


def read_if_manifest(store: Store, ref: str) -> tuple[Manifest, bytes] | None:
    """The manifest at an address; None if its bytes are something else."""
    data = store.objects.read(ref)
    if not data.startswith(b"{"):
        return None
    try:
        return read_manifest(data), data
    except NotAManifestError:
        return None


def reachable(store: Store, start: Iterable[str]) -> set[str]:
    """Every object that `start` needs or mentions, parents and their contents included.

    `DamagedStoreError` if a manifest on the way cannot be read: the objects it needs are then
    unknown. The search stops at a parent that is not in the store.
    """
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        ref = waiting.pop()
        if ref in found or ref not in store.objects:
            continue
        found.add(ref)
        manifest = read_if_manifest(store, ref)
        if manifest is None:
            continue
        for mentioned in mentions(manifest[1]):
            if mentioned == manifest[0].parent:
                waiting.append(mentioned)
            elif mentioned in store.objects:
                found.add(mentioned)
    return found


class Need(NamedTuple):
    """A place in a pack that needs an object."""

    root: str
    content: Content


def needs(store: Store) -> Iterator[Need]:
    """Every place in every listed pack that needs an object; manifests need themselves."""
    names: dict[str, list[str]] = {}
    for name, ref in pack_refs.tags(store).items():
        names.setdefault(ref, []).append(name)
    for ref in store.packs():
        known = f" ({', '.join(names[ref])})" if ref in names else ""
        root = f"pack {short(ref)}{known}"
        yield Need(root, Content("manifest", ref))
        try:
            found = read_if_manifest(store, ref)
        except DamagedStoreError:
            continue
        if found is not None:
            for content in found[0].contents():
                yield Need(root, content)
