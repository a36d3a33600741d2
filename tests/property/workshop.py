"""Edits on real files, of every kind a command makes. Each does what it can and never fails."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

LINES = 9
#: Few places, so that edits meet; a name that is no text, one with a dash, one with a newline.
PLACES = (
    b"a",
    b"b",
    b"d",
    b"d/a",
    b"d/b",
    b"d/e",
    b"d/e/f",
    b"d/e/g",
    b"x/y",
    b"x/\xff\n-",
    b"-n",
)
#: These are there from the start, with lines to edit.
MERGED = (b"a", b"d/a")
FILE_MODES = (0o644, 0o600, 0o755, 0o640, 0o666, 0o4711)
DIRECTORY_MODES = (0o755, 0o700, 0o775, 0o1777)


class Edit(NamedTuple):
    how: str
    place: bytes
    number: int

    def __repr__(self) -> str:
        return f"{self.how}({self.place.decode('latin-1')!r}, {self.number})"


def edits(most: int = 4) -> st.SearchStrategy[list[Edit]]:
    one = st.builds(Edit, st.sampled_from(WAYS), st.sampled_from(PLACES), st.integers(0, 40))
    return st.lists(one, min_size=1, max_size=most)


def line_edits() -> st.SearchStrategy[list[Edit]]:
    """Edits of single lines in a few files: what merges and conflicts are made of."""
    places = st.sampled_from(MERGED)
    one = st.builds(Edit, st.just("line"), places, st.integers(0, 3 * LINES - 1))
    return st.lists(one, min_size=1, max_size=2)


def do(root: Path, work: Sequence[Edit]) -> None:
    for edit in work:
        path = os.path.join(os.fsencode(root), edit.place)
        try:
            _HOW[edit.how](path, edit.number, os.fsencode(root))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError):
            pass  # nothing there to do this to
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EINVAL, errno.ELOOP):
                raise


def _make_room(path: bytes, root: bytes) -> None:
    above = os.path.dirname(path)
    if above != root and not os.path.isdir(above):
        _make_room(above, root)
        _remove(above)
        os.mkdir(above)


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def lines(number: int) -> bytes:
    return b"".join(b"%d: %d\n" % (i, number) for i in range(LINES))


def _create(path: bytes, number: int, root: bytes) -> None:
    _make_room(path, root)
    _remove(path)
    _write(path, lines(number % 3))


def _line(path: bytes, number: int, root: bytes) -> None:
    """Edit one line in place; the size stays the same more often than not."""
    with open(path, "r+b") as file:
        rows = file.read().splitlines(keepends=True)
        if len(rows) != LINES:
            return
        rows[number % LINES] = b"%d: %d\n" % (number % LINES, number)
        file.seek(0)
        file.truncate()
        file.write(b"".join(rows))


def _replace(path: bytes, number: int, root: bytes) -> None:
    """As editors do: a new file, renamed over the old one."""
    if not os.path.isfile(path) or os.path.islink(path):
        return
    temp = path + b".new"
    _write(temp, lines(number % 5))
    os.rename(temp, path)


def _binary(path: bytes, number: int, root: bytes) -> None:
    _make_room(path, root)
    _remove(path)
    _write(path, b"\0" + random.Random(number % 3).randbytes(20 if number % 2 else 70_000))


def _empty(path: bytes, number: int, root: bytes) -> None:
    _make_room(path, root)
    _remove(path)
    _write(path, b"")


def _delete(path: bytes, number: int, root: bytes) -> None:
    _remove(path)


def _rmdir(path: bytes, number: int, root: bytes) -> None:
    os.rmdir(path)


def _mkdir(path: bytes, number: int, root: bytes) -> None:
    _make_room(path, root)
    if not os.path.isdir(path):
        _remove(path)
        os.mkdir(path)


def _chmod(path: bytes, number: int, root: bytes) -> None:
    if os.path.islink(path):
        return
    modes = DIRECTORY_MODES if os.path.isdir(path) else FILE_MODES
    os.chmod(path, modes[number % len(modes)])


def _symlink(path: bytes, number: int, root: bytes) -> None:
    _make_room(path, root)
    _remove(path)
    os.symlink((b"a", b"/etc/passwd", b"d", b"nowhere")[number % 4], path)


def _rename(path: bytes, number: int, root: bytes) -> None:
    target = os.path.join(root, PLACES[number % len(PLACES)])
    if os.path.commonpath([path, target]) in (path, target) or not os.path.lexists(path):
        return
    _make_room(target, root)
    _remove(target)
    os.rename(path, target)


_HOW: dict[str, Callable[[bytes, int, bytes], None]] = {
    "create": _create,
    "line": _line,
    "replace": _replace,
    "binary": _binary,
    "empty": _empty,
    "delete": _delete,
    "rmdir": _rmdir,
    "mkdir": _mkdir,
    "chmod": _chmod,
    "symlink": _symlink,
    "rename": _rename,
}
#: Line edits are what merges are made of: they come up more often.
WAYS = (*_HOW, "line", "line", "line", "create")
