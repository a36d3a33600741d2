"""No test passes without a check: none returns early, none asserts what cannot be false."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def problems(source: str) -> list[tuple[int, str]]:
    """Line and reason of everything in a module that lets a test pass without a check."""
    tree = ast.parse(source)
    early = "a test returns early: use parametrize, `needs` or else"
    found = [(node.lineno, early) for node in _returns(tree)]
    found += [
        (node.lineno, f"this cannot fail: assert {ast.unparse(node.test)}")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and _is_always_true(node.test)
    ]
    return sorted(found)


def _returns(tree: ast.AST) -> Iterator[ast.Return]:
    """Those of test functions themselves, not of functions inside them."""
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS) and function.name.startswith("test"):
            pending: list[ast.AST] = list(function.body)
            while pending:
                node = pending.pop()
                if isinstance(node, ast.Return):
                    yield node
                if not isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
                    pending += ast.iter_child_nodes(node)


def _is_always_true(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.Tuple | ast.List | ast.Set | ast.JoinedStr):
        return bool(test.values if isinstance(test, ast.JoinedStr) else test.elts)
    if isinstance(test, ast.Lambda | ast.GeneratorExp):
        return True
    if isinstance(test, ast.BoolOp):
        whether = any if isinstance(test.op, ast.Or) else all
        return whether(_is_always_true(one) for one in test.values)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _always_compares(test.left, test.ops[0], test.comparators[0])
    return False


def _always_compares(left: ast.expr, how: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(how, ast.Gt | ast.GtE):
        how = ast.Lt() if isinstance(how, ast.Gt) else ast.LtE()
        left, right = right, left
    is_same = ast.dump(left) == ast.dump(right) and not _may_differ(left)
    if isinstance(how, ast.Eq | ast.LtE | ast.Is) and is_same:
        return True
    if isinstance(how, ast.LtE) and _is_number(left, 0) and _is_length(right):
        return True  # 0 <= len(x)
    if isinstance(how, ast.Lt) and _is_number(left, -1) and _is_length(right):
        return True
    # x.index(y) < len(x): an index that is found is always smaller.
    return isinstance(how, ast.Lt | ast.LtE | ast.NotEq) and _is_index_in(left, right)


def _may_differ(node: ast.AST) -> bool:
    """What is called or awaited twice may answer otherwise: that is a check."""
    return any(isinstance(one, ast.Call | ast.Await | ast.NamedExpr) for one in ast.walk(node))


def _is_number(node: ast.expr, value: int) -> bool:
    try:
        return bool(ast.literal_eval(node) == value)
    except (ValueError, TypeError):
        return False


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _is_index_in(left: ast.expr, right: ast.expr) -> bool:
    if not (isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute)):
        return False
    if left.func.attr not in ("index", "find") or not isinstance(right, ast.Call):
        return False
    return _is_length(right) and ast.dump(left.func.value) == ast.dump(right.args[0])


def test_every_test_checks_something() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}: {reason}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, reason in problems(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "body",
    [
        "if x:\n        return\n    assert x",
        "for one in x:\n        return",
        "with x:\n        return None",
        "assert True",
        "assert (x, 'a message')",
        "assert x == x",
        "assert x.y <= x.y",
        "assert len(x) >= 0",
        "assert 0 <= len(x)",
        "assert len(x) > -1",
        "assert order.index(y) < len(order)",
        "assert len(order) > order.index(y)",
        "assert x or True",
        "assert (one for one in x)",
    ],
)
def test_what_lets_a_test_pass_is_found(body: str) -> None:
    assert len(problems(f"def test_it(x, y, order):\n    {body}\n")) == 1


@pytest.mark.parametrize(
    "body",
    [
        "def inner():\n        return 1\n    assert inner() == 1",
        "assert x == y",
        "assert made(x) == made(x)",
        "assert len(x) >= 1",
        "assert x.index(y) < x.index(order)",
        "assert x and True",
    ],
)
def test_a_check_is_not_complained_of(body: str) -> None:
    assert problems(f"def test_it(x, y, order):\n    {body}\n") == []
