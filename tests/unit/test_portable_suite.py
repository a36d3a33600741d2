"""``pytest --portable``: the list names what exists, and nothing else is collected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import portable


@pytest.mark.parametrize("path", [*portable.EVERYWHERE, *portable.POSIX])
def test_each_path_on_the_list_exists(path: str) -> None:
    assert (portable.ROOT / path).exists()


def test_windows_runs_a_part_of_what_macos_runs() -> None:
    assert set(portable.chosen("nt")) < set(portable.chosen("posix"))


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("tests", False),
        ("tests/unit", False),
        ("tests/unit/model/test_align.py", False),
        ("tests/unit/cli/frame/test_terminal_text.py", False),
        ("tests/unit/world/conftest.py", False),
        ("tests/unit/world/strategies/test_direct.py", True),
        ("tests/unit/world", True),
        ("tests/crash", True),
        ("tests/unit/model2", True),
    ],
)
def test_what_is_collected_on_windows(path: str, left_out: bool) -> None:
    assert portable.is_left_out(portable.ROOT / path, portable.chosen("nt")) is left_out


def test_a_path_outside_the_repository_is_left_out(tmp_path: Path) -> None:
    assert portable.is_left_out(tmp_path, portable.chosen("nt"))
