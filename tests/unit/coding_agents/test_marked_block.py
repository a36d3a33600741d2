"""The block of instructions goes as it came, whatever else is in the file."""

from __future__ import annotations

import pytest

from substrate.coding_agents.marked_block import FIRST_LINE, LAST_LINE, add, has, remove


@pytest.mark.parametrize("text", ["", "# Mine\n", "# Mine\r\n", "a\n\n\n", "\ufeffa\n"])
def test_the_text_around_it_stays(text: str) -> None:
    with_block = add(text).text
    assert has(with_block)
    assert remove(with_block) == text
    assert remove(with_block + "later\n") == text + "later\n"


def test_half_a_block_stays() -> None:
    for text in (FIRST_LINE * 3, LAST_LINE, f"{LAST_LINE}\n{FIRST_LINE}\n"):
        assert remove(text) == text
