"""Does a lookup by another case find a file? On this disk, before and after first use."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from substrate.system.files.name_folding import folded, folds_names, leave_mark
from tests.mounts import mounted_exfat


@pytest.mark.needs("case-sensitive")
@pytest.mark.parametrize("names", [[], ["a"], ["a", "A"], ["1"], [".git", "Makefile", "makefile"]])
def test_an_ordinary_disk(tmp_path: Path, names: list[str]) -> None:
    root = tmp_path / "project"
    root.mkdir()
    for name in names:
        (root / name).touch()
    assert not folds_names(root, root / ".substrate-git")
    (tmp_path / "PROJECT").mkdir()
    assert not folds_names(root, root / ".substrate-git")
    (root / ".substrate-git/index").mkdir(parents=True)
    assert not folds_names(root, root / ".substrate-git")


@pytest.mark.needs("exfat")
def test_a_disk_that_folds(tmp_path: Path) -> None:
    with mounted_exfat(tmp_path) as top:
        root = top / "project"
        root.mkdir()
        assert folds_names(root, root / ".substrate-git"), "by the name of the project"
        (root / "a").touch()
        assert folds_names(root, root / ".substrate-git"), "by a name in it"
        (root / ".substrate-git/index").mkdir(parents=True)
        assert folds_names(root, root / ".substrate-git"), "by a name in the store"


def test_unicode_forms_that_are_one_name(tmp_path: Path) -> None:
    """A disk that folds them answers a lookup of the second form; here a second file does."""
    store = tmp_path / ".substrate-git"
    (store / "index").mkdir(parents=True)
    leave_mark(store)
    [mark] = (store / "index").iterdir()
    assert not folds_names(tmp_path, store)
    (store / "index" / unicodedata.normalize("NFD", mark.name)).touch()
    assert folds_names(tmp_path, store)


def test_spellings_of_one_name() -> None:
    same = ("d/Ärger", "D/ÄRGER", "d/A\u0308rger", "d/a\u0308RGER")
    assert len({folded(one.encode()) for one in same}) == 1
    assert folded(b"a\xff.TXT") == folded(b"A\xff.txt")
    assert folded(b"a") != folded(b"b")
