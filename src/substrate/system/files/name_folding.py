"""Whether a file system treats two names as the same: ``a.txt`` and ``A.TXT``.

FAT, exFAT, NTFS, macOS, the shared directories of WSL and Docker Desktop, and ext4 directories with
the casefold flag fold names. Looking up an existing name in the other case shows it, and writes
nothing.

Some file systems fold only Unicode normalization forms (ZFS with `normalization`, case-sensitive
APFS): an accented letter, or a letter followed by a combining accent. To detect that, every store
has a file with such a name.
"""

from __future__ import annotations

import os
import unicodedata
from contextlib import suppress
from pathlib import Path

#: Every store has this file, and no other file with that name in another case.
_IN_STORE = "index"
#: Names inside it: an e with an accent, and the same as two code points.
_ONE_PART, _TWO_PARTS = "\u00e9", "e\u0301"


def folds_names(root: Path, store: Path) -> bool:
    """Whether names fold in the workspace at `root`, as far as its top directory shows.

    ext4 has the flag per directory: a folding directory below an ordinary root is not detected.
    """
    known = f"{store}/{_IN_STORE}"  # a string, not a `Path`: every command runs this
    if os.path.lexists(known):
        return is_found_by_other_case(known) or os.path.lexists(f"{known}/{_TWO_PARTS}")
    return _folds_before_first_use(root)


def is_found_by_other_case(path: str) -> bool:
    """Whether the other case of the name finds `path` too; no other file may have that name."""
    above, name = os.path.split(path)
    return os.path.lexists(f"{above}/{name.swapcase()}")


def leave_mark(store: Path) -> None:
    """Create the file for `folds_names`; where the name is not allowed, folding stays unknown."""
    with suppress(OSError, UnicodeError):
        (store / _IN_STORE / _ONE_PART).touch(mode=0o600)


def folded(path: bytes) -> str:
    """Equal for all paths that some file system treats as the same."""
    if path.isascii():
        return path.decode("ascii").lower()
    text = unicodedata.normalize("NFD", os.fsdecode(path)).casefold()
    return unicodedata.normalize("NFC", text)


def _folds_before_first_use(root: Path) -> bool:
    """Test a name in the project, or the project's own; an empty project has nothing to lose."""
    try:
        names = set(os.listdir(root))
        is_mount = os.lstat(root).st_dev != os.lstat(root.parent).st_dev
    except OSError:
        return False
    if any(os.path.lexists(root / other) for other in _other_forms(names)):
        return True
    for name in names:
        other = name.swapcase()
        if other != name and other not in names:
            return os.path.lexists(root / other)
    other = root.name.swapcase()
    if is_mount or other == root.name:
        return False
    return os.path.lexists(root.parent / other) and other not in os.listdir(root.parent)


def _other_forms(names: set[str]) -> set[str]:
    """The non-ASCII names in their other Unicode normalization forms."""
    spelt = (name for name in names if not name.isascii())
    forms = {unicodedata.normalize(form, name) for name in spelt for form in ("NFC", "NFD")}
    return forms - names
