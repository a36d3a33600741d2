"""Adding to JSON settings inserts text only; removing leaves everything else."""

from __future__ import annotations

import json

import pytest

from substrate.coding_agents import settings_json
from substrate.coding_agents.json_syntax import read
from substrate.coding_agents.settings_json import Addition
from substrate.errors import RefusedError

PREFIX = Addition(("env", "PREFIX"), "x -c")
HOOK = Addition(("hooks", "Stop"), {"hooks": [{"command": "ours"}]}, in_array=True)


def plain(text: str) -> object:
    root = read(text)
    return None if root is None else root.plain()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"a":1}', '{"a":1,"env":{"PREFIX":"x -c"}}'),
        ('{"a": 1}', '{"a": 1, "env": {"PREFIX": "x -c"}}'),
        (
            '{\n    "a": 1\n}\n',
            '{\n    "a": 1,\n    "env": {\n        "PREFIX": "x -c"\n    }\n}\n',
        ),
        ('{\r\n\t"a": 1\r\n}', '{\r\n\t"a": 1,\r\n\t"env": {\r\n\t\t"PREFIX": "x -c"\r\n\t}\r\n}'),
        ('{\n  "a": 1 // why\n}', '{\n  "a": 1, // why\n  "env": {\n    "PREFIX": "x -c"\n  }\n}'),
        ('{\n  "env": {"A": "b"}\n}', '{\n  "env": {"A": "b", "PREFIX": "x -c"}\n}'),
        ('{"env": {"A": "b",},}', '{"env": {"A": "b", "PREFIX": "x -c"},}'),
        ("", '{\n  "env": {\n    "PREFIX": "x -c"\n  }\n}\n'),
        ("\ufeff{}", '\ufeff{\n  "env": {\n    "PREFIX": "x -c"\n  }\n}'),
    ],
)
def test_a_member_is_added_in_the_style_of_the_file(text: str, after: str) -> None:
    added = settings_json.add(text, [PREFIX])
    assert added.text == after
    assert added.original == text
    assert settings_json.has(after, PREFIX)
    assert settings_json.add(after, [PREFIX]).inserted == ()


def test_an_item_joins_the_items_that_are_there() -> None:
    text = '{\n  "hooks": {\n    "Stop": [\n      {"theirs": 1}\n    ]\n  }\n}\n'
    added = settings_json.add(text, [HOOK])
    assert plain(added.text) == {"hooks": {"Stop": [{"theirs": 1}, HOOK.value]}}
    assert added.original == text
    assert added.containers == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"env": {"PREFIX": "other"}}', "already set"),
        ('{"env": 1}', "env is not an object"),
        ("[]", "the settings are not an object"),
        ('{"a": 1', "expected a comma or }"),
        ('{"a": 1 "b": 2}', "line 1, column 9"),
        ('{\n  "a": nul\n}', "line 2, column 8: expected a value"),
        ("{'a': 1}", "a key in double quotes"),
        ("{} trailing", "the end of the file"),
        ("{/* open", "a key"),
        ("[" * 1000, "less nesting"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        settings_json.add(text, [PREFIX])


def test_an_array_that_is_no_array_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"hooks.Stop is not an array"):
        settings_json.add('{"hooks": {"Stop": {}}}', [HOOK])


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{\n  "a": 1, // c\n  "env": {"PREFIX": "x -c"}\n}', '{\n  "a": 1, // c\n  "env": {}\n}'),
        ('{"env":{"PREFIX":"x -c","B":"b"}}', '{"env":{"B":"b"}}'),
        ('{"env":{"B":"b","PREFIX":"x -c"}}', '{"env":{"B":"b"}}'),
        # The line comment must not swallow what follows on the line of the removed member.
        ('{"env":{// c\n"PREFIX":"x -c", "B":"b"}}', '{"env":{// c\n "B":"b"}}'),
        ('{"env":{"B":"b", // c\n"PREFIX":"x -c"}}', '{"env":{"B":"b" // c\n}}'),
    ],
)
def test_only_the_member_is_removed(text: str, after: str) -> None:
    removed = settings_json.remove(text, PREFIX.path, lambda value: value == "x -c")
    assert removed == after
    read(removed)


def test_another_value_at_the_place_stays() -> None:
    text = json.dumps({"env": {"PREFIX": "theirs"}})
    assert settings_json.remove(text, PREFIX.path, lambda value: value == "x -c") == text


def test_only_our_items_are_removed() -> None:
    text = '{"hooks": {"Stop": [{"theirs": 1}, {"hooks": [{"command": "ours"}]}, 2]}}'
    removed = settings_json.remove(text, HOOK.path, lambda value: value == HOOK.value)
    assert plain(removed) == {"hooks": {"Stop": [{"theirs": 1}, 2]}}


@pytest.mark.parametrize("ours", [{0}, {2}, {0, 2}, {1, 2}, {0, 1, 2}, {0, 1}])
@pytest.mark.parametrize(
    "text", ["[10,11,12]", "[10, 11, 12,]", "[\n 10,\n 11,\n 12\n]\n", "[10, // x\n 11,\n 12]"]
)
def test_all_of_our_items_go_at_once(text: str, ours: set[int]) -> None:
    wanted = {10 + one for one in ours}
    left = settings_json.remove(f'{{"a": {text}}}', ("a",), lambda item: item in wanted)
    assert settings_json.value_at(left, ("a",)) == [10 + n for n in range(3) if n not in ours]
    assert ("// x" in left) == ("// x" in text)


def test_of_equal_keys_the_last_one_counts() -> None:
    text = '{"env": {"A": "1"}, "env": {}}'
    added = settings_json.add(text, [PREFIX])
    assert json.loads(added.text)["env"] == {"PREFIX": "x -c"}
