"""Tables at the end of TOML settings, and nothing else changed."""

from __future__ import annotations

import tomllib

import pytest

from substrate.coding_agents import settings_toml
from substrate.coding_agents.settings_toml import Table
from substrate.errors import RefusedError

TABLE = Table(("hooks", "state", '/h "q" ü/hooks.json:stop:0:0'), {"trusted_hash": "sha256:1"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a = 1",
        "a = 1\n",
        "# c\r\n[t]\r\nb = 2 # d\r\n",
        "\ufeffa = 1\n",
        "[hooks.state.x]\ny = 1\n",
    ],
)
def test_a_table_is_added_and_can_be_cut_out(text: str) -> None:
    added = settings_toml.add(text, [TABLE])
    assert added.original == text
    settings = tomllib.loads(added.text.removeprefix("\ufeff"))
    assert settings["hooks"]["state"][TABLE.path[-1]] == TABLE.values
    assert settings_toml.has(added.text, TABLE)
    assert settings_toml.add(added.text, [TABLE]).inserted == ()
    assert ("\r\n" in text) == ("\r\n" in added.text)


def test_a_table_is_found_again_after_other_edits() -> None:
    added = settings_toml.add("a = 1\n", [TABLE]).text
    edited = added.replace("a = 1", "a = 2 # mine") + "\n[later]\nb = 1\n"
    removed = settings_toml.remove(edited, TABLE.path, ["sha256:1"])
    assert removed == "a = 2 # mine\n\n[later]\nb = 1\n"


def test_a_table_with_another_value_stays() -> None:
    text = settings_toml.add("", [TABLE._replace(values={"trusted_hash": "theirs"})]).text
    assert settings_toml.remove(text, TABLE.path, ["sha256:1"]) == text
    with pytest.raises(RefusedError, match="already set"):
        settings_toml.add(text, [TABLE])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = = 1", "Invalid value"),
        ("hooks = {state = {}}\n", "cannot be added"),
        ("hooks = 1\n", "not a table"),
    ],
)
def test_what_cannot_take_the_table_is_refused(text: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        settings_toml.add(text, [TABLE])


def test_a_table_that_was_rewritten_is_refused() -> None:
    text = f'hooks.state = {{"{"k"}" = {{trusted_hash = "x"}}}}\n'
    with pytest.raises(RefusedError, match="no longer written on one line"):
        settings_toml.remove(text, ("hooks", "state", "k"), ["x"])
