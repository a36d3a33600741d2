"""Names for packs: tags, `latest`, prefixes of hashes, `ctx://` addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from substrate.errors import AmbiguousError, NotFoundError, UsageError
from substrate.packs.format import PREFIX, URI, Pack, hex_of, is_ref, short
from substrate.packs.store.ctx_store import Store
from substrate.system.files import TEMPORARY, fsync_dir, read_bytes_or_none, write_atomic

LATEST = "latest"
#: Fewer digits than this are too ambiguous.
SHORTEST_PREFIX = 4
_DIGITS = re.compile(r"[0-9a-fA-F]{4,64}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*(?:/[A-Za-z0-9_][A-Za-z0-9._+-]*)*\Z")
_MAX_NAME = 200


def resolve(store: Store, text: str) -> str:
    """The address that a reference names: a hash or a unique prefix, with or without
    ``sha256:`` or ``ctx://``, a tag, or `latest`.
    """
    digits = text
    for prefix in (URI, PREFIX):
        digits = digits.removeprefix(prefix)
    if digits == text and not _DIGITS.match(text):
        return _named(store, text)
    if not _DIGITS.match(digits):
        raise UsageError(
            f"not a pack's hash: {text}",
            hint=f"at least {SHORTEST_PREFIX} and at most 64 digits of 0-9 and a-f",
        )
    return _by_digits(store, digits.lower())


def load(store: Store, text: str) -> Pack:
    """The pack that a reference names."""
    return store.load(resolve(store, text))


def load_or_damaged(store: Store, text: str) -> str:
    """The address of a listed pack, even if its manifest can no longer be read."""
    ref = resolve(store, text)
    if ref not in store.packs():
        raise NotFoundError(f"no pack {short(ref)} is listed", hint="`ctx log` lists the packs")
    return ref


def set_latest(store: Store, ref: str) -> None:
    _write(store.refs_dir / LATEST, ref)


def latest(store: Store) -> str | None:
    return _read(store.refs_dir / LATEST)


def set_tag(store: Store, name: str, ref: str) -> str | None:
    """Give a pack a name; returns the previous address of the name, if any."""
    path = _tag_path(store, check_name(name))
    before = _read(path)
    try:
        for directory in reversed(path.relative_to(store.refs_dir).parents):
            if os.path.islink(store.refs_dir / directory):  # it may lead out of the store
                raise NotADirectoryError
            (store.refs_dir / directory).mkdir(mode=0o700, exist_ok=True)
        _write(path, ref)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise UsageError(
            f"another tag is in the way of {name}",
            hint="a tag cannot be both a name and the beginning of names: a and a/b",
        ) from None
    return before


def delete_tag(store: Store, name: str) -> str:
    """Remove a name; returns the address that it had."""
    path = _tag_path(store, check_name(name))
    before = _read(path)
    if before is None:
        raise _no_tag(store, name)
    os.unlink(path)
    fsync_dir(path.parent)
    return before


def tags(store: Store) -> dict[str, str]:
    """Every tag and its pack's address, sorted by name."""
    top = store.refs_dir / "tags"
    found = {}
    for path in _files(top):
        ref = _read(path)
        if ref is not None:
            found[path.relative_to(top).as_posix()] = ref
    return dict(sorted(found.items()))


def files(store: Store) -> Iterator[tuple[str, Path]]:
    """Every file in the place of a ref, valid or not: `latest`, ``tags/v1``."""
    for path in sorted(_files(store.refs_dir)):
        yield path.relative_to(store.refs_dir).as_posix(), path


def check_name(name: str) -> str:
    """`name`, if it is valid for a tag."""
    if not _NAME.match(name) or len(name) > _MAX_NAME or name.endswith(".lock"):
        raise UsageError(
            f"not a name for a tag: {name}",
            hint="letters, digits and . _ + - in parts separated by /, such as v1.2 or team/fix",
        )
    if name == LATEST:
        raise UsageError("latest always names the newest pack", hint="choose another name")
    if _DIGITS.match(name):
        raise UsageError(
            f"{name} could be taken for the beginning of a hash",
            hint="choose a name with a letter after f in it, or a dash",
        )
    return name


def _named(store: Store, name: str) -> str:
    path = store.refs_dir / LATEST if name == LATEST else _tag_path(store, name)
    found = _read(path) if name == LATEST or _NAME.match(name) else None
    if found is None:
        if name == LATEST:
            raise NotFoundError("there is no pack yet", hint="make one: ctx pack LOG")
        raise _no_tag(store, name)
    return found


def _no_tag(store: Store, name: str) -> NotFoundError:
    known = ", ".join(list(tags(store))[:8])
    hint = f"the tags here: {known}" if known else "`ctx log` lists the packs, `ctx tag` names one"
    if 0 < len(name) < 4 and set(name) <= set("0123456789abcdef"):
        hint = f"of a pack's hash give four digits or more; {hint}"
    return NotFoundError(f"no tag and no pack is called {name}", hint=hint)


def _by_digits(store: Store, digits: str) -> str:
    if len(digits) == 64:
        return store.present(PREFIX + digits)
    listed = dict.fromkeys([*store.packs(), *store.replaced()])
    found = [ref for ref in listed if hex_of(ref).startswith(digits)]
    if len(found) == 1:
        return store.present(found[0])
    if not found:
        raise NotFoundError(
            f"no pack's hash begins with {digits}", hint="`ctx log` lists the packs"
        )
    shown = ", ".join(short(ref) for ref in found[:8]) + (", …" if len(found) > 8 else "")
    raise AmbiguousError(
        f"{len(found)} packs' hashes begin with {digits}: {shown}", hint="give more digits"
    )


def _tag_path(store: Store, name: str) -> Path:
    return store.refs_dir / "tags" / Path(*name.split("/"))


def _files(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            elif not entry.name.startswith(TEMPORARY):
                yield Path(entry.path)


def _read(path: Path) -> str | None:
    try:
        raw = read_bytes_or_none(path)
    except OSError:  # a directory, a FIFO, a link to a device: not our ref
        return None
    text = (raw or b"").decode("ascii", "replace").strip()
    return text if is_ref(text) else None


def _write(path: Path, ref: str) -> None:
    write_atomic(path, ref.encode() + b"\n")
