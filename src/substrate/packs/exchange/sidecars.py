"""Sidecars: ``result.md.ctx.json`` beside ``result.md`` names the pack that produced it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.packs.format import PREFIX, Pack, is_ref
from substrate.packs.store import Store
from substrate.system.files import read_bytes_or_none, write_atomic

SUFFIX = ".ctx.json"


class Sidecar(NamedTuple):
    """The fields of a sidecar: see docs/packs.md."""

    context_pack: str
    inputs: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    confidence: str = ""
    notes: str = ""


class Written(NamedTuple):
    """What happened for one output: the sidecar's path, or why there is none."""

    output: str
    path: Path | None
    why_not: str = ""
    #: The file beside the sidecar differs from the recorded one.
    differs: bool = False


class BrokenSidecarError(ValueError):
    """There is a file, but it is not a sidecar: the message says why."""


def sidecar_path(artifact: Path) -> Path:
    return artifact.with_name(artifact.name + SUFFIX)


def sidecar_of(pack: Pack, confidence: str = "", notes: str = "") -> Sidecar:
    """The sidecar for any of the pack's outputs."""
    return Sidecar(
        pack.ref,
        tuple(item.content_ref for item in pack.manifest.inputs),
        tuple(dict.fromkeys(step.tool for step in pack.manifest.steps)),
        confidence,
        notes,
    )


def to_bytes(sidecar: Sidecar) -> bytes:
    fields: dict[str, object] = {
        "context_pack": sidecar.context_pack,
        "inputs": list(sidecar.inputs),
        "tools": list(sidecar.tools),
    }
    if sidecar.confidence:
        fields["confidence"] = sidecar.confidence
    if sidecar.notes:
        fields["notes"] = sidecar.notes
    return json.dumps(fields, indent=2, ensure_ascii=False).encode() + b"\n"


def read_sidecar(path: Path) -> Sidecar | None:
    """The sidecar at `path`; None if there is no file, `BrokenSidecarError` if it is not one."""
    try:
        raw = read_bytes_or_none(path)
    except OSError as error:
        raise BrokenSidecarError(f"it cannot be read: {error.strerror}") from None
    return None if raw is None else _parsed(raw)


def is_sidecar(name: str, content: Callable[[], bytes]) -> bool:
    """Whether a file of this name is a sidecar; `content` is called only if the name fits."""
    try:
        return name.endswith(SUFFIX) and bool(_parsed(content()))
    except BrokenSidecarError:
        return False


def _parsed(raw: bytes) -> Sidecar:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise BrokenSidecarError("it is not JSON") from None
    if not isinstance(found, dict) or not is_ref(found.get("context_pack")):
        raise BrokenSidecarError("it does not name a pack (context_pack: sha256:…)")
    return Sidecar(
        str(found["context_pack"]),
        _texts(found.get("inputs"), "inputs"),
        _texts(found.get("tools"), "tools"),
        _text(found.get("confidence"), "confidence"),
        _text(found.get("notes"), "notes"),
    )


def wants_sidecars(store: Store) -> bool:
    """Whether the configuration asks for sidecars of every recorded session's artifacts:
    ``{"sidecars": "sessions"}``.
    """
    return store.config().get("sidecars") == "sessions"


def write_sidecars(
    pack: Pack, sidecar: Sidecar, places: Sequence[Path], directory: Path | None
) -> list[Written]:
    """A sidecar for each output: under `directory`, or beside the file in the first of `places`
    that has it. Never overwrites a file that is not a sidecar.
    """
    written = []
    # The last of several outputs with one name is the final state.
    for name, recorded in {out.name: out.content_ref for out in pack.manifest.outputs}.items():
        if directory is not None:
            artifact = _below(directory, name)
            why = "its name leads out of the directory"
        else:
            artifact = _existing(places, name)
            why = "there is no such file here"
        if artifact is None:
            written.append(Written(name, None, why))
            continue
        one = _write(name, artifact, sidecar)
        differs = directory is None and one.path is not None and _ref_of(artifact) != recorded
        written.append(one._replace(differs=differs))
    return written


def _write(name: str, artifact: Path, sidecar: Sidecar) -> Written:
    path = sidecar_path(artifact)
    try:
        read_sidecar(path)
    except BrokenSidecarError as error:
        return Written(name, None, f"{path.name} is in the way and no sidecar: {error}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, to_bytes(sidecar), mode=0o644)
    return Written(name, path)


def _existing(places: Sequence[Path], name: str) -> Path | None:
    """The artifact, if it is an ordinary file in one of `places`, links resolved."""
    if "\0" in name:
        return None
    roots = [Path(os.path.realpath(place)) for place in places]
    for place in places:
        path = Path(os.path.abspath(place / name))
        inside = any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots)
        if inside and path.is_file() and not path.is_symlink():
            return path
    return None


def _ref_of(path: Path) -> str:
    with path.open("rb") as file:
        return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()


def _below(directory: Path, name: str) -> Path | None:
    parts = name.replace(os.sep, "/").split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        return None
    path = directory.joinpath(*parts)
    real = Path(os.path.realpath(path.parent))
    return path if real.is_relative_to(os.path.realpath(directory)) else None


def _texts(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BrokenSidecarError(f"{name} is not a list of texts")
    return tuple(value)


def _text(value: object, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise BrokenSidecarError(f"{name} is not a text")
    return value or ""
