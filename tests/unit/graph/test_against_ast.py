"""Python's own parser as the judge: every function, class and import, once, with its lines."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import tarfile
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.graph.extract import extract

Definition = tuple[str, str, int, int]
Import = tuple[int, str]


def judged(data: bytes) -> tuple[Counter[Definition], Counter[Import]] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return None
    definitions: Counter[Definition] = Counter()
    imports: Counter[Import] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            definitions[kind, node.name, node.lineno, node.end_lineno or 0] += 1
        elif isinstance(node, ast.Import):
            imports.update((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            imports.update((node.lineno, f"{module} {alias.name}") for alias in node.names)
    return definitions, imports


def found(data: bytes) -> tuple[Counter[Definition], Counter[Import]]:
    facts = extract(".py", data)
    definitions: Counter[Definition] = Counter()
    for symbol, detail in zip(facts.symbols, facts.details, strict=True):
        if symbol.kind in ("function", "method", "class"):
            kind = "class" if symbol.kind == "class" else "function"
            name = unicodedata.normalize("NFKC", symbol.name)
            definitions[kind, name, detail.span.start_line, detail.span.end_line] += 1
    imports: Counter[Import] = Counter()
    for one in facts.imports:
        module = "." * one.level + one.module
        if not one.names:
            imports[one.span.start_line, module] += 1
        imports.update((one.span.start_line, f"{module} {name}") for name, _ in one.names)
    return definitions, imports


class Tally:
    def __init__(self) -> None:
        self.files = self.wanted = self.right = self.extra = 0
        self.wrong: list[str] = []

    def add(self, file: Path) -> None:
        data = file.read_bytes()
        truth = judged(data)
        if truth is None:
            return
        self.files += 1
        definitions, imports = found(data)
        self._compare(file, Counter(truth[0]), Counter(definitions))
        self._compare(file, Counter(truth[1]), Counter(imports))

    def _compare(self, file: Path, wanted: Counter[tuple], got: Counter[tuple]) -> None:
        self.wanted += wanted.total()
        self.right += (wanted & got).total()
        self.extra += (got - wanted).total()
        self.wrong += [f"{file}: {item}" for item in (wanted - got) | (got - wanted)]

    def check(self, name: str) -> None:
        share = self.right / self.wanted
        print(f"{name}: {self.files} files, {self.wanted} definitions and imports,"
              f" {100 * share:.3f} % found, {self.extra} too many")  # fmt: skip
        assert share >= 0.999, self.wrong[:20]
        assert self.extra <= 0.001 * self.wanted, self.wrong[:20]


def sources(top: Path) -> Iterator[Path]:
    yield from sorted(top.rglob("*.py"))


@pytest.mark.parametrize("package", ["hypothesis", "_pytest", "importlinter"])
def test_installed_packages(package: str) -> None:
    """What is in the test environment anyway; the long test takes whole source distributions."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    tally = Tally()
    for file in sources(Path(spec.origin).parent):
        tally.add(file)
    tally.check(package)


@pytest.mark.long
@pytest.mark.parametrize("package", ["django", "flask", "sympy"])
def test_source_distributions(package: str, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    argv = [*pip, "--dest", str(tmp_path), package]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    archives = list(tmp_path.glob("*.tar.gz"))
    if not archives:
        pytest.skip(f"needs a package index: {done.stderr[-200:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    tally = Tally()
    for file in sources(tmp_path):
        tally.add(file)
    tally.check(package)
