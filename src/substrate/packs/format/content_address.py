"""Content addresses as packs write them: ``sha256:<64 hex digits>``."""

from __future__ import annotations

import hashlib
import re

PREFIX = "sha256:"
URI = "ctx://"
#: How many digits to show people; unique in any realistic store.
SHOWN = 12

_REF = re.compile(r"sha256:[0-9a-f]{64}\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")


def ref_of(data: bytes) -> str:
    return PREFIX + hashlib.sha256(data).hexdigest()


def is_ref(text: object) -> bool:
    return isinstance(text, str) and _REF.match(text) is not None


def is_hex(text: str) -> bool:
    """Whether `text` is the digits of a whole hash."""
    return _HEX.match(text) is not None


def hex_of(ref: str) -> str:
    """The digits of a ref; a ``ValueError`` for anything else."""
    if not is_ref(ref):
        raise ValueError(f"not a content address: {ref!r}")
    return ref[len(PREFIX) :]


def uri_of(ref: str) -> str:
    return URI + hex_of(ref)


def short(ref: str) -> str:
    """The first digits, for people; anything but a ref stays unchanged."""
    return ref[len(PREFIX) :][:SHOWN] if is_ref(ref) else ref
