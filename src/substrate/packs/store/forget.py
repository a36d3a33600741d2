"""Forget content in `.ctx`: rewrite packs without it, and map old ids to new ones.

    .ctx/forgotten/<old hex>     "sha256:<hex>" of the pack that replaced it

A pack's id is the hash of its contents, so a pack that loses content gets another id. References
to a changed pack (a fork's `parent`, tags, `latest`, drafts) are updated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.model import PLACEHOLDER, ForgetRule
from substrate.packs.exchange import signatures_dir
from substrate.packs.format import canonical_bytes, hex_of, is_ref
from substrate.packs.store import gc, pack_refs
from substrate.packs.store.ctx_store import FORGOTTEN, Store
from substrate.packs.store.forks import drafts
from substrate.packs.store.object_files import Objects
from substrate.packs.store.reachability import read_if_manifest
from substrate.system.files import read_bytes_or_none, remove_tree, write_atomic


class ForgottenPacks(NamedTuple):
    #: Old pack → the pack that replaced it; in a dry run, → "".
    moved: dict[str, str]
    drafts: tuple[Path, ...]


def survey(store: Store, rule: ForgetRule) -> ForgottenPacks:
    """Which packs and drafts would change. Writes nothing."""
    with store.writing("looking for content to forget"):
        scrub = _Scrub(store.objects, rule, writes=False)
        moved = {ref: "" for ref in _parents_first(store) if scrub.changes(store, ref)}
        return ForgottenPacks(moved, tuple(p for p in drafts(store) if scrub.changes_file(p)))


def forget(store: Store, rule: ForgetRule) -> ForgottenPacks:
    """Rewrite the packs and remove the old objects. Safe to repeat after a kill."""
    with store.alone("forgetting"):
        scrub = _Scrub(store.objects, rule, writes=True)
        moved: dict[str, str] = {}
        for ref in _parents_first(store):
            new = scrub.pack(store, ref)
            if new != ref:
                moved[ref] = new
        changed = tuple(path for path in drafts(store) if scrub.file(path))
        store.objects.sync()
        _switch(store, moved)
    gc.collect(store)
    return ForgottenPacks(moved, changed)


def _parents_first(store: Store) -> Iterator[str]:
    waiting, done = store.packs(), set[str]()
    while waiting:
        ref = waiting[-1]
        found = None if ref in done else read_if_manifest(store, ref)
        parent = found[0].parent if found else ""
        if parent and parent not in done and parent in store.objects:
            waiting.append(parent)
            continue
        waiting.pop()
        if found is not None:
            done.add(ref)
            yield ref


def _switch(store: Store, moved: dict[str, str]) -> None:
    """List the new packs and map the old ids before anything old is removed."""
    (store.directory / FORGOTTEN).mkdir(mode=0o700, exist_ok=True)
    for old, new in moved.items():
        store.register(new)
        write_atomic(store.directory / FORGOTTEN / hex_of(old), new.encode() + b"\n")
    for name, ref in pack_refs.tags(store).items():
        if ref in moved:
            pack_refs.set_tag(store, name, moved[ref])
    newest = pack_refs.latest(store)
    if newest in moved:
        pack_refs.set_latest(store, moved[newest])
    for old in moved:
        remove_tree(signatures_dir(store, old))  # it signed removed content
        with_old = store.packs_dir / hex_of(old)
        if os.path.lexists(with_old):
            os.unlink(with_old)


class _Scrub:
    """Contents and manifests without the text to forget; each object is read once."""

    def __init__(self, objects: Objects, rule: ForgetRule, *, writes: bool) -> None:
        self._objects, self._rule, self._writes = objects, rule, writes
        #: Old address → new address, of contents and of packs.
        self._known: dict[str, str] = {}

    def pack(self, store: Store, ref: str) -> str:
        """The address of the pack that replaces `ref`; itself if nothing changes."""
        if ref not in self._known:
            found = read_if_manifest(store, ref)
            assert found is not None, "a listed pack has a manifest"
            old = json.loads(found[1])
            new = self._value(old)
            self._known[ref] = ref if new == old else self._write(canonical_bytes(new))
        return self._known[ref]

    def changes(self, store: Store, ref: str) -> bool:
        return self.pack(store, ref) != ref

    def file(self, path: Path) -> bool:
        """Scrub a draft; whether it changed."""
        new = self._draft(path)
        if new is None:
            return False
        write_atomic(path, new)
        return True

    def changes_file(self, path: Path) -> bool:
        return self._draft(path) is not None

    def _draft(self, path: Path) -> bytes | None:
        raw = read_bytes_or_none(path) or b""
        try:
            old = json.loads(raw)
        except ValueError:  # not valid JSON (half edited): replace only in its text
            new = self._rule.scrubbed(raw)
            return new if new != raw else None
        changed = self._value(old)
        if changed == old:
            return None
        return json.dumps(changed, indent=2, ensure_ascii=False).encode("utf-8") + b"\n"

    def _value(self, value: object, *, covered: bool = False) -> object:
        if isinstance(value, str):
            return self._string(value, covered=covered)
        if isinstance(value, list):
            return [self._value(item, covered=covered) for item in value]
        if not isinstance(value, dict):
            return value
        covered = covered or self._is_covered(value)
        out = {
            self._rule.scrubbed_text(key): self._value(item, covered=covered)
            for key, item in value.items()
        }
        ref = out.get("content_ref")
        if "size" in out and isinstance(ref, str) and ref != value.get("content_ref"):
            out["size"] = len(self._new_content(str(value["content_ref"]), covered=covered))
        return out

    def _string(self, text: str, *, covered: bool) -> str:
        if not is_ref(text):
            return self._rule.scrubbed_text(text)
        if text in self._known and not covered:
            return self._known[text]
        if text not in self._objects:
            return text
        data = self._objects.read(text)
        new = self._new_content(text, covered=covered)
        ref = text if new == data else self._write(new)
        if not covered:
            self._known[text] = ref
        return ref

    def _new_content(self, ref: str, *, covered: bool) -> bytes:
        return PLACEHOLDER.encode() if covered else self._rule.scrubbed(self._objects.read(ref))

    def _is_covered(self, item: dict[str, object]) -> bool:
        """Whether this part of a manifest is about the forgotten path."""
        return any(
            isinstance(name, str) and self._rule.covers(os.fsencode(name))
            for name in (item.get("path"), item.get("name"))
        )

    def _write(self, data: bytes) -> str:
        if self._writes:
            return self._objects.write(data).ref
        return "sha256:" + "0" * 64  # a dry run only checks whether something changes
