"""How well a stranger finds the way through the code, in numbers.

    python scripts/house.py [CHECKOUT]     for this checkout, or another: compare two commits

Counts modules imported past the door of their room, processes started outside their home, small
modules with one user, archaic sentences, and what one `substrate -c make` and one `undo` touch
without the daemon, and so without its speed layer (`SUBSTRATE_DAEMON=off`).
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

# This directory is on the path of a script.
from plain_english import files_in, sentences
from process_starts import process_starts

_TRACER = """
import os, sys, threading
_calls = os.environ["HOUSE_CALLS"]
_seen = set()
def _note(frame, event, _):
    if event != "call":
        return
    code = frame.f_code
    if "/substrate/" not in code.co_filename or code in _seen or not code.co_flags & 1:
        return  # bit 1: a function, not the body of a module or a class
    if code.co_qualname.startswith("<"):
        return  # a comprehension of a module's body, which an import runs
    _seen.add(code)
    back = frame.f_back
    caller = back.f_code.co_filename if back else ""
    line = "\\t".join((code.co_filename, code.co_qualname, caller)) + "\\n"
    try:  # a world's processes close every descriptor: open the file each time
        file = os.open(_calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError:
        return
    os.write(file, line.encode())
    os.close(file)
threading.setprofile(_note)
sys.setprofile(_note)
"""


class Walk(NamedTuple):
    functions: int
    modules: int
    #: First calls that come from another room, and from another package.
    room_switches: int
    package_switches: int


def modules_of(source: Path) -> dict[str, Path]:
    names = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imported(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Module by module, which others import it or a name from it, through its room's door or not.

    The door itself is no user.
    """
    imports = {
        one: {
            (node.module, alias.name)
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for one, path in modules.items()
    }
    doors = {one for one, path in modules.items() if path.name == "__init__.py"}
    behind = {
        (door, name): module for door in doors for module, name in imports[door] if module != door
    }
    users: dict[str, set[str]] = {}
    for importer in set(modules) - doors:
        for module, name in imports[importer]:
            full = f"{module}.{name}"
            found = full if full in modules else behind.get((module, name), module)
            users.setdefault(found, set()).add(importer)
    return users


def room_of(module: str, modules: dict[str, Path]) -> str:
    is_room = modules[module].name == "__init__.py"
    return module if is_room else module.rpartition(".")[0]


def past_the_door(modules: dict[str, Path]) -> int:
    """How many modules other rooms reach by their own names, not through the room's door."""
    reached = set()
    for importer, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module not in modules:
                continue
            if modules[node.module].name == "__init__.py":
                names = {f"{node.module}.{alias.name}" for alias in node.names} & set(modules)
                names -= {f"{node.module}.{name}" for name in offered(modules[node.module])}
            else:
                names = {node.module}
            own = room_of(importer, modules)
            reached |= {one for one in names if not own.startswith(room_of(one, modules))}
    return len(reached)


def offered(door: Path) -> set[str]:
    tree = ast.parse(door.read_text("utf-8"))
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name for node in found for alias in node.names}


def process_sites(modules: dict[str, Path]) -> Counter[str]:
    sites: Counter[str] = Counter()
    for path in modules.values():
        found = process_starts(path.read_text("utf-8"))
        if found:
            sites["/".join(path.parts[-3:])] = len(found)
    return sites


def small_with_one_user(modules: dict[str, Path]) -> int:
    users = imported(modules)
    return sum(
        len(users.get(module, ())) == 1 and len(path.read_text("utf-8").splitlines()) < 80
        for module, path in modules.items()
        if path.name != "__init__.py"
    )


def walk(words: list[str], project: Path, home: Path, source: Path) -> Walk:
    """What one call touches, with the code in `source`, by first calls of functions."""
    calls = home.parent / "calls"  # a world hides the home
    calls.unlink(missing_ok=True)
    site = home.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_TRACER)
    off = {"SUBSTRATE_DAEMON": "off", "SUBSTRATE_AGENT": "off"}
    environment = os.environ | off | {"SUBSTRATE_HOME": str(home), "HOUSE_CALLS": str(calls)}
    environment["PYTHONPATH"] = f"{site}:{source}"
    argv = [sys.executable, "-m", "substrate", *words]
    done = subprocess.run(argv, cwd=project, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr.decode()}")
    rows = [line.split("\t") for line in calls.read_text().splitlines()]
    own = [[Path(one) for one in (row[0], row[2])] for row in rows if "/substrate" in row[2]]
    return Walk(
        len({(row[0], row[1]) for row in rows}),
        len({row[0] for row in rows}),
        sum(callee.parent != caller.parent for callee, caller in own),
        sum(_package(callee) != _package(caller) for callee, caller in own),
    )


def _package(module: Path) -> str:
    """The part after the last `substrate`: a checkout may have that name, too."""
    return str(module).rpartition("/substrate/")[2].partition("/")[0]


def main(checkout: Path) -> None:
    source = checkout.resolve() / "src" / "substrate"
    modules = modules_of(source)
    rooms = Counter(room_of(one, modules) for one in modules)
    prose = [one for path in files_in([str(source)]) for one in sentences(path)]
    archaic = sum(one.archaic for one in prose)
    sites = process_sites(modules)
    print(f"modules {len(modules)}, rooms {len(rooms)}, largest room {max(rooms.values())}")
    print(f"modules imported past the door of their room  {past_the_door(modules)}")
    print(f"modules under 80 lines with one user          {small_with_one_user(modules)}")
    print(f"calls that start a process                    {sites.total()} in {len(sites)} modules")
    print(f"archaic sentences                             {archaic} of {len(prose)}")
    with tempfile.TemporaryDirectory() as scratch:
        project, home = Path(scratch, "project"), Path(scratch, "home")
        project.mkdir()
        home.mkdir(mode=0o700)
        (project / "Makefile").write_text("all:\n\techo built > out\n")
        walk(["-c", "true"], project, home, source.parent)
        for words in (["-c", "make"], ["undo"]):
            found = walk(words, project, home, source.parent)
            print(
                f"`substrate {' '.join(words)}`: {found.functions} functions in {found.modules} "
                f"modules; first called from another room: {found.room_switches}, from another "
                f"package: {found.package_switches}"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
