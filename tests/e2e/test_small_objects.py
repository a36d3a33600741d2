"""Whatever recorded them, small objects do not stay in the ledger and as loose files for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.program import Program

_FILES = 90
_ROUNDS = 8


@pytest.mark.parametrize("words", [(), ("--no-world",)], ids=["world", "direct"])
def test_they_are_packed(tmp_path: Path, words: tuple[str, ...]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    program = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    for number in range(_ROUNDS):
        edit = f"for n in $(seq {_FILES}); do echo {number} $n > $n; done"
        program(*words, "-c", edit).went_well()
    objects = project / ".substrate-git/.git/objects"
    loose = list(objects.glob("??/*"))
    assert len(loose) < _ROUNDS * _FILES * 0.75, len(loose)
    assert list(objects.glob("pack/*.pack"))
    program("fsck").went_well()
    program("undo").went_well()
    assert (project / "1").read_text() == f"{_ROUNDS - 2} 1\n"
