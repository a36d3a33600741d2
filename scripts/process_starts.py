"""Where a process is started or replaced: `tests/unit/test_layers.py` and `house.py` use it."""

from __future__ import annotations

import ast

#: The one module of `substrate` that may do it.
HOME = "system/process/process.py"
#: Other modules that may, each with the reason. There are none: keep it so.
EXCEPTIONS: dict[str, str] = {}

#: These exist to start processes: importing one is enough.
_MODULES = frozenset({"subprocess", "multiprocessing", "concurrent.futures.process"})
#: `os` and those that offer its calls as well.
_OWNERS = frozenset({"os", "posix", "nt", "pty"})
_CALLS = frozenset({"fork", "forkpty", "system", "popen", "startfile"})
_BEGINNINGS = ("exec", "posix_spawn", "spawn")
_FULL_NAMES = frozenset(
    {
        "asyncio.create_subprocess_exec",
        "asyncio.create_subprocess_shell",
        "concurrent.futures.ProcessPoolExecutor",
    }
)


def process_starts(text: str) -> list[str]:
    """The dotted names in a module that start a process, one for each place."""
    return [name for node in ast.walk(ast.parse(text)) for name in _names(node) if _starts(name)]


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Attribute):
        return [ast.unparse(node)]
    return []


def _starts(name: str) -> bool:
    if name in _MODULES or name in _FULL_NAMES:
        return True
    owner, _, call = name.rpartition(".")
    return owner in _OWNERS and (call in _CALLS or call.startswith(_BEGINNINGS))
