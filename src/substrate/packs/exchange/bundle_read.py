"""Import a bundle: check all of it before any of it is used.

The archive is read by hand. A general reader accepts links, long names and extended headers of any
size; here every member must be a plain file with one of three names, or the bundle is refused.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from substrate.errors import NotFoundError, RefusedError, UsageError
from substrate.packs.exchange.bundle import FORMAT, INDEX, VERSION
from substrate.packs.exchange.signatures import add_signature
from substrate.packs.format import PREFIX, Manifest, NotAManifestError, is_ref, read_manifest, short
from substrate.packs.store import CHUNK, Objects, Store, Stored, latest, set_latest

#: Bounds on what a bundle may unpack to; `--max-size` raises the first.
MAX_BYTES = 16 << 30
_MAX_MEMBERS = 2_000_000
_MAX_INDEX = 16 << 20
_MAX_SIGNATURE = 1 << 16
#: Signatures and each manifest are kept in memory, and a small file may unpack to a huge one.
_MAX_SIGNATURES = 1 << 24
_MAX_MANIFEST = 1 << 30
_BLOCK = 512

_OBJECT = re.compile(r"objects/([0-9a-f]{2})/([0-9a-f]{62})\Z")
_SIGNATURE = re.compile(r"signatures/([0-9a-f]{64})/[0-9a-f]{1,64}\.sig\Z")


class Imported(NamedTuple):
    packs: tuple[str, ...]
    objects: int
    bytes: int
    signatures: int


class _Member(NamedTuple):
    name: str
    size: int


def import_bundle(store: Store, path: Path, max_bytes: int = MAX_BYTES) -> Imported:
    """Import every pack of a bundle, or none: `RefusedError` says what is wrong with it."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="name the bundle") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory", hint="name the bundle in it") from None
    with opened as file, store.writing("importing a bundle"):
        staged = _Staged(store, max_bytes)
        try:
            with _uncompressed(file) as source:
                staged.read(source)
            staged.check_packs()
        except _BadBundleError as error:
            staged.discard()
            raise RefusedError(
                f"{path.name} was not imported: {error}", hint="nothing was changed"
            ) from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            staged.discard()
            raise RefusedError(
                f"{path.name} was not imported: it is cut off or damaged",
                hint="nothing was changed; copy it again",
            ) from None
        except BaseException:
            staged.discard()
            raise
        return staged.publish()


class _BadBundleError(ValueError):
    pass


