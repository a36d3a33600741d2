"""Verify that an artifact's bytes are what a pack recorded, and that its sidecar is correct."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal, NamedTuple

from substrate.errors import DamagedStoreError, NotFoundError, UsageError
from substrate.packs.exchange.sidecars import (
    SUFFIX,
    BrokenSidecarError,
    Sidecar,
    read_sidecar,
    sidecar_of,
    sidecar_path,
)
from substrate.packs.format import PREFIX, Manifest, Output, Pack, short
from substrate.packs.store import CHUNK, Store, open_regular

Status = Literal[
    "verified",
    "modified",  # the bytes differ from the recorded ones
    "sidecar_missing",
    "sidecar_broken",  # not JSON, or not the fields of a sidecar
    "sidecar_forged",  # it contradicts the pack it names
    "sidecar_mismatched",  # the pack it names has no such output
    "pack_missing",
    "pack_damaged",
]

#: The longest chain of forks. Hashes cannot form a cycle; this only bounds very long chains.
_MAX_LINEAGE = 1000


class Artifact(NamedTuple):
    path: Path
    ref: str
    size: int
    #: The git blob id of the same bytes, which recorded history uses.
    blob_oid: bytes


class Ancestor(NamedTuple):
    ref: str
    state: Literal["sound", "missing", "damaged"]


class Verdict(NamedTuple):
    status: Status
    #: One sentence for people.
    reason: str
    artifact: Artifact
    sidecar: Sidecar | None = None
    pack: Pack | None = None
    output: Output | None = None
    lineage: tuple[Ancestor, ...] = ()

    @property
    def verified(self) -> bool:
        return self.status == "verified"


def verify(store: Store, path: Path, wanted: Pack | None = None) -> Verdict:
    """Check the artifact at `path` by its sidecar; or by `wanted`, whatever its sidecar says."""
    artifact = read_artifact(path)
    if wanted is not None:
        return _by_pack(store, artifact, None, wanted)
    beside = sidecar_path(path)
    try:
        sidecar = read_sidecar(beside)
    except BrokenSidecarError as error:
        return Verdict("sidecar_broken", f"{beside.name} is broken: {error}", artifact)
    if sidecar is None:
        said = f"there is no {beside.name}, so nothing says which pack it came from"
        return Verdict("sidecar_missing", said, artifact)
    try:
        pack = store.load(sidecar.context_pack)
    except NotFoundError:
        said = f"the sidecar names pack {short(sidecar.context_pack)}, which is not in this store"
        return Verdict("pack_missing", said, artifact, sidecar)
    except DamagedStoreError as error:
        said = f"the manifest of pack {short(sidecar.context_pack)} is damaged: {error.message}"
        return Verdict("pack_damaged", said, artifact, sidecar)
    return _by_pack(store, artifact, sidecar, pack)


def read_artifact(path: Path) -> Artifact:
    """The address of a file's bytes, read once, in chunks."""
    if path.name.endswith(SUFFIX):
        raise UsageError(
            f"{path.name} is a sidecar, not an artifact",
            hint=f"ctx verify {path.name.removesuffix(SUFFIX)}",
        )
    try:
        fd = open_regular(Path(os.path.realpath(path)))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {path}", hint="name the artifact") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be verified: {error.strerror}", hint="name an ordinary file"
        ) from None
    with os.fdopen(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        digest, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        count = 0
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            blob.update(chunk)
            count += len(chunk)
    return Artifact(path, PREFIX + digest.hexdigest(), count, blob.digest())


def _by_pack(store: Store, artifact: Artifact, sidecar: Sidecar | None, pack: Pack) -> Verdict:
    lineage = _lineage(store, pack.manifest)
    output = _output_of(pack.manifest, artifact.path)
    if output is None:
        there = ", ".join(found.name for found in pack.manifest.outputs[:8]) or "none"
        said = f"pack {short(pack.ref)} has no output of that name (it has: {there})"
        return Verdict("sidecar_mismatched", said, artifact, sidecar, pack, None, lineage)
    lie = _lie(sidecar, pack)
    if lie:
        said = f"the sidecar is forged: {lie}"
        return Verdict("sidecar_forged", said, artifact, sidecar, pack, output, lineage)
    if artifact.ref != output.content_ref:
        said = (
            f"its bytes are not the recorded output's: {short(artifact.ref)},"
            f" not {short(output.content_ref)}"
        )
        return Verdict("modified", said, artifact, sidecar, pack, output, lineage)
    said = f"its bytes are output {output.name} of pack {short(pack.ref)}"
    return Verdict("verified", said, artifact, sidecar, pack, output, lineage)


def _output_of(manifest: Manifest, path: Path) -> Output | None:
    """The output that belongs to the artifact: the longest name that its path ends with.

    An artifact may have been copied elsewhere, so its base name alone is enough; but of `a/x` and
    `b/x` the better match wins. The last of several outputs with one name is the final state.
    """
    whole = Path(os.path.realpath(path.parent), path.name)
    best: Output | None = None
    best_parts = 0
    for output in manifest.outputs:
        parts = Path(output.name).parts
        if not parts or parts[-1] != path.name:
            continue
        if Path(output.name).is_absolute():
            matching = len(parts) if Path(output.name) == whole else 1
        else:
            matching = _common_end(parts, whole.parts)
        if matching >= best_parts:
            best, best_parts = output, matching
    return best


def _common_end(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    count = 0
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if x != y:
            break
        count += 1
    return count


def _lie(sidecar: Sidecar | None, pack: Pack) -> str:
    """How the sidecar contradicts the pack it names; "" if it does not."""
    if sidecar is None:
        return ""
    truth = sidecar_of(pack)
    for name, told, true in (
        ("inputs", sidecar.inputs, truth.inputs),
        ("tools", sidecar.tools, truth.tools),
    ):
        # The original `ctx` lists tools in no particular order.
        if sorted(told) != sorted(true):
            return f"its {name} are not those of the pack"
    return ""


def _lineage(store: Store, manifest: Manifest) -> tuple[Ancestor, ...]:
    found: list[Ancestor] = []
    parent = manifest.parent
    while parent and len(found) < _MAX_LINEAGE:
        try:
            above = store.load(parent)
        except NotFoundError:
            found.append(Ancestor(parent, "missing"))
            break
        except DamagedStoreError:
            found.append(Ancestor(parent, "damaged"))
            break
        found.append(Ancestor(parent, "sound"))
        parent = above.manifest.parent
    return tuple(found)
