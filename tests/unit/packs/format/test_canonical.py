"""Canonical JSON: one spelling for each value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.packs.format.canonical import canonical_bytes

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='aé😀\n"'), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ({}, "{}"),
        ([], "[]"),
        (2**53 + 1, "9007199254740993"),
        (-(10**40), "-1" + "0" * 40),
        (0.0, "0"),
        (-0.0, "0"),
        (1e3, "1000"),
        (0.1, "0.1"),
        (1e-7, "1e-7"),
        (1e300, "1e+300"),
        (float(2**60), "1.152921504606847e+18"),
        ('é\n"\\\u2028\x7f', '"é\\n\\"\\\\\u2028\x7f"'),
        ("<&>", '"<&>"'),
    ],
)
def test_one_spelling(value: object, text: str) -> None:
    assert canonical_bytes(value) == text.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1}, b"x"])
def test_what_json_cannot_say_is_an_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        canonical_bytes(value)


def test_nesting_has_a_limit() -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(ValueError, match="deep"):
        canonical_bytes(deep)


@given(VALUES)
def test_reading_and_writing_again_changes_nothing(value: object) -> None:
    once = canonical_bytes(value)
    back = json.loads(once)
    assert back == value
    assert canonical_bytes(back) == once


@given(st.dictionaries(st.text(alphabet="abé😀"), st.integers(), min_size=2))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    assert canonical_bytes(dict(reversed(value.items()))) == canonical_bytes(value)
