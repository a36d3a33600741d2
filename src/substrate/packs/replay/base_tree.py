"""The tree a replay starts from: a pack's inputs as files under their names.

An extra input, `BASE_NAME`, records what names and bytes cannot express: the tree's original
location, modes other than 0644, links, empty directories, names that are not text. Packs made from
a plain log have no such record; their tree is the inputs alone.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.model import RelPath, ancestors, rel_path, to_text
from substrate.packs.format import Input, canonical_bytes
from substrate.workspace.paths import Directory, Walker

#: No file of a workspace has such a name: `.ctx` is kept out of history.
BASE_NAME = ".ctx/base.json"
_PLAIN_MODE = 0o644
#: Drop setuid and sticky bits: a pack may come from an untrusted source.
_MODE_MASK = 0o777
#: The time of files in a pack without any recorded time.
_SOME_TIME_NS = 1_000_000_000 * 10**9


class TreeEntry(NamedTuple):
    """What the record says about one path besides its content."""

    path: bytes
    #: ``file``, ``symlink``, ``directory`` or ``fifo``.
    kind: str
    mode: int = _PLAIN_MODE
    target: bytes = b""


class BaseTree(NamedTuple):
    #: The workspace's location at the time of recording; empty if unknown.
    root: str = ""
    #: The history commit of this tree; empty for a log or a transcript.
    commit: str = ""
    entries: tuple[TreeEntry, ...] = ()
    #: What history excludes, and the tree therefore lacks.
    excluded: tuple[str, ...] = ()


class LaidOut(NamedTuple):
    files: int
    notes: tuple[str, ...]


def base_record(
    root: str, commit: str = "", entries: Iterable[TreeEntry] = (), excluded: Sequence[str] = ()
) -> str:
    """The content of the input `BASE_NAME`."""
    record: dict[str, object] = {"version": 1, "root": root}
    if commit:
        record["commit"] = commit
    listed = [_entry_json(entry) for entry in sorted(entries)]
    if listed:
        record["entries"] = listed
    if excluded:
        record["excluded"] = sorted(excluded)
    return canonical_bytes(record).decode()


def read_base(data: bytes) -> BaseTree:
    """Parse the record; ``ValueError`` says what is wrong with it."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(f"{BASE_NAME} is not JSON") from None
    if not isinstance(found, dict) or found.get("version") != 1:
        raise ValueError(f"{BASE_NAME} is of a version that is not known here")
    return BaseTree(
        str(found.get("root", "")),
        str(found.get("commit", "")),
        tuple(_entry(item) for item in found.get("entries", [])),
        tuple(str(item) for item in found.get("excluded", [])),
    )


def to_name(path: bytes) -> str:
    """A path as the name of an input or output."""
    return to_text(path)[0]


def from_text(text: str, *, encoded: bool) -> bytes:
    """The path of a text made by `substrate.model.paths.to_text`."""
    raw = text.encode("utf-8", "surrogateescape")
    if not encoded:
        return raw
    first, *rest = raw.split(b"%")
    return first + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in rest)


def lay_out(
    directory: Path,
    base: BaseTree,
    inputs: Sequence[Input],
    chunks: Callable[[str], Iterator[bytes]],
    when_ns: int = _SOME_TIME_NS,
) -> LaidOut:
    """Write the tree below `directory`, which is private and empty.

    Names that lead out of the directory are skipped and reported, and links are created last, so
    that nothing is ever written through one. All files get the same time, because theirs was not
    recorded: `make` then behaves the same in every replay, and treats built files as up to date.
    """
    notes: list[str] = []
    known = {to_name(entry.path): entry for entry in base.entries}
    walker = Walker(directory)
    made: set[RelPath] = set()
    files = 0
    for item in inputs:
        if item.name == BASE_NAME or item.name.startswith(".ctx/"):
            continue
        entry = known.get(item.name)
        try:
            path = place_of(entry.path if entry else item.name.encode("utf-8", "surrogateescape"))
            _make_parents(walker, path, made)
            mode = entry.mode if entry else _PLAIN_MODE
            _write_file(walker, path, mode, chunks(item.content_ref), when_ns)
            files += 1
        except (ValueError, OSError) as error:
            notes.append(f"input {item.name} is not laid out: {_reason(error)}")
    for entry in base.entries:
        if entry.kind == "file":
            continue
        try:
            _make_other(walker, place_of(entry.path), entry, made)
        except (ValueError, OSError) as error:
            notes.append(f"{to_name(entry.path)} ({entry.kind}) is not made: {_reason(error)}")
    _set_directory_modes(walker, base)
    return LaidOut(files, tuple(notes))


