"""Rooms have one door: no import reaches past the ``__init__`` of another room.

A room is a package below `substrate`. Its ``__init__`` lists what other rooms may use, once for the
type checker and once for `substrate.room_door.lazy_names`.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "substrate"

#: These packages are imported before anything else is, by a process that counts each millisecond,
#: or hold a few modules that are all public. Their modules are imported by their full names.
WITHOUT_DOOR = {"substrate", "substrate.cli", "substrate.client", "substrate.protocol"}

#: `substrate` is the interface for programs (docs/python.md); the grammars are loaded by language.
WITHOUT_LAZY_NAMES = {"substrate", "substrate.graph.grammars"}

#: What the command line must not know: it asks `recorder`.
BELOW_RECORDER = {"history", "packs", "world", "graph", "objects", "workspace", "trace", "rewrite"}


def module_names() -> dict[str, Path]:
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


MODULES = module_names()
ROOMS = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")
PATHS = sorted(name for name, path in MODULES.items() if path.name != "__init__.py")


class Imported(NamedTuple):
    module: str
    name: str


def room_of(module: str) -> str:
    return module if module in ROOMS else module.rpartition(".")[0]


def imports(text: str) -> set[Imported]:
    return {
        Imported(node.module, alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "substrate"
        for alias in node.names
        if node.module
    }


@functools.cache
def offered(room: str) -> set[str]:
    """What a room's ``__init__`` shows to the type checker, or defines itself."""
    tree = ast.parse(MODULES[room].read_text("utf-8"))
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(one.id for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def reaching_past(importer: str, text: str) -> list[str]:
    """The imports in `text` that do not go through the door of the room they enter."""
    wrong = []
    for module, name in sorted(imports(text)):
        target = f"{module}.{name}" if f"{module}.{name}" in MODULES else module
        room = room_of(target)
        own = room_of(importer)
        if room in WITHOUT_DOOR or own == room or own.startswith(f"{room}.") or target in ROOMS:
            if module in ROOMS and target == module and name not in offered(module):
                wrong.append(f"{module} does not offer {name}")
            continue
        if module != room or name not in offered(room):
            wrong.append(f"{module}.{name} is not offered by {room}")
    return wrong


def test_no_import_reaches_past_a_door() -> None:
    wrong = {one: reaching_past(one, MODULES[one].read_text("utf-8")) for one in PATHS}
    assert {one: found for one, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "text",
    [
        "from substrate.history.store.ledger import Ledger",
        "from substrate.history.store import no_such_thing",
        "from substrate.workspace.apply.staging import stage",
    ],
)
def test_reaching_past_a_door_is_noticed(text: str) -> None:
    assert len(reaching_past("substrate.recorder.queries", text)) == 1


def test_the_command_line_asks_the_recorder() -> None:
    wrong = {
        (importer, one.module)
        for importer in PATHS
        if importer.startswith("substrate.cli.")
        for one in imports(MODULES[importer].read_text("utf-8"))
        if BELOW_RECORDER & set(one.module.split(".")[1:2])
    }
    assert wrong == set()


def lazy_names_of(room: str) -> set[str]:
    """The names in a door's call of `lazy_names`."""
    for node in ast.walk(ast.parse(MODULES[room].read_text("utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "lazy_names":
            table = ast.literal_eval(node.args[1])
            return {name for names in table.values() for name in names.split(", ")}
    return set()


def test_a_door_offers_nothing_by_the_name_of_its_own_module() -> None:
    """Once the module is imported, Python finds it by that name and not what the door offers."""
    wrong = [f"{room}.{name}" for room in ROOMS for name in lazy_names_of(room)]
    assert len(wrong) > 100
    assert set(wrong) & set(PATHS) == set()


@pytest.mark.parametrize("room", sorted(set(ROOMS) - WITHOUT_LAZY_NAMES))
def test_a_door_offers_the_same_to_python_and_to_the_type_checker(room: str) -> None:
    for_checker = set()
    for node in ast.walk(ast.parse(MODULES[room].read_text("utf-8"))):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for one in node.body:
                assert isinstance(one, ast.ImportFrom)
                for alias in one.names:
                    if f"{one.module}.{alias.name}" not in MODULES or one.module != room:
                        for_checker.add(alias.asname or alias.name)
    assert for_checker == lazy_names_of(room)


@pytest.mark.parametrize("room", [room for room in ROOMS if lazy_names_of(room)])
def test_every_offered_name_is_there(room: str) -> None:
    module = __import__(room, fromlist=("x",))
    assert [name for name in sorted(lazy_names_of(room)) if not hasattr(module, name)] == []
    with pytest.raises(AttributeError, match="has no attribute"):
        _ = module.no_such_name


def test_a_door_offers_nothing_that_no_other_room_uses() -> None:
    used: dict[str, set[str]] = {}
    for importer, path in MODULES.items():
        for module, name in imports(path.read_text("utf-8")):
            if room_of(importer) != module:
                used.setdefault(module, set()).add(name)
    unused = {room: lazy_names_of(room) - used.get(room, set()) for room in ROOMS}
    assert {room: names for room, names in unused.items() if names} == {}
