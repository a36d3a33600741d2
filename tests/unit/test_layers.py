"""The architecture as checks: what each layer may touch, and what import time may cost.

import-linter holds the direction of imports; ruff bans calls, but can only switch its rule off
for a whole file, so the homes are checked one by one here.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "substrate"
MODULES = sorted(SOURCE.rglob("*.py"))


def _script(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STARTS = _script("process_starts")

#: What may be named in one place only, and that place.
HOMES = {
    "os.environ": "system/environment.py",
    "os.environb": "system/environment.py",
    "os.getenv": "system/environment.py",
    "time.time": "system/clock.py",
    "time.time_ns": "system/clock.py",
    "datetime.now": "system/clock.py",
    "datetime.datetime.now": "system/clock.py",
    "print": "cli/frame/output.py",
}

#: They import the MCP SDK, an extra, which looks at the platform and not at what is missing.
WITH_MCP_SDK = ("mcp_server/answers.py", "mcp_server/tools.py")
#: There on Linux only, or not on Windows.
NOT_EVERYWHERE = (
    "fcntl",
    "pwd",
    "grp",
    "resource",
    "termios",
    "tty",
    "pty",
    "ctypes",
    "_posixshmem",
)

#: Each costs milliseconds at start-up, which every recorded command would pay.
HEAVY = (
    "argparse",
    "asyncio",
    "ctypes",
    "difflib",
    "hashlib",
    "importlib.metadata",
    "json",
    "logging",
    "pathspec",
    "platform",
    "shutil",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "traceback",
    "unittest",
)


def uses(tree: ast.Module) -> set[str]:
    """Dotted names in a module: imported, called or looked up."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
    return found


def strays(where: str, text: str) -> set[str]:
    """What the module at `where` names although its home is elsewhere."""
    return {name for name in uses(ast.parse(text)) & set(HOMES) if HOMES[name] != where}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_each_door_to_the_outside_has_one_home(module: Path) -> None:
    assert strays(module.relative_to(SOURCE).as_posix(), module.read_text("utf-8")) == set()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_processes_are_started_in_one_module(module: Path) -> None:
    where = module.relative_to(SOURCE).as_posix()
    found = STARTS.process_starts(module.read_text("utf-8"))
    assert bool(found) == (where == STARTS.HOME or where in STARTS.EXCEPTIONS), found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import subprocess", ["subprocess"]),
        ("def f():\n    from subprocess import run", ["subprocess"]),
        ("import os\nreally = os.fork", ["os.fork"]),
        ("from os import execv", ["os.execv"]),
        ("import posix\nposix.execve(a, b, c)", ["posix.execve"]),
        ("import os\nos.posix_spawnp(a, b, c); os.system(a)", ["os.posix_spawnp", "os.system"]),
        ("import pty\npty.fork()", ["pty.fork"]),
        ("import asyncio\nasyncio.create_subprocess_exec(a)", ["asyncio.create_subprocess_exec"]),
        ("from multiprocessing import Pool", ["multiprocessing"]),
        ("from substrate.system.process import fork_workers\nfork_workers.fork(a)", []),
        ("import os\nos.getpid(); os.environ", []),
    ],
)
def test_a_started_process_is_noticed(text: str, found: list[str]) -> None:
    assert STARTS.process_starts(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from os import environ", {"os.environ"}),
        ("import os\nos.environ.get('X')", {"os.environ"}),
        ("from datetime import datetime\ndatetime.now()", {"datetime.now"}),
        ("def f():\n    import time\n    return time.time()", {"time.time"}),
        ("print('x')", {"print"}),
        ("import os\nos.getcwd()", set()),
    ],
)
def test_a_stray_use_is_noticed(text: str, found: set[str]) -> None:
    assert strays("history/store/history_store.py", text) == found


def python(script: str) -> str:
    """What `script` prints in an interpreter of its own; it must not fail."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _global_names(text: str) -> list[str]:
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Global))
    return [name for node in found for name in node.names]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_function_assigns_a_global(module: Path) -> None:
    """State of the process is in an object with a name: a reader sees what can change it."""
    assert _global_names(module.read_text("utf-8")) == []


def test_a_global_is_noticed() -> None:
    assert _global_names("a = 0\ndef set_it():\n    global a, b\n    a = 1\n") == ["a", "b"]


def test_every_module_imports_where_linux_is_missing() -> None:
    """macOS and Windows import the same packages; so blocked modules must not stop any of them."""
    names = [
        ".".join(("substrate", *module.relative_to(SOURCE).with_suffix("").parts))
        for module in MODULES
        if module.name not in ("__init__.py", "__main__.py")
        and module.relative_to(SOURCE).as_posix() not in WITH_MCP_SDK
    ]
    python(
        f"""
import importlib, sys
for name in {NOT_EVERYWHERE!r}:
    sys.modules[name] = None
for name in {names!r}:
    importlib.import_module(name)
"""
    )


def test_the_programs_start_is_light() -> None:
    said = python(
        f"""
import sys
before = set(sys.modules)
import substrate.cli.main
print(*sorted((set(sys.modules) - before) & set({HEAVY!r})))
"""
    )
    assert said.split() == []


def test_the_package_itself_imports_nothing_of_ours() -> None:
    said = python(
        "import substrate, sys; print(*sorted(m for m in sys.modules if 'substrate.' in m))"
    )
    assert said.split() == []


def test_an_unknown_name_in_the_package_is_an_attribute_error() -> None:
    import substrate

    with pytest.raises(AttributeError, match="no attribute 'Histroy'"):
        substrate.__getattr__("Histroy")
