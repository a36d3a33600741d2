"""What differs between two commits, and what depends on it."""

from __future__ import annotations

import pytest

from substrate.graph.index.delta import Delta, compare
from substrate.graph.index.snapshot import Snapshot
from tests.unit.graph.conftest import Content, Project

BASE: dict[str, Content] = {
    "core.py": "def low():\n    return 1\n\n\ndef mid():\n    return low()\n\n\nLIMIT = 3\n",
    "top.py": "from core import mid\n\n\ndef high():\n    return mid()\n",
    "same_name.py": "def low():\n    return 2\n\n\ndef own():\n    return low()\n",
    "uses_limit.py": "from core import LIMIT\n\n\ndef f():\n    return LIMIT\n",
    "shape.py": "class Shape:\n    def __init__(self):\n        self.a = 1\n\n    def area(self):\n"
    "        return 1\n",
    "draw.py": "from shape import Shape\n\n\ndef draw():\n    return Shape()\n\n\n"
    "class Box(Shape):\n    pass\n",
}


def delta(project: Project, edit: dict[str, Content]) -> Delta:
    project.commit(BASE)
    project.commit(edit)
    sides = [project.index("HEAD~1"), project.index("HEAD")]
    base, head = (Snapshot(bytes.fromhex(side.name), side) for side in sides)
    return compare(base, head)


def names(found: Delta) -> dict[str, list[str]]:
    return {
        "added": [s.fqname for s in found.symbols_added],
        "changed": [s.fqname for s in found.symbols_changed],
        "deleted": [s.fqname for s in found.symbols_deleted],
        "moved": [f"{m.old.fqname} > {m.new.fqname}" for m in found.symbols_moved],
        "invalidated": sorted(s.fqname for s in map(found.head.symbol, found.invalidated) if s),
    }


def replaced(name: str, old: str, new: str) -> dict[str, Content]:
    source = BASE[name]
    assert isinstance(source, str)
    assert old in source
    return {name: source.replace(old, new)}


CASES: list[tuple[str, dict[str, Content], dict[str, list[str]]]] = [
    (
        "a body",
        replaced("core.py", "return 1", "return 9"),
        {"changed": ["core.low"], "invalidated": ["core.mid", "top.high"]},
    ),
    (
        "lines that only moved",
        replaced("core.py", "def low", "\n\n\ndef low"),
        {},
    ),
    (
        "a function gone",
        replaced("core.py", "def mid():\n    return low()\n", ""),
        {"deleted": ["core.mid"], "invalidated": ["top.high"]},
    ),
    (
        "a function moved to another file",
        {**replaced("core.py", "def low():\n    return 1\n\n\n", "from new import low\n\n\n"),
         "new.py": "def low():\n    return 1\n"},
        {"changed": ["core"], "moved": ["core.low > new.low"],
         "invalidated": ["core.mid", "top.high"]},
    ),
    (
        "a constant",
        replaced("core.py", "LIMIT = 3", "LIMIT = 4"),
        {"changed": ["core.LIMIT"], "invalidated": ["uses_limit"]},
    ),
    (
        "a constructor",
        replaced("shape.py", "self.a = 1", "self.a = 2"),
        {"changed": ["shape.Shape.__init__"],
         "invalidated": ["draw", "draw.Box", "draw.draw"]},
    ),
    ("another method", replaced("shape.py", "        return 1", "        return 2"),
     {"changed": ["shape.Shape.area"]}),
    ("something new", {"extra.py": "def extra():\n    return 1\n"}, {"added": ["extra.extra"]}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "edit", "expected"), CASES, ids=[case[0] for case in CASES])
def test_symbols_of_a_change(
    project: Project, what: str, edit: dict[str, Content], expected: dict[str, list[str]]
) -> None:
    found = names(delta(project, edit))
    assert {kind: symbols for kind, symbols in found.items() if symbols} == expected


def test_files_added_changed_deleted_and_renamed(project: Project) -> None:
    source = BASE["shape.py"]
    assert isinstance(source, str)
    found = delta(
        project,
        {
            "same_name.py": None,
            "renamed.py": BASE["same_name.py"],
            "shape.py": None,
            "form.py": source + "\n\ndef more(): ...\n",
            "top.py": "x = 1\n",
            "fresh.py": "y = 2\n",
        },
    )
    assert found.files_renamed == [(b"same_name.py", b"renamed.py"), (b"shape.py", b"form.py")]
    assert found.files_added == [b"fresh.py"]
    assert found.files_changed == [b"top.py"]
    assert found.files_deleted == []
    assert "shape.Shape.area > form.Shape.area" in names(found)["moved"]


def test_a_commit_compared_with_itself_is_empty(project: Project) -> None:
    found = delta(project, {})
    assert found.is_empty
    assert found.invalidated == {}


def test_a_long_chain_of_calls_in_one_file(project: Project) -> None:
    links = [f"def f{n}():\n    return f{n + 1}()\n" for n in range(300)]
    project.commit({"chain.py": "\n\n".join([*links, "def f300():\n    return 1\n"])})
    project.commit({"chain.py": "\n\n".join([*links, "def f300():\n    return 2\n"])})
    sides = [project.index("HEAD~1"), project.index("HEAD")]
    base, head = (Snapshot(bytes.fromhex(side.name), side) for side in sides)
    found = compare(base, head)
    assert len(found.invalidated) == 300
    for symbol_id, reason in found.invalidated.items():
        symbol = head.symbol(symbol_id)
        assert symbol is not None
        assert symbol.name == f"f{300 - reason.distance}"
