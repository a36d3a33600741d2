from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.errors import RefusedError
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath, rel_path
from substrate.workspace.apply.plan import How, Op, Plan

FILE = Node(Kind.FILE, 0o644, b"\1" * 20)
OTHER = Node(Kind.FILE, 0o644, b"\2" * 20)
LINK = Node(Kind.SYMLINK, 0, b"\3" * 20)
DIRECTORY = Node(Kind.DIRECTORY, 0o755)
FIFO = Node(Kind.FIFO, 0o600)


def op(path: bytes, expect: Node, become: Node, how: How = How.REPLACE) -> Op:
    return Op(rel_path(path), expect, become, how)


def test_order_of_execution() -> None:
    plan = Plan.of(
        [
            op(b"b/c/new", ABSENT, FILE),
            op(b"a", FILE, OTHER),
            op(b"b/c", ABSENT, DIRECTORY),
            op(b"b", ABSENT, DIRECTORY),
            op(b"k", DIRECTORY, LINK),
            op(b"old", DIRECTORY, ABSENT),
            op(b"k/in", FILE, ABSENT),
            op(b"old/sub", DIRECTORY, ABSENT),
            op(b"old/sub/f", FILE, ABSENT),
            op(b"z", LINK, ABSENT),
        ]
    )
    assert [o.path for o in plan.ops] == [
        *(b"old/sub/f", b"k/in", b"old/sub", b"old", b"z"),
        *(b"k", b"b", b"b/c", b"a", b"b/c/new"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        b".git/config",
        b"sub/.git/hooks/x",
        b".substrate-git",
        b".substrate-git/x",
        b"a/.substrate-git/x",
    ],
)
def test_nothing_inside_git_or_the_store(path: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        Plan.of([op(path, ABSENT, FILE)])
    assert caught.value.hint


def test_a_git_directory_is_refused_and_a_git_file_is_not() -> None:
    Plan.of([op(b"worktree/.git", FILE, OTHER)])
    for old, new in (
        (DIRECTORY, FILE),
        (FILE, DIRECTORY),
        (ABSENT, DIRECTORY),
        (DIRECTORY, ABSENT),
    ):
        with pytest.raises(RefusedError):
            Plan.of([op(b"worktree/.git", old, new)])


@pytest.mark.parametrize(
    "ops",
    [
        [Op(RelPath(b""), DIRECTORY, DIRECTORY)],
        [op(b"a", FILE, OTHER), op(b"a", FILE, ABSENT)],
        [op(b"a", DIRECTORY, FILE), op(b"a/b", ABSENT, FILE)],
        [op(b"a", FILE, DIRECTORY), op(b"a/b/c", FILE, OTHER)],
    ],
)
def test_what_no_tree_can_satisfy_is_a_bug_of_the_caller(ops: list[Op]) -> None:
    with pytest.raises(ValueError):
        Plan.of(ops)


def test_journalled_plans_refuse_forbidden_places_too() -> None:
    text = Plan((op(b"a/b", ABSENT, FILE),)).to_json().replace("a/b", ".git/b")
    with pytest.raises(RefusedError):
        Plan.from_json(text)
    with pytest.raises(ValueError):
        Plan.from_json(text.replace(".git/b", "../b"))
    with pytest.raises(ValueError):
        Plan.from_json(json.dumps({"format": 99, "ops": []}))


names = st.binary(min_size=1, max_size=20).filter(
    lambda raw: not set(raw) & set(b"/\0") and raw not in (b".", b"..", b".git", b".substrate-git")
)
xattrs = st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=3)
nodes = st.builds(
    Node,
    st.sampled_from(list(Kind)),
    st.integers(0, 0o7777),
    st.sampled_from([b"", b"\xff" * 20]),
    xattrs.map(tuple),
)
ops = st.builds(
    Op, st.lists(names, min_size=1, max_size=4).map(b"/".join).map(rel_path),
    nodes, nodes, st.sampled_from(list(How)),
)  # fmt: skip


@given(st.lists(ops, max_size=5))
def test_the_journal_loses_nothing(given_ops: list[Op]) -> None:
    plan = Plan(tuple(given_ops))
    assert Plan.from_json(plan.to_json()) == plan
    plan.describe()


@pytest.mark.parametrize(
    ("one", "lines"),
    [
        (op(b"src/a.py", ABSENT, FILE), ["restore src/a.py"]),
        (op(b"src/a.py", OTHER, FILE), ["restore src/a.py"]),
        (op(b"log", OTHER, FILE, How.IN_PLACE), ["restore log (in place)"]),
        (op(b"new.txt", FILE, ABSENT), ["delete new.txt"]),
        (op(b"d", DIRECTORY, ABSENT), ["remove directory d/"]),
        (op(b"d", ABSENT, DIRECTORY), ["create directory d"]),
        (op(b"run.sh", FILE, FILE._replace(mode=0o755)), ["chmod 0644 → 0755 run.sh"]),
        (op(b"x", LINK, LINK._replace(oid=b"\4" * 20)), ["replace link x"]),
        (op(b"x", DIRECTORY, LINK), ["replace directory x by a link"]),
        (op(b"x", FIFO, FILE), ["replace fifo x by a file"]),
        (op(b"x", FILE, FILE), []),
        (
            op(b"x", FILE, FILE._replace(mode=0o600, xattrs=((b"user.a", b""),))),
            ["chmod 0644 → 0600 x", "change extended attributes of x"],
        ),
        (op(b"a\nb\x1b[31m\xff", FILE, ABSENT), ["delete a\\nb\\x1b[31m%FF"]),
    ],
)
def test_described_for_people(one: Op, lines: list[str]) -> None:
    assert Plan.of([one]).describe() == lines
