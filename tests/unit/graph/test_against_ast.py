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
from pathlib import Path
from typing import cast

import pytest

from substrate.graph.parse.extract_facts import extract
from tests.unit.graph.conftest import Project

Definition = tuple[str, str, int, int]
Import = tuple[int, str]
Found = tuple[Counter[Definition], Counter[Import]]


def judged(data: bytes) -> Found | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return None
    definitions: Counter[Definition] = Counter()
    imports: Counter[Import] = Counter()
    _judge(tree, "", definitions, imports)
    return definitions, imports


def _judge(
    above: ast.AST, inside: str, definitions: Counter[Definition], imports: Counter[Import]
) -> None:
    """`inside`: the kind of the nearest enclosing definition, to distinguish methods."""
    for node in ast.iter_child_nodes(above):
        kind = inside
        if isinstance(node, ast.ClassDef):
            kind = "class"
            definitions[kind, node.name, node.lineno, node.end_lineno or 0] += 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kind = "method" if inside == "class" else "function"
            definitions[kind, node.name, node.lineno, node.end_lineno or 0] += 1
        elif isinstance(node, ast.Import):
            imports.update((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            imports.update((node.lineno, f"{module} {alias.name}") for alias in node.names)
        _judge(node, kind, definitions, imports)


def found(data: bytes) -> Found:
    facts = extract(".py", data)
    definitions: Counter[Definition] = Counter()
    for symbol, detail in zip(facts.symbols, facts.details, strict=True):
        if symbol.kind in ("function", "method", "class"):
            name = unicodedata.normalize("NFKC", symbol.name)
            definitions[symbol.kind, name, detail.span.start_line, detail.span.end_line] += 1
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

    def add(self, name: str, data: bytes, got: Found) -> None:
        truth = judged(data)
        if truth is None:
            return
        self.files += 1
        self.compare(name, Counter(truth[0]), Counter(got[0]))
        self.compare(name, Counter(truth[1]), Counter(got[1]))

    def compare(self, file: str, wanted: Counter[tuple], got: Counter[tuple]) -> None:
        self.wanted += wanted.total()
        self.right += (wanted & got).total()
        self.extra += (got - wanted).total()
        self.wrong += [f"{file}: {item}" for item in (wanted - got) | (got - wanted)]

    def check(self, name: str) -> None:
        share = self.right / self.wanted
        print(f"\n{name}: {self.files} files, {self.wanted} definitions and imports,"
              f" {100 * share:.3f} % found, {self.extra} too many", *self.wrong[:4])  # fmt: skip
        assert share >= 0.999, self.wrong[:20]
        assert self.extra <= 0.0001 * self.wanted, self.wrong[:20]


@pytest.mark.parametrize("package", ["hypothesis", "_pytest", "importlinter"])
def test_installed_packages(package: str) -> None:
    """What is in the test environment anyway; the long test takes whole source distributions."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    tally = Tally()
    for file in sorted(Path(spec.origin).parent.rglob("*.py")):
        data = file.read_bytes()
        tally.add(str(file), data, found(data))
    tally.check(package)


def recorded(project: Project) -> dict[str, Found]:
    """Path -> what the graph's own files say of it: symbols and their regions, import edges."""
    paths = {row["path_id"]: str(row["path"]) for row in project.records("files.jsonl")}
    lines = {row["region_id"]: row for row in project.records("regions.jsonl")}
    told: dict[str, Found] = {path: (Counter(), Counter()) for path in paths.values()}
    ids = Counter(row["symbol_id"] for row in project.records("symbols.jsonl"))
    assert not ids or max(ids.values()) == 1, "a symbol has two records"
    for row in project.records("symbols.jsonl"):
        if row["kind"] in ("function", "method", "class"):
            region = lines[row["def_region_id"]]
            definition = (row["kind"], row["name"], region["start_line"], region["end_line"])
            told[paths[row["path_id"]]][0][cast("Definition", definition)] += 1
    for row in project.records("edges.imports.jsonl"):
        start = cast("int", lines[row["import_region_id"]]["start_line"])
        told[paths[row["from_path_id"]]][1][start, ""] += 1
    return told


def statements(imports: Counter[Import]) -> Counter[Import]:
    """An edge names a file or a module, not what is taken from it: its line has to be right."""
    return Counter(dict.fromkeys(((line, "") for line, _ in imports), 1))


@pytest.mark.long
@pytest.mark.needs("package-index")
@pytest.mark.parametrize("package", ["django", "flask", "sympy"])
def test_source_distributions(package: str, tmp_path: Path) -> None:
    """Extraction, and then the records that `ctx index` writes, against Python's own parser."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    argv = [*pip, "--dest", str(tmp_path), package]
    subprocess.run(argv, check=True)
    project = Project(tmp_path / "project")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(project.root, filter="data")
    project.commit()
    told = recorded(project)
    extracted, written = Tally(), Tally()
    for name, (definitions, imports) in told.items():
        if not name.endswith(".py") or (project.root / name).is_symlink():
            continue
        data = (project.root / name).read_bytes()
        extracted.add(name, data, found(data))
        truth = judged(data)
        if truth is not None:
            written.compare(name, truth[0], definitions)
            written.compare(name, statements(truth[1]), statements(imports))
    assert extracted.files > 50
    extracted.check(f"{package}, extracted")
    written.check(f"{package}, recorded")