def place_of(name: bytes) -> RelPath:
    """The path of a name in the tree; an absolute name is put below it: ``/a/b`` -> ``a/b``."""
    raw = os.path.normpath(name.lstrip(b"/")) if name.startswith(b"/") else name
    while raw.startswith(b"./"):
        raw = raw[2:].lstrip(b"/")
    if not raw or raw == b".":
        raise ValueError("it has no name")
    try:
        return rel_path(raw)
    except ValueError:
        raise ValueError("its name leads out of the tree") from None


def _make_parents(walker: Walker, path: RelPath, made: set[RelPath]) -> None:
    for above in reversed(ancestors(path)):
        if above not in made:
            _make_directory(walker, above)
            made.add(above)


def _make_directory(walker: Walker, path: RelPath) -> None:
    directory, name = walker.parent_of(path)
    with directory:
        try:
            directory.mkdir(name)
        except FileExistsError:
            directory.child(name).close()  # an error if it is a file
        else:
            directory.chmod(name, 0o755)


def _write_file(
    walker: Walker, path: RelPath, mode: int, data: Iterator[bytes], when_ns: int
) -> None:
    directory, name = walker.parent_of(path)
    with directory:
        fd = directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "wb") as file:
            for chunk in data:
                file.write(chunk)
            file.flush()
            if os.utime in os.supports_fd:
                os.utime(fd, ns=(when_ns, when_ns))
        directory.chmod(name, mode & _MODE_MASK)


def _make_other(walker: Walker, path: RelPath, entry: TreeEntry, made: set[RelPath]) -> None:
    _make_parents(walker, path, made)
    if entry.kind == "directory":
        _make_directory(walker, path)
        made.add(path)
        return
    directory, name = walker.parent_of(path)
    with directory:
        if entry.kind == "symlink":
            directory.symlink(entry.target, name)
        elif entry.kind == "fifo":
            directory.mkfifo(name)
        else:
            raise ValueError("such a thing cannot be made again")


def _set_directory_modes(walker: Walker, base: BaseTree) -> None:
    """Set these last, and the deepest first: a mode may forbid access to the directory."""
    entries = [entry for entry in base.entries if entry.kind == "directory"]
    for entry in sorted(entries, reverse=True):
        try:
            directory, name = walker.parent_of(rel_path(entry.path))
        except (OSError, ValueError):
            continue
        with directory:
            _chmod_directory(directory, name, entry.mode & _MODE_MASK)


def _chmod_directory(directory: Directory, name: bytes, mode: int) -> None:
    try:
        directory.child(name).close()
        directory.chmod(name, mode)
    except OSError:
        pass  # it was not created, which is already reported


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            return "something else has its place"
        return error.strerror or str(error)
    return str(error)


def _entry_json(entry: TreeEntry) -> dict[str, object]:
    path, encoded = to_text(entry.path)
    out: dict[str, object] = {"path": path, "kind": entry.kind}
    if entry.kind != "symlink":
        out["mode"] = f"{entry.mode:04o}"
    else:
        target, target_encoded = to_text(entry.target)
        out["target"] = target
        if target_encoded:
            out["target_encoded"] = True
    if encoded:
        out["encoded"] = True
    return out


def _entry(item: object) -> TreeEntry:
    if not isinstance(item, dict) or not isinstance(item.get("path"), str):
        raise ValueError(f"{BASE_NAME} has an entry without a path")
    try:
        return TreeEntry(
            from_text(item["path"], encoded=item.get("encoded") is True),
            str(item.get("kind", "file")),
            int(str(item.get("mode", "0" if item.get("kind") == "symlink" else "0644")), 8),
            from_text(str(item.get("target", "")), encoded=item.get("target_encoded") is True),
        )
    except ValueError:
        raise ValueError(f"{BASE_NAME} says something impossible of {item['path']}") from None