class _Staged:
    """A bundle's objects in a separate directory, until the whole bundle is verified."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._scratch = store.new_scratch("import")
        self._objects = Objects(self._scratch / "objects", self._scratch)
        self._scratch.joinpath("objects").mkdir()
        self._left = max_bytes
        self._packs: list[str] = []
        self._signatures: list[tuple[str, bytes]] = []
        self._signed = 0
        self._stored: dict[str, Stored] = {}

    def read(self, source: IO[bytes]) -> None:
        for count, member in enumerate(_members(source)):
            if count > _MAX_MEMBERS:
                raise _BadBundleError(f"it has more than {_MAX_MEMBERS:,} members")
            self._left -= member.size
            if self._left < 0:
                raise _BadBundleError("it unpacks to more than the limit (--max-size)")
            if count == 0:
                self._read_index(member, source)
            elif match := _OBJECT.match(member.name):
                self._read_object(PREFIX + match[1] + match[2], member, source)
            elif match := _SIGNATURE.match(member.name):
                if member.size > _MAX_SIGNATURE:
                    raise _BadBundleError(f"{member.name} is too large for a signature")
                data = b"".join(_body(source, member.size))
                self._signed += len(data)
                if self._signed > _MAX_SIGNATURES:
                    raise _BadBundleError("it has too many signatures")
                self._signatures.append((PREFIX + match[1], data))
            else:
                raise _BadBundleError(f"a bundle holds no {member.name[:120]!r}")
        if not self._packs:
            raise _BadBundleError("it is empty")

    def _read_index(self, member: _Member, source: IO[bytes]) -> None:
        if member.name != INDEX or member.size > _MAX_INDEX:
            raise _BadBundleError(f"it does not begin with {INDEX}; it is no bundle of ctx's")
        try:
            index = json.loads(b"".join(_body(source, member.size)))
        except (ValueError, RecursionError):
            raise _BadBundleError(f"{INDEX} is not JSON") from None
        if not isinstance(index, dict) or index.get("format") != FORMAT:
            raise _BadBundleError(f"{INDEX} is not the index of a bundle")
        if index.get("version") != VERSION:
            raise _BadBundleError(f"its version is {index.get('version')!r}, not {VERSION}")
        packs = index.get("packs")
        if not isinstance(packs, list) or not packs or not all(map(is_ref, packs)):
            raise _BadBundleError(f"{INDEX} lists no packs")
        self._packs = list(dict.fromkeys(packs))

    def _read_object(self, ref: str, member: _Member, source: IO[bytes]) -> None:
        if ref in self._stored:
            raise _BadBundleError(f"object {short(ref)} is in it twice")
        try:
            stored = self._objects.write_chunks(_body(source, member.size), expected=ref)
        except ValueError as error:
            if isinstance(error, _BadBundleError):
                raise
            raise _BadBundleError(
                f"object {short(ref)} is not what its name says: {error}"
            ) from None
        self._stored[ref] = stored

    def check_packs(self) -> None:
        """Every listed pack must be a manifest with all of its contents."""
        for ref in self._packs:
            for content in self._manifest(ref).contents():
                if content.ref not in self._stored and content.ref not in self._store.objects:
                    raise _BadBundleError(
                        f"pack {short(ref)} is not whole: {content.place} is missing"
                    )
        for ref, _ in self._signatures:
            if ref not in self._packs:
                raise _BadBundleError(f"it has a signature of {short(ref)}, but not the pack")

    def _manifest(self, ref: str) -> Manifest:
        if ref not in self._stored:
            raise _BadBundleError(f"pack {short(ref)} is listed, but not in it")
        if self._stored[ref].size > _MAX_MANIFEST:
            raise _BadBundleError(f"pack {short(ref)} is too large for a manifest")
        try:
            return read_manifest(self._objects.read(ref))
        except NotAManifestError as error:
            raise _BadBundleError(f"pack {short(ref)}: {error}") from None

    def publish(self) -> Imported:
        for ref, stored in self._stored.items():
            self._store.objects.adopt(self._objects.path(ref), stored)
        self._store.objects.sync()
        for ref, signature in self._signatures:
            add_signature(self._store, ref, signature)
        for ref in self._packs:
            self._store.register(ref)
        if latest(self._store) is None:  # no pack was made here: the imported one is the newest
            set_latest(self._store, self._packs[0])
        self.discard()
        size = sum(stored.size for stored in self._stored.values())
        return Imported(tuple(self._packs), len(self._stored), size, len(self._signatures))

    def discard(self) -> None:
        self._store.remove_scratch(self._scratch)


def _uncompressed(file: IO[bytes]) -> IO[bytes]:
    magic = file.read(2)
    file.seek(0)
    return gzip.GzipFile(fileobj=file, mode="rb") if magic == b"\x1f\x8b" else file  # type: ignore[return-value]


def _members(source: IO[bytes]) -> Iterator[_Member]:
    """The headers of a tar archive; the caller must read each body with `_body`."""
    while True:
        block = _exactly(source, _BLOCK)
        if block == bytes(_BLOCK):
            return
        checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
        if _number(block[148:156]) != checksum:
            raise _BadBundleError("it is not a tar archive, or damaged")
        kind, name = block[156:157], block[:100].rstrip(b"\0")
        if kind not in (b"0", b"\0") or block[345:500].strip(b"\0"):
            raise _BadBundleError(f"{_shown(name)} is not a plain file")
        try:
            text = name.decode("ascii")
        except UnicodeDecodeError:
            raise _BadBundleError(f"a bundle holds no {_shown(name)}") from None
        yield _Member(text, _number(block[124:136]))


def _body(source: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left:
        chunk = _exactly(source, min(left, CHUNK))
        left -= len(chunk)
        yield chunk
    _exactly(source, -size % _BLOCK)


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    while len(data) < size:
        more = source.read(size - len(data))
        if not more:
            raise _BadBundleError("it is cut off")
        data += more
    return data


def _number(field: bytes) -> int:
    if field[0] & 0x80:  # GNU's encoding of sizes of 8 GiB and more
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    text = field.strip(b"\0 ")
    if not text or text.strip(b"01234567"):
        raise _BadBundleError("it is not a tar archive, or damaged")
    return int(text, 8)


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "replace")[:120])
