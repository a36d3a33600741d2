"""A small git project, and its graph."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from substrate.graph.index.graph_paths import FILES, Layout
from substrate.graph.index.index_commit import ensure
from substrate.objects.git.repository import Repository

Row = dict[str, object]
Content = str | bytes | None


class Project:
    """Files in, commits and snapshots out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = Layout(root / ".ctx" / "graph")
        root.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        (root / ".git/info/exclude").write_text(".ctx/\n")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *words], capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    def write(self, files: Mapping[str, Content]) -> None:
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, files: Mapping[str, Content] | None = None, message: str = "work") -> bytes:
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return bytes.fromhex(self.git("rev-parse", "HEAD"))

    def index(self, revision: str = "HEAD", layout: Layout | None = None) -> Path:
        """The directory of the revision's snapshot."""
        layout = layout or self.layout
        with Repository(self.root / ".git", self.root) as repository:
            commit = repository.resolve_commit(revision)
            ensure(layout, repository, commit, "project")
        return layout.snapshot(commit)

    def records(self, name: str, revision: str = "HEAD") -> list[Row]:
        return read_lines(self.index(revision) / name)

    def symbols(self, revision: str = "HEAD") -> dict[str, Row]:
        return {str(row["fqname"]): row for row in self.records("symbols.jsonl", revision)}

    def calls(self, revision: str = "HEAD") -> set[tuple[str, str]]:
        """``(caller, callee)``; what is not in the project is in brackets."""
        names = {row["symbol_id"]: str(row["fqname"]) for row in self.symbols(revision).values()}
        found = set()
        for row in self.records("edges.calls.jsonl", revision):
            target = row.get("to_symbol_id")
            text = names[target] if target else f"[{row['to_external_ref']}]"
            found.add((names[row["from_symbol_id"]], text))
        return found

    def imports(self, revision: str = "HEAD") -> set[tuple[str, str]]:
        paths = {row["path_id"]: str(row["path"]) for row in self.records("files.jsonl", revision)}
        found = set()
        for row in self.records("edges.imports.jsonl", revision):
            target = row.get("to_path_id")
            text = paths[target] if target else f"[{row['to_external_module']}]"
            found.add((paths[row["from_path_id"]], text))
        return found


def read_lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def contents(snapshot: Path) -> dict[str, bytes]:
    return {name: (snapshot / name).read_bytes() for name in FILES}


MakeProject = Callable[[str], Project]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    return lambda name: Project(tmp_path / name)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")
