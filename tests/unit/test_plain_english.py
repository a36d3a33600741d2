"""Comments, docstrings and pages are plain: `scripts/plain_english.py` finds what is not."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts" / "plain_english.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECKER = _checker()


@cache
def _read(*places: str) -> tuple[int, list[str]]:
    """The number of sentences, and the archaic ones."""
    paths = CHECKER.files_in([str(ROOT / place) for place in places])
    found = [one for path in paths for one in CHECKER.sentences(path)]
    return len(found), [f"{one.path}:{one.line}: {one.text}" for one in found if one.archaic]


@pytest.mark.parametrize("place", ["src", "tests", "bench"])
def test_fewer_than_one_sentence_in_a_hundred_is_archaic(place: str) -> None:
    count, archaic = _read(place)
    assert count > 100
    assert len(archaic) * 100 < count, archaic


#: With the number of sentences that they hold at least.
PAGES = {
    ("docs",): 2000,
    ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"): 300,
    ("launcher", "launcher/substrate", "scripts/test"): 50,
}


@pytest.mark.parametrize("places", PAGES)
def test_no_sentence_of_a_page_is_archaic(places: tuple[str, ...]) -> None:
    count, archaic = _read(*places)
    assert count > PAGES[places]
    assert archaic == []


def test_archaic_turns_are_found_in_pages(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading\n\nA plain line. It lies\nthere.\n\n- an item\n- `nobody` in code\n"
        "- somebody else's\n\n| a | whoever |\n|---|---|\n\n```\nnobody reads code\n```\n"
    )
    assert [one.text for one in CHECKER.sentences(page) if one.archaic] == [
        "It lies there.", "somebody else's",
    ]  # fmt: skip
    code = tmp_path / "code.c"
    code.write_text('int x; /* whoever\n * asks */\nchar *nobody = "nobody said";\n')
    assert [one.text for one in CHECKER.sentences(code) if one.archaic] == ["whoever asks"]
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n# Nobody waits\n# here.\necho nobody is there\n")
    assert [one.text for one in CHECKER.sentences(script) if one.archaic] == ["Nobody waits here."]


def test_archaic_turns_are_found_in_comments_and_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        '"""A plain sentence. What stands there is somebody\'s."""\n'
        "x = 1  # whoever asks is told\n"
        "\n"
        "# `nobody` is a user here: code is not prose\n"
        'y = "a message, which other checks read: nobody"\n'
    )
    found = [one.text for one in CHECKER.sentences(file) if one.archaic]
    assert found == ["What stands there is somebody's.", "whoever asks is told"]


def test_archaic_names_of_tests_are_found(tmp_path: Path) -> None:
    module = tmp_path / "test_it.py"
    names = ("who_is_told", "it_works", "nobodys_edit", "a_limit_is_said", "the_log_tells_it")
    module.write_text("".join(f"def test_{name}() -> None: ...\n" for name in names))
    assert [one.text for one in CHECKER.sentences(module) if one.archaic] == [
        *("test who is told", "test nobodys edit", "test a limit is said"),
        "test the log tells it",
    ]


def test_no_name_of_a_test_is_archaic() -> None:
    names = [one for one in _read("tests")[1] if ": test " in one]
    assert names == []
