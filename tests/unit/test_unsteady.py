"""The list of unsteady tests: dated, with reasons, of tests that exist."""

from __future__ import annotations

import datetime
import tomllib

import pytest

from tests.unsteady import COUNTS_FOR, LIST, main, unexcused

_TEXT = '[[test]]\nid = "tests/x.py::test_it"\nsince = 2026-01-31\nreason = "a race"\n'
_SINCE = datetime.date(2026, 1, 31)


@pytest.mark.parametrize(
    ("name", "today", "is_excused"),
    [
        ("tests/x.py::test_it", _SINCE, True),
        ("tests/x.py::test_it", _SINCE + COUNTS_FOR, True),
        ("tests/x.py::test_it", _SINCE + COUNTS_FOR + datetime.timedelta(days=1), False),
        ("tests/x.py::test_it", _SINCE - datetime.timedelta(days=1), False),
        ("tests/x.py::test_other", _SINCE, False),
        ("tests/x.py::test_it[case]", _SINCE, False),
    ],
)
def test_an_entry_counts_for_its_test_and_its_time(
    name: str, today: datetime.date, is_excused: bool
) -> None:
    assert unexcused([name], _TEXT, today) == ([] if is_excused else [name])


def test_without_a_list_nothing_is_excused() -> None:
    assert unexcused(["tests/x.py::test_it"], "", _SINCE) == ["tests/x.py::test_it"]


def test_the_runner_gets_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tests/no.py::test_such"]) == 1
    assert "tests/no.py::test_such" in capsys.readouterr().out
    assert main([]) == 0


def test_every_entry_has_a_date_a_reason_and_a_test() -> None:
    for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["test"]:
        assert set(entry) == {"id", "since", "reason"}
        assert isinstance(entry["since"], datetime.date) and len(entry["reason"]) > 20
        path, _, name = entry["id"].partition("::")
        source = (LIST.parents[1] / path).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}(" in source
