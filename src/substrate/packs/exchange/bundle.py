"""Bundles: packs in one file. A tar archive, plain or gzipped, with this layout and no other.

    ctx-bundle.json              first: {"format": "ctx-bundle", "version": 1, "packs": [...]}
    objects/ab/cdef…             manifests and contents, sorted
    signatures/<hex>/<name>.sig

The same packs always give the same bytes: times, owners and modes are constants.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from substrate.errors import NotFoundError
from substrate.packs.exchange.signatures import signature_files
from substrate.packs.format import hex_of, short
from substrate.packs.store import MissingObjectError, Store, mentions, read_if_manifest
from substrate.system.files import fsync_dir

INDEX = "ctx-bundle.json"
FORMAT = "ctx-bundle"
VERSION = 1
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class Exported(NamedTuple):
    packs: tuple[str, ...]
    objects: int
    bytes: int


def export(store: Store, refs: Sequence[str], path: Path, *, parents: bool = True) -> Exported:
    """Write packs and the packs they were forked from to `path`. The file is complete or absent.

    Only its owner can read it: the output of a run may be private.

    Every object is verified while it is read; a damaged or missing object stops the export.
    """
    packs, objects = _closure(store, refs, parents)
    temporary = path.with_name(f".{path.name}.{os.getpid():x}-{os.urandom(4).hex()}")
    try:
        with open(os.open(temporary, _NEW, 0o600), "wb") as file:
            with _compressed(file, path) as out:
                _write(store, packs, sorted(objects), out)
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        os.replace(temporary, path)
    except FileNotFoundError:
        raise NotFoundError(f"there is no directory {path.parent}", hint="make it first") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    fsync_dir(path.parent)
    return Exported(tuple(packs), len(objects), size)


def _closure(store: Store, refs: Iterable[str], parents: bool) -> tuple[list[str], set[str]]:
    """The packs, oldest ancestor last, and every object they need or mention."""
    packs: dict[str, None] = {}
    objects: set[str] = set()
    waiting = list(refs)
    while waiting:
        ref = waiting.pop(0)
        if ref in packs:
            continue
        manifest = store.load(ref).manifest
        packs[ref] = None
        objects.add(ref)
        for content in manifest.contents():
            if content.ref not in store.objects:
                raise MissingObjectError(
                    f"pack {short(ref)} is not whole: {content.place} is missing",
                    hint="`ctx fsck` lists what else is",
                )
            objects.add(content.ref)
        found = read_if_manifest(store, ref)
        extra = mentions(found[1]) if found else iter(())
        objects.update(r for r in extra if r != manifest.parent and r in store.objects)
        if parents and manifest.parent and manifest.parent in store.objects:
            waiting.append(manifest.parent)
    return list(packs), objects


def _write(store: Store, packs: Sequence[str], objects: Sequence[str], out: IO[bytes]) -> None:
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        index = {"format": FORMAT, "version": VERSION, "packs": list(packs)}
        _member(archive, INDEX, json.dumps(index, indent=2).encode() + b"\n")
        for ref in objects:
            digits = hex_of(ref)
            info = _info(f"objects/{digits[:2]}/{digits[2:]}", store.objects.size(ref))
            archive.addfile(info, _Reader(store.objects.chunks(ref)))
        for ref in packs:
            for path in signature_files(store, ref):
                _member(archive, f"signatures/{hex_of(ref)}/{path.name}", path.read_bytes())


def _member(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_info(name, len(data)), io.BytesIO(data))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o444
    return info


@contextlib.contextmanager
def _compressed(file: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    if path.name.endswith((".gz", ".tgz")):
        # Without name and time in the header, the same packs give the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    else:
        yield file


class _Reader(io.RawIOBase):
    """Chunks as a file that tarfile can read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size or size < 0:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        cut = len(self._rest) if size < 0 else size
        out, self._rest = self._rest[:cut], self._rest[cut:]
        return out
