"""A wrong body is refused with the name of the field; an unknown field is ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from substrate.errors import UsageError
from substrate.protocol import http_bodies


def executed(**fields: object) -> http_bodies.Execute:
    body = json.dumps({"cmd": "make", **fields}).encode()
    return http_bodies.execute(http_bodies.parse_json(body), "/")


def test_what_is_given_is_taken(tmp_path: Path) -> None:
    found = executed(
        cwd=str(tmp_path), env={"A": "1", "B": ""}, agent_id="me", pty=True, session_id="s",
        timeout_s=3, world="disabled", isolate="full", net="deny", cols=100, rows=30, unknown=[1],
    )  # fmt: skip
    assert found == http_bodies.Execute(
        "make", str(tmp_path), {"A": "1", "B": ""}, "me", True, "s", 3.0, "disabled", "full",
        "deny", 100, 30,
    )  # fmt: skip


def test_null_is_the_default() -> None:
    names = ("cwd", "env", "agent_id", "session_id", "timeout_s", "world", "isolate", "net")
    assert executed(**dict.fromkeys(names)) == http_bodies.Execute("make", "/", {}, "")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("cmd", 1, "cmd: text without NUL"),
        ("cmd", "a\0b", "cmd: text without NUL"),
        ("cmd", "a\0\n", "cmd: text without NUL"),
        ("cmd", " ", "cmd: a command is needed"),
        ("cmd", "\ud800", "cmd: not valid text"),
        ("net", "\ud800", "net: not valid text"),
        ("cwd", "here", "cwd: an absolute path"),
        ("cwd", "/no/such/place", "cwd: /no/such/place is not a directory"),
        ("env", {"A": 1}, "env: an object of texts"),
        ("env", "A=1", "env: an object of texts"),
        ("env", {"A=B": "1"}, "env: 'A=B' is not a variable"),
        ("env", {"": "1"}, "env: '' is not a variable"),
        ("env", {"A": "\0"}, "env: 'A' is not a variable"),
        ("env", {"A": "\ud800"}, "A: not valid text"),
        ("pty", 1, "pty: true or false"),
        ("pty", None, "pty: true or false"),
        ("timeout_s", -1, "timeout_s: a number of seconds"),
        ("timeout_s", True, "timeout_s: a number of seconds"),
        ("timeout_s", "60", "timeout_s: a number of seconds"),
        ("world", "maybe", "world: one of enabled, disabled"),
        ("world", "\ud800", "world: not valid text"),
        ("isolate", "all", "isolate: one of none, workspace, guarded, full"),
        ("cols", 0, "cols: a number of cells"),
        ("cols", True, "cols: a number of cells"),
        ("rows", 65536, "rows: a number of cells"),
        ("rows", "24", "rows: a number of cells"),
    ],
)
def test_an_error_names_the_field(field: str, value: object, said: str) -> None:
    with pytest.raises(UsageError) as error:
        executed(**{field: value})
    assert error.value.message == said


def test_bytes_that_are_not_utf8_pass_as_surrogates() -> None:
    assert executed(cmd="cat \udcff").argv()[-1] == b"cat \xff"


def test_a_strange_field_name_is_ignored() -> None:
    assert executed(**{"\ud800": 1}).cmd == "make"


def test_a_size() -> None:
    found = http_bodies.size({"cols": 132})
    assert (found.cols, found.rows) == (132, 24)
    with pytest.raises(UsageError, match="rows: a number of cells"):
        http_bodies.size({"rows": -1})
