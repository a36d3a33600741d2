"""Refs: names for commits, in the files where plain git expects them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from substrate.errors import DamagedStoreError, RefusedError, UsageError
from substrate.system.files import fsync_dir, make_directory, read_bytes_or_none, write_atomic

_SYMREF_DEPTH = 5
_HINT = "run `substrate fsck` to see what is affected, `substrate fsck --repair` to mend it"
# What a name may not contain, according to git-check-ref-format(1).
_BAD_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|\Z)|[./]\Z|\A[./]")
_OID = re.compile(rb"[0-9a-f]{40}\s*\Z")
_LONGEST_REF = 4096
_TEXT_ID = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
#: Everything that the file of a ref can contain.
_TEXT = re.compile(r"ref:\s*refs/.*|[0-9a-f]{40}([0-9a-f]{24})?")
TEMP_PREFIX = "tmp-substrate-ref-"


def is_ref_name(name: str) -> bool:
    """Whether it is a full ref name that git accepts."""
    pseudo = re.fullmatch(r"[A-Z][A-Z_]*", name)
    return bool(pseudo) or (name.startswith("refs/") and not _BAD_NAME.search(name))


def check_ref_name(name: str) -> None:
    """`UsageError` unless `name` is a full ref name that git accepts."""
    if not is_ref_name(name):
        raise UsageError(f"not a valid ref name: {name!r}", hint="use letters, digits, - and _")


def read_ref(git_dir: Path, name: str) -> bytes | None:
    """The id of the ref `name`, symbolic refs followed; None if there is no such ref."""
    check_ref_name(name)
    for _ in range(_SYMREF_DEPTH):
        content = _read_loose_ref(git_dir / name)
        if content is None:
            return _read_packed(git_dir).get(name)
        if not content.startswith(b"ref:"):
            return _parse_oid(name, content)
        name = os.fsdecode(content[len(b"ref:") :].strip())
        check_ref_name(name)
    raise DamagedStoreError(f"the ref {name} leads in a circle", hint=_HINT)


def _read_loose_ref(path: Path) -> bytes | None:
    try:
        return read_bytes_or_none(path)
    except IsADirectoryError:
        return None
    except OSError as error:
        raise DamagedStoreError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from error


def _parse_oid(name: str, content: bytes) -> bytes:
    if not _OID.match(content):
        raise DamagedStoreError(f"the ref {name} does not hold an object id", hint=_HINT)
    return bytes.fromhex(content[:40].decode("ascii"))


def _read_packed(git_dir: Path) -> dict[str, bytes]:
    content = _read_loose_ref(git_dir / "packed-refs")
    refs: dict[str, bytes] = {}
    for line in (content or b"").splitlines():
        if line[:1] in (b"#", b"^") or not line:
            continue
        oid, space, name = line.partition(b" ")
        if not space:
            raise DamagedStoreError("the file packed-refs is malformed", hint=_HINT)
        refs[os.fsdecode(name)] = _parse_oid("packed-refs", oid)
    return refs


def write_ref(git_dir: Path, name: str, oid: bytes, *, durable: bool = False) -> None:
    """Point the ref `name` to `oid`; readers see the old id or the new one.

    Synced only with `durable`: after a crash, history's own log has the right values of refs.
    """
    check_ref_name(name)
    path = git_dir / name
    # Not beside the ref: git would treat a leftover file as another ref.
    temp = git_dir / (TEMP_PREFIX + os.urandom(8).hex())
    temp.write_bytes(oid.hex().encode() + b"\n")
    try:
        if durable:
            _sync_file(temp)
        _move_into_place(temp, path, name)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    if durable:
        fsync_dir(path.parent)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _move_into_place(temp: Path, path: Path, name: str) -> None:
    for _ in range(3):
        try:
            os.replace(temp, path)
            return
        except FileNotFoundError:
            _make_directories(temp.parent, path.parent, name)
        except (IsADirectoryError, PermissionError, NotADirectoryError):
            if not path.is_dir():
                raise _in_the_way(name) from None
            _remove_empty(path, name)
    os.replace(temp, path)


def _make_directories(git_dir: Path, path: Path, name: str) -> None:
    """Make the directories above the ref, but never the repository: it may have been moved."""
    above = [one for one in (path, *path.parents) if one.is_relative_to(git_dir)][:-1]
    try:
        for directory in reversed(above):
            make_directory(directory)
    except NotADirectoryError:
        raise _in_the_way(name) from None


def _remove_empty(path: Path, name: str) -> None:
    """Remove empty directories of deleted refs at the path of a new ref."""
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            raise _in_the_way(name) from None


def _in_the_way(name: str) -> RefusedError:
    return RefusedError(
        f"the ref {name} cannot be written: another ref's name is part of its name, or the reverse",
        hint="choose another name",
    )


def delete_ref(git_dir: Path, name: str) -> bool:
    """Delete the ref; returns whether it existed."""
    check_ref_name(name)
    # First from packed-refs, so that its older value never becomes visible.
    packed = _read_packed(git_dir)
    found = packed.pop(name, None) is not None
    if found:
        _write_packed(git_dir, packed)
    path = git_dir / name
    try:
        path.unlink()
        found = True
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        if path.is_file():
            raise
    for directory in path.parents:
        if directory.parent in (git_dir / "refs", git_dir) or directory == git_dir:
            break
        try:
            directory.rmdir()
        except OSError:
            break
    return found


def _write_packed(git_dir: Path, refs: dict[str, bytes]) -> None:
    # Without the peeled values: the missing header line says so to git.
    rows = sorted((os.fsencode(name), oid.hex().encode()) for name, oid in refs.items())
    write_atomic(git_dir / "packed-refs", b"".join(b"%s %s\n" % (oid, name) for name, oid in rows))


def list_refs(git_dir: Path, prefix: str = "refs/") -> dict[str, bytes]:
    """Every ref whose full name starts with `prefix`, sorted by name."""
    refs = {name: oid for name, oid in _read_packed(git_dir).items() if name.startswith(prefix)}
    top = git_dir / prefix.rpartition("/")[0]
    for directory, _, names in os.walk(top):
        for leaf in names:
            path = Path(directory, leaf)
            name = path.relative_to(git_dir).as_posix()
            if not name.startswith(prefix) or _BAD_NAME.search(name):
                continue  # a lock, or a leftover of a file manager
            oid = read_ref(git_dir, name)
            if oid is not None:
                refs[name] = oid
    return dict(sorted(refs.items()))


def loose_texts(git_dir: Path) -> dict[str, str]:
    """The text of each loose ref's file, neither checked nor followed: an id, ``ref: …``.

    Cheap enough to call often: it does not read the packed refs, which may be thousands.
    """
    found: dict[str, str] = {}
    top = os.fspath(git_dir)
    # Do not follow a link: it may lead to the whole file system.
    pending = [] if os.path.islink(f"{top}/refs") else ["refs"]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(f"{top}/{below}") as entries:
                for entry in entries:
                    name = f"{below}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name)
                    elif not _BAD_NAME.search(name):
                        found[name] = text_in(entry.path)
        except OSError:
            continue
    return found


def text_in(path: str) -> str:
    """The text of one ref's file, or of HEAD: an id or ``ref: …``; "" for anything else.

    Commands can create such a file and are shown its text. So neither a link to a file that they
    may not read, nor any other content, is returned.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        fd = os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return _text_of_link(path)
    try:
        content = os.read(fd, _LONGEST_REF) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return ""
    finally:
        os.close(fd)
    text = content.decode("utf-8", "replace").strip()
    return text if _TEXT.fullmatch(text) else ""


def _text_of_link(path: str) -> str:
    """Old versions of git wrote ``ref: …`` as a symbolic link, and git still reads it."""
    try:
        target = os.readlink(path)
    except OSError:
        return ""
    return f"ref: {target}" if is_ref_name(target) else ""


def packed_texts(content: bytes) -> dict[str, str]:
    """The refs in a ``packed-refs`` file; other lines are skipped."""
    found = {}
    for line in content.splitlines():
        if line[:1] not in (b"#", b"^"):
            oid, _, name = line.partition(b" ")
            if name and _TEXT_ID.fullmatch(oid):
                found[os.fsdecode(name)] = oid.decode("ascii")
    return found
