"""Whatever is in a settings file: `connect`, then `disconnect`, gives back every byte."""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from substrate.coding_agents.agent import Agent, Surroundings
from substrate.coding_agents.connect import carry_out, plan
from substrate.coding_agents.disconnect import carry_out_removal, plan_removal
from substrate.coding_agents.json_syntax import read
from substrate.coding_agents.known_agents import AGENTS
from substrate.coding_agents.settings_toml import Table, add

KEYS = st.sampled_from(
    ["env", "hooks", "Stop", "SessionStart", "a", 'ü "q" \\ // /*', "permissions"]
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.text(max_size=5),
    st.sampled_from(["//x", "/* y */", "{", "]", "\r\n"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip
#: What an agent accepts: `env` is an object, `hooks` an object of arrays.
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "a": VALUES,
        "env": st.dictionaries(st.sampled_from(["A", "B"]), st.text(max_size=3), max_size=2),
        "hooks": st.dictionaries(
            st.sampled_from(["Stop", "PreToolUse", "BeforeTool", "Other"]),
            st.lists(VALUES, max_size=2),
            max_size=3,
        ),
        "z": VALUES,
    },
)
BLANKS = ["", " ", "  ", "\t", "\n", "\n  ", "\n\t", "\n\n    "]
COMMENTS = ["/* c */", "// c\n", "/* \n * c\n */", '// "env": {\n', "/**/"]


@st.composite
def json_with_comments(draw: st.DrawFn) -> str:
    """Settings, written by an unusual hand."""
    style = draw(st.sampled_from(["minimal", "indented", "odd"]))
    settings = draw(SETTINGS)
    if style != "odd":
        indents: st.SearchStrategy[int | str | None] = st.sampled_from([None, 1, 2, 4, "\t"])
        indent = draw(indents) if style == "indented" else None
        text = json.dumps(settings, indent=indent, ensure_ascii=draw(st.booleans()))
    else:
        text = _written(draw, settings)
    text += draw(st.sampled_from(["", "\n", "\n\n", " // end", "\n/* end */\n"]))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff"])) + text


def _written(draw: st.DrawFn, value: object) -> str:
    gap = st.one_of(
        st.sampled_from(BLANKS),
        st.builds("".join, st.lists(st.sampled_from([*BLANKS, *COMMENTS]), max_size=3)),
    )
    if isinstance(value, dict):
        parts = [
            f"{draw(gap)}{json.dumps(key)}{draw(gap)}:{draw(gap)}{_written(draw, one)}"
            for key, one in value.items()
        ]
    elif isinstance(value, list):
        parts = [draw(gap) + _written(draw, one) for one in value]
    else:
        return json.dumps(value)
    has_comma = draw(st.booleans())
    comma = "," if parts and has_comma else ""
    inner = draw(gap).join(part + draw(gap) + "," for part in parts[:-1])
    inner += (parts[-1] if parts else "") + draw(gap) + comma + draw(gap)
    return f"{{{inner}}}" if isinstance(value, dict) else f"[{inner}]"


def in_home(directory: str) -> Surroundings:
    home = Path(directory) / "home"
    (home / "project").mkdir(parents=True)
    return Surroundings(home, home / ".substrate", home / "project", {"PATH": "/bin"})


def connect(agents: list[Agent], around: Surroundings) -> None:
    carry_out(plan(agents, around, "user", instructions=True))


def disconnect(agents: list[Agent], around: Surroundings) -> None:
    carry_out_removal(plan_removal(agents, around), agents, around)


def plain(text: str) -> Any:
    root = read(text)
    return None if root is None else root.plain()


#: Each example syncs a dozen files, which a disk does slowly.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
HOOKED = [agent for agent in AGENTS if agent.name in ("claude-code", "codex", "gemini-cli")]


@given(st.sampled_from(HOOKED), json_with_comments(), st.text(max_size=30))
def test_every_byte_comes_back(agent: Agent, text: str, instructions: str) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        around = in_home(directory)
        [edit] = agent.edits(around, "user")
        block = agent.instructions(around, "user")
        assert block is not None
        before = {edit.path: text.encode(), block: instructions.encode()}
        for path, data in before.items():
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(data)
        connect([agent], around)
        connected = edit.path.read_bytes()
        assert edit.is_in(connected.decode())
        assert plan([agent], around, "user", instructions=True).is_done
        connect([agent], around)
        assert edit.path.read_bytes() == connected
        disconnect([agent], around)
        assert {path: path.read_bytes() for path in before} == before
        assert not (around.substrate_home / "connect.json").exists()


@given(st.sampled_from(HOOKED), json_with_comments(), st.integers(0, 10**6))
def test_after_edits_all_but_ours_stays(agent: Agent, text: str, number: int) -> None:
    """The user adds a member and comments; only what `connect` added goes."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        around = in_home(directory)
        [edit] = agent.edits(around, "user")
        edit.path.parent.mkdir(parents=True)
        edit.path.write_bytes(text.encode())
        connect([agent], around)
        connected = edit.path.read_bytes().decode()
        at = connected.index("{") + 1
        empty = plain(connected) == {}
        mine = f' // mine\n "mine": {number}' + ("" if empty else ",")
        edit.path.write_bytes((connected[:at] + mine + connected[at:]).encode())
        disconnect([agent], around)
        left = edit.path.read_bytes().decode()
        assert plain(left) == {"mine": number, **plain(text)}
        assert left.count("// c") == text.count("// c")
        assert "// mine" in left


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError:
        return False
    return True


TOML_LINES = st.lists(
    st.sampled_from(
        ["# c", "", 'a = "b" # c', "[t]", "b = [\n  1, # c\n  2,\n]", "[t.u]", '[hooks.state."k"]',
         'trusted_hash = "x"', "[[rule]]", "d = 2026-11-18", 'text = """\n[hooks.state]\n"""']
    ),
    max_size=8,
)  # fmt: skip


@given(TOML_LINES, st.booleans(), st.booleans(), st.sampled_from(["", "\ufeff"]))
def test_toml_comes_back(lines: list[str], crlf: bool, ends: bool, mark: str) -> None:
    text = "\n".join(lines) + ("\n" if ends else "")
    text = mark + (text.replace("\n", "\r\n") if crlf else text)
    assume(is_toml(text))
    before = tomllib.loads(text.removeprefix("\ufeff"))
    table = Table(("hooks", "state", "/x/hooks.json:stop:0:0"), {"trusted_hash": "sha256:1"})
    added = add(text, [table])
    assert added.original == text
    after = tomllib.loads(added.text.removeprefix("\ufeff"))
    assert after["hooks"]["state"].pop(table.path[-1]) == table.values
    if "state" not in before.get("hooks", {}):
        del after["hooks"]["state"]
    if "hooks" not in before:
        del after["hooks"]
    assert after == before
