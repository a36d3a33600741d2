"""Signatures on packs: OpenSSH's own format, made and checked by `ssh-keygen -Y`.

A signature covers the manifest's stored bytes, so that it can be checked without Substrate:

    ssh-keygen -Y verify -f allowed_signers -I ada@example.org -n ctx-pack \\
        -s .ctx/signatures/<hex>/<name>.sig < .ctx/objects/ab/cdef…
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError, UsageError
from substrate.packs.format import hex_of, short
from substrate.packs.store import Store
from substrate.system.files import write_atomic
from substrate.system.process import process

NAMESPACE = "ctx-pack"
_MAX_SIGNATURE = 1 << 16
_TIMEOUT_S = 60.0


class Checked(NamedTuple):
    """One signature, and the result of checking it."""

    path: Path
    #: The signer according to the list of allowed signers; "" if none of them signed it.
    principal: str
    valid: bool
    reason: str


def signatures_dir(store: Store, ref: str) -> Path:
    return store.directory / "signatures" / hex_of(ref)


def signature_files(store: Store, ref: str) -> list[Path]:
    try:
        names = sorted(os.listdir(signatures_dir(store, ref)))
    except FileNotFoundError:
        return []
    return [signatures_dir(store, ref) / name for name in names if name.endswith(".sig")]


def sign(store: Store, ref: str, key: Path) -> Path:
    """Sign a pack with an SSH key (private, or public with its private half in ssh-agent)."""
    if not key.is_file():
        raise NotFoundError(f"there is no key {key}", hint="ssh-keygen -t ed25519 makes one")
    data = store.objects.read(ref)
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE]
    done = process.run(argv, input=data, timeout_s=_TIMEOUT_S)
    if done.returncode != 0 or b"BEGIN SSH SIGNATURE" not in done.stdout:
        raise RefusedError(
            f"ssh-keygen did not sign: {_last_line(done.stderr)}",
            hint="check the key; one with a passphrase must be in ssh-agent",
        )
    return add_signature(store, ref, done.stdout)


def add_signature(store: Store, ref: str, signature: bytes) -> Path:
    """Store a signature beside the others, without checking it."""
    if len(signature) > _MAX_SIGNATURE:
        raise UsageError("a signature of more than 64 KiB", hint="it is none of ssh-keygen's")
    directory = signatures_dir(store, ref)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{hashlib.sha256(signature).hexdigest()[:16]}.sig"
    write_atomic(path, signature)
    return path


def check(store: Store, ref: str, allowed: Path, identity: str | None = None) -> list[Checked]:
    """Every signature of a pack against a file of allowed signers (see ssh-keygen(1))."""
    if not allowed.is_file():
        raise NotFoundError(
            f"there is no file {allowed}",
            hint="a line of it: ada@example.org ssh-ed25519 AAAA… (see ssh-keygen(1))",
        )
    data = store.objects.read(ref)
    return [_check(path, data, allowed, identity) for path in signature_files(store, ref)]


def _check(path: Path, data: bytes, allowed: Path, identity: str | None) -> Checked:
    base = ["ssh-keygen", "-Y"]
    found = process.run(
        [*base, "find-principals", "-s", str(path), "-f", str(allowed)], timeout_s=_TIMEOUT_S
    )
    principals = found.stdout.decode("utf-8", "replace").split("\n")[0].split(",")
    principal = next((name for name in principals if identity in (None, name)), "")
    if found.returncode != 0 or not principal:
        who = f"by {identity}" if identity else "by anybody on the list"
        return Checked(path, "", False, f"not {who}")
    done = process.run(
        [*base, "verify", "-f", str(allowed), "-I", principal, "-n", NAMESPACE, "-s", str(path)],
        input=data,
        timeout_s=_TIMEOUT_S,
    )
    if done.returncode != 0:
        said = _last_line(done.stderr) or _last_line(done.stdout)
        return Checked(path, principal, False, f"{principal}'s, but not of this pack: {said}")
    return Checked(
        path, principal, True, f"{principal} signed pack {short('sha256:' + path.parent.name)}"
    )


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
