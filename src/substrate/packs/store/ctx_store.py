"""One `.ctx`: its objects, the list of its packs, its names.

.ctx/
  objects/ab/cdef…   content, named by its SHA-256; manifests are objects too
  packs/<hex>        one small file for each pack: "sha256:<hex>"
  refs/latest        the newest pack; refs/tags/NAME: names given by people
  drafts/            forks that are being edited
  forgotten/<hex>    the pack that replaced this one when content was forgotten
  tmp/               objects that are being written
  lock               shared by writers, exclusive to the garbage collector
  config.json        {"version": "0.1"}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from substrate.errors import NotFoundError, WorkspaceError
from substrate.packs.format import (
    PREFIX,
    Manifest,
    NotAManifestError,
    Pack,
    hex_of,
    is_hex,
    is_ref,
    read_manifest,
    short,
    stored_bytes,
)
from substrate.packs.store.object_files import Objects
from substrate.system.files import read_bytes_or_none, remove_tree, write_atomic
from substrate.system.sync import FileLock
from substrate.workspace import refuse_another_users, refuse_links, require_ctx

FORMAT = "0.1"
#: Maps the old ids of packs that lost content to the new ones: see `forget`.
FORGOTTEN = "forgotten"
_DIRECTORIES = ("objects", "packs", "refs", "refs/tags", "drafts", "tmp")
_LOCK_TIMEOUT_S = 60.0
#: A longer chain of replaced packs is a loop, which Substrate never writes.
_MOST_REPLACEMENTS = 1_000


class Store:
    """Packs and objects below one `.ctx` directory; any number of processes may have it open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.objects = Objects(directory / "objects", directory / "tmp")

    @property
    def packs_dir(self) -> Path:
        return self.directory / "packs"

    @property
    def refs_dir(self) -> Path:
        return self.directory / "refs"

    @property
    def drafts_dir(self) -> Path:
        return self.directory / "drafts"

    @property
    def scratch(self) -> Path:
        return self.directory / "tmp"

    def config(self) -> dict[str, object]:
        """The contents of ``config.json``; `open_store` has checked that it is an object."""
        found = json.loads(read_bytes_or_none(self.directory / "config.json") or b"{}")
        return found if isinstance(found, dict) else {}

    def new_scratch(self, purpose: str) -> Path:
        """A new private directory below `tmp`; `ctx gc` removes those of killed processes."""
        path = self.scratch / f"{purpose}-{os.getpid():x}-{os.urandom(8).hex()}"
        path.mkdir(mode=0o700)
        return path

    def remove_scratch(self, path: Path) -> None:
        remove_tree(path)

    @contextmanager
    def writing(self, purpose: str) -> Iterator[None]:
        """Use this around all writing of objects: it blocks garbage collection."""
        with self._locked(purpose, shared=True):
            yield

    @contextmanager
    def alone(self, purpose: str) -> Iterator[None]:
        """Exclude all other writers; for the garbage collector."""
        with self._locked(purpose, shared=False):
            yield

    def add(self, manifest: Manifest) -> Pack:
        """Store a manifest whose contents are stored, and list it as a pack. Call in `writing`."""
        stored = self.objects.write(stored_bytes(manifest))
        self.objects.sync()
        self.register(stored.ref)
        return Pack(stored.ref, manifest)

    def register(self, ref: str) -> None:
        """List a pack. Its objects must already be durable."""
        path = self.packs_dir / hex_of(ref)
        if read_bytes_or_none(path) is None:
            write_atomic(path, ref.encode(), mode=0o600)

    def packs(self) -> list[str]:
        """The refs of all listed packs, sorted."""
        try:
            names = os.listdir(self.packs_dir)
        except FileNotFoundError:
            return []
        return [PREFIX + name for name in sorted(names) if is_hex(name)]

    def load(self, ref: str) -> Pack:
        """The pack with exactly this address, its manifest verified.

        If the pack lost content to `substrate forget`, the pack that replaced it.
        """
        ref = self.present(ref)
        if ref not in self.objects:
            raise NotFoundError(
                f"no pack {short(ref)} in {self.directory}", hint="`ctx log` lists the packs"
            )
        try:
            return Pack(ref, read_manifest(self.objects.read(ref)))
        except NotAManifestError as error:
            raise NotFoundError(
                f"{short(ref)} is an object of this store but no pack: {error}",
                hint="`ctx log` lists the packs",
            ) from None

    def present(self, ref: str) -> str:
        """`ref`, or the address of the pack that replaced it when content was forgotten."""
        for _ in range(_MOST_REPLACEMENTS):
            if ref in self.objects:
                break
            raw = read_bytes_or_none(self.directory / FORGOTTEN / hex_of(ref))
            new = (raw or b"").decode("ascii", "replace").strip()
            if not is_ref(new):
                break
            ref = new
        return ref

    def replaced(self) -> list[str]:
        """Addresses of packs that were replaced because content was forgotten, sorted."""
        try:
            names = os.listdir(self.directory / FORGOTTEN)
        except FileNotFoundError:
            return []
        return [PREFIX + name for name in sorted(names) if is_hex(name)]

    @contextmanager
    def _locked(self, purpose: str, *, shared: bool) -> Iterator[None]:
        lock = FileLock(self.directory / "lock")
        lock.acquire(_LOCK_TIMEOUT_S, purpose, shared=shared)
        try:
            yield
        finally:
            lock.release()


def make_store(directory: Path) -> Store:
    """Complete an existing `.ctx`: create missing directories and the configuration."""
    for name in _DIRECTORIES:
        (directory / name).mkdir(mode=0o700, exist_ok=True)
    config = directory / "config.json"
    if not os.path.lexists(config):
        write_atomic(config, json.dumps({"version": FORMAT}, indent=2).encode() + b"\n")
    return open_store(directory)


def find_store(start: Path) -> Store:
    """The store at or above `start`; `NotFoundError` if there is none."""
    return open_store(require_ctx(start))


def open_store(directory: Path) -> Store:
    """The store in `directory`, if it is safe to write to.

    `make_store` completes a store of the original `ctx`, or one that only has a graph so far.
    """
    refuse_another_users(directory)
    refuse_links(directory, (*_DIRECTORIES, FORGOTTEN, "signatures"))
    _check_format(directory)
    if not all((directory / name).is_dir() for name in _DIRECTORIES):
        return make_store(directory)
    return Store(directory)


def _check_format(directory: Path) -> None:
    raw = read_bytes_or_none(directory / "config.json")
    if raw is None:
        return
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WorkspaceError(
            f"{directory / 'config.json'} is not a JSON object",
            hint='put {"version": "0.1"} into it',
        )
    version = found.get("version", FORMAT)
    if version != FORMAT:
        raise WorkspaceError(
            f"{directory} has format {version!r}; this program knows {FORMAT}",
            hint="use the newer program that made it",
        )
