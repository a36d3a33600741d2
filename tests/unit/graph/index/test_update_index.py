"""The next commit's snapshot, spliced, is byte for byte the one made from nothing."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate.graph.index.graph_paths import Layout
from tests.unit.graph.conftest import Content, Project, contents


def both(project: Project, scratch: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    spliced = contents(project.index())
    shutil.rmtree(scratch, ignore_errors=True)
    return spliced, contents(project.index(layout=Layout(scratch)))


BASE: dict[str, Content] = {
    "pkg/__init__.py": "from .core import run\nfrom .shapes import *\n",
    "pkg/core.py": "def run():\n    return step()\n\n\ndef step():\n    return 1\n",
    "pkg/shapes.py": "class Base:\n    def area(self): ...\n\n\n"
    "class Box(Base):\n    def fill(self):\n        return self.area()\n",
    "app.py": "from pkg import run, Box\nimport pkg.core as core\n\n\ndef main():\n    run()\n"
    "    core.step()\n    Box().fill()\n    thing.unusual()\n",
    "other.py": "class Thing:\n    def unusual(self): ...\n",
    "web/a.ts": 'import { b } from "./b";\nimport D from "./d";\nb();\nD();\n',
    "web/b.ts": "export function b() { return 1; }\n",
    "web/d.ts": "export default function d() { return 2; }\n",
    "deep.py": "def far(): ...\n",
    "hub.py": "from deep import *\n",
    "far_user.py": "from hub import far\n\n\ndef u():\n    far()\n",
    "alias.py": "from deep import far as near\n",
    "near_user.py": "from alias import near\n\n\ndef v():\n    near()\n",
    "heir.py": "from mid import Mid\n\n\nclass Heir(Mid):\n    def m(self):\n"
    "        self.old_trick()\n",
    "mid.py": "from upper import Upper\n\n\nclass Mid(Upper): ...\n",
    "upper.py": "from tops import One, Two\n\n\nclass Upper(One): ...\n",
    "tops.py": "class One:\n    def old_trick(self): ...\n\n\n"
    "class Two:\n    def old_trick(self): ...\n",
    "go.mod": "module example.com/m\n",
    "srv/x.go": "package srv\n\nfunc X() { y() }\n",
    "srv/y.go": "package srv\n\nfunc y() {}\n",
    "cmd/main.go": 'package main\n\nimport "example.com/m/srv"\n\nfunc main() { srv.X() }\n',
    "lib/u.c": '#include "u.h"\nint helper(int a) { return a; }\n',
    "lib/u.h": "#define ONE 1\n",
    "lib/v.c": '#include "u.h"\nint go(void) { return helper(ONE); }\n',
}

EDITS: list[tuple[str, dict[str, Content]]] = [
    ("a body", {"pkg/core.py": "def run():\n    return step()\n\n\ndef step():\n    return 2\n"}),
    ("a renamed function", {"pkg/core.py": "def run():\n    return go()\n\n\ndef go(): ...\n"}),
    ("another with the same name", {"third.py": "class More:\n    def unusual(self): ...\n"}),
    ("the only one gone", {"other.py": None}),
    ("a re-export", {"pkg/__init__.py": "from .shapes import *\n"}),
    ("a star import gone", {"pkg/__init__.py": "from .core import run\n"}),
    ("a base class", {"pkg/shapes.py": "class Base: ...\n\n\n"
     "class Box(Base):\n    def fill(self):\n        return self.area()\n"}),
    ("behind a star", {"deep.py": "def other(): ...\n"}),
    ("far up the line", {"upper.py": "from tops import One, Two\n\n\nclass Upper(Two): ...\n"}),
    ("a module appears", {"thing.py": "def unusual(): ...\n"}),
    ("a module goes", {"web/b.ts": None}),
    ("a module moves", {"web/b.ts": None, "web/b/index.ts": "export function b() { return 1; }\n"}),
    ("a default export", {"web/d.ts": "function d() {}\nexport default function e() {}\n"}),
    ("a sibling of a package", {"srv/y.go": "package srv\n\nfunc z() {}\n"}),
    ("a new file of a package", {"srv/n.go": "package srv\n\nfunc N() {}\n"}),
    ("the module's name", {"go.mod": "module example.com/other\n"}),
    ("a second C function", {"lib/w.c": "int helper(int b) { return b; }\n"}),
    ("a package no more", {"pkg/__init__.py": None}),
    ("not parseable", {"pkg/core.py": "def run(:\n  ???\n"}),
    ("no text", {"pkg/core.py": b"\0\1\2"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "edit"), EDITS, ids=[what for what, _ in EDITS])
def test_a_spliced_snapshot_is_the_same_as_a_whole_one(
    project: Project, tmp_path: Path, what: str, edit: dict[str, Content]
) -> None:
    project.commit(BASE)
    project.index()
    project.commit(edit)
    spliced, whole = both(project, tmp_path / "scratch")
    assert spliced == whole
    restore = {name: BASE.get(name) for name in edit}
    project.commit(restore)
    spliced, whole = both(project, tmp_path / "scratch")
    assert spliced == whole


def test_edges_of_unchanged_files_follow_what_they_pointed_at(project: Project) -> None:
    project.commit(BASE)
    assert ("app.main", "pkg.core.step") in project.calls()
    project.commit({"pkg/core.py": "def run():\n    return 1\n"})
    assert ("app.main", "pkg.core.step") not in project.calls()
    assert ("app.main", "pkg.core.run") in project.calls()


def test_edges_follow_stars_aliases_and_bases_far_away(project: Project) -> None:
    project.commit(BASE)
    calls = project.calls()
    assert {("far_user.u", "deep.far"), ("near_user.v", "deep.far")} <= calls
    assert ("heir.Heir.m", "tops.One.old_trick") in calls
    project.commit({"deep.py": "x = 1\n", **dict(EDITS)["far up the line"]})
    calls = project.calls()
    assert not {("far_user.u", "deep.far"), ("near_user.v", "deep.far")} & calls
    assert ("heir.Heir.m", "tops.Two.old_trick") in calls


MODULES = ["a", "b", "c", "pkg/__init__", "pkg/d"]
LINES = [
    "def f(): return g()", "def g(): return f()", "class K:\n    def m(self): return self.n()",
    "class L(K):\n    def n(self): return self.m()", "from a import *", "from b import f as h",
    "from pkg import g, d", "import pkg.d", "from . import d", "from c import h, K",
    "def k(): h(); pkg.d.f(); d.g(); K().m(); x.n()", "from a import f", "import b", "b.f()",
]  # fmt: skip
SOURCES = st.none() | st.lists(st.sampled_from(LINES), max_size=5, unique=True).map(
    lambda lines: "\n".join(lines) + "\n"
)
TREES = st.fixed_dictionaries({f"{name}.py": SOURCES for name in MODULES})


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees=st.lists(TREES, min_size=2, max_size=6))
def test_random_histories(trees: list[dict[str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        project = Project(Path(scratch) / "project")
        for tree in trees:
            for name, content in tree.items():
                path = project.root / name
                path.parent.mkdir(exist_ok=True)
                path.unlink(missing_ok=True)
                if content is not None:
                    path.write_text(content)
            project.commit()
            spliced, whole = both(project, Path(scratch) / "whole")
            assert spliced == whole
