"""Which edges are made again: few enough for a name that every file uses, and never too few."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate.graph.index import affected, name_reach, update_index
from substrate.graph.index.update_index import Update
from substrate.graph.resolve import project_view
from tests.unit.graph.conftest import Content, Project
from tests.unit.graph.index.test_update_index import both

Sources = dict[str, Content]
Language = Callable[..., Sources]


def python(number: int, method: str = "go") -> Sources:
    near = (number + 1) % 60
    return {
        f"pkg/d{number // 10}/m{number}.py": f"from pkg.d{near // 10}.m{near} import K{near}\n\n\n"
        f"class K{number}:\n    def {method}(self):\n        return self.step()\n\n"
        f"    def step(self):\n        return K{near}().go()\n\n\n"
        f"def run(x):\n    x.go()\n    K{number}().go()\n"
    }


def golang(number: int, method: str = "Go") -> Sources:
    return {
        f"d{number // 10}/m{number}.go": f"package d{number // 10}\n\ntype K{number} struct{{}}\n\n"
        f"func (k *K{number}) {method}() int {{ return k.step() }}\n"
        f"func (k K{number}) step() int {{ return help{number // 10}() }}\n"
        f"func help{number}() int {{ return 1 }}\n"
        f"func run{number}(x I, k K{number}) {{ x.Go(); k.Go(); help{number}() }}\n"
    }


def c(number: int, method: str = "go") -> Sources:
    return {
        f"d{number // 10}/m{number}.c": f"static int {method}(int a) {{ return a + {number}; }}\n\n"
        f"int run{number}(void) {{ return go({number}); }}\n"
    }


def rust(number: int, method: str = "go") -> Sources:
    return {
        f"src/d{number // 10}/m{number}.rs": f"pub struct K{number} {{}}\n\nimpl K{number} {{\n"
        f"    pub fn {method}(&self) -> i32 {{ self.step() }}\n"
        f"    fn step(&self) -> i32 {{ 1 }}\n}}\n\n"
        f"fn run(x: &I) {{ x.go(); let k = K{number} {{}}; k.go(); }}\n"
    }


def typescript(number: int, method: str = "go") -> Sources:
    near = (number + 1) % 60
    return {
        f"web/m{number}.ts": f'import {{ K{near} }} from "./m{near}";\n\n'
        f"export class K{number} {{\n  {method}() {{ return this.step(); }}\n"
        f"  step() {{ return new K{near}().go(); }}\n}}\n\n"
        "export function run(x: any) { x.go(); }\n"
    }


def typescript_in_directories(number: int) -> Sources:
    near = (number + 1) % 60
    place = f"d{near // 10}/m{near}"
    return {
        f"web/d{number // 10}/m{number}.ts": f'import {{ K{near} }} from "../{place}";\n'
        f"export class K{number} extends K{near} {{}}\n"
    }


def count_resolved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The list gets the number of rows whose edges are made again, for each update."""
    resolved: list[int] = []
    found_by = Update.rows_to_resolve

    def counted(update: Update) -> set[int]:
        rows = found_by(update)
        resolved.append(len(rows))
        return rows

    monkeypatch.setattr(Update, "rows_to_resolve", counted)
    return resolved


@pytest.mark.parametrize("language", [python, golang, c, rust, typescript])
def test_a_name_that_all_files_use_goes_from_five(
    project: Project, tmp_path: Path, language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_reach, "FEW_ROWS", 8)
    monkeypatch.setattr(affected, "FEW_ROWS", 8)
    resolved = count_resolved(monkeypatch)
    whole: Sources = {}
    for number in range(60):
        whole |= language(number)
    project.commit({"go.mod": "module example.com/m\n", **whole})
    project.index()
    five: Sources = {}
    for number in range(45, 60, 3):
        five |= language(number, "Went")
    project.commit(five)
    spliced, made_whole = both(project, tmp_path / "scratch")
    assert spliced == made_whole
    # The five files themselves, and those that use one of their classes.
    assert resolved == [resolved[0]]
    assert resolved[0] <= 15


@pytest.mark.parametrize(
    ("language", "imported", "new"),
    [
        (python, "import sys\nsys.exit()\n", {"pkg/d1/sys.py": "def exit():\n    return 1\n"}),
        (
            typescript_in_directories,
            'import * as sys from "./sys";\nsys.exit();\n',
            {"web/d1/sys.ts": "export function exit() {}\n"},
        ),
    ],
)
def test_a_new_file_whose_name_all_files_mention(
    project: Project, tmp_path: Path, language: Language, imported: str, new: Sources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(name_reach, "FEW_ROWS", 8)
    monkeypatch.setattr(affected, "FEW_ROWS", 8)
    resolved = count_resolved(monkeypatch)
    for number in range(60):
        for name, content in language(number).items():
            # Most files also mention `__init__`, a name of packages' files.
            project.write({name: str(content) + imported + "x.__init__()\n"})
    project.commit()
    project.index()
    project.commit(new)
    spliced, made_whole = both(project, tmp_path / "scratch")
    assert spliced == made_whole
    # The ten files beside it, and one elsewhere that imports another file from there.
    assert resolved == [resolved[0]]
    assert 10 <= resolved[0] <= 12


PYTHON = [
    "def go(): return run()", "def run(): return go()", "class K:\n    def go(self): self.run()",
    "class L(K):\n    def run(self): return self.go()", "from a import *",
    "from b import go as run",
    "from pkg import K, d", "import pkg.d as zz", "from . import d as zz", "from c import K as L",
    "def k(): run(); zz.go(); d.go(); K().go(); x.go()", "from a import K", "import b", "b.go()",
    "import pkg\npkg.d.go()",
    "from b import zz", "from c import zz as yy\nyy.run()", "class M(L): ...\nM().go()",
    "import pkg as pp", "from a import pp\npp.d.go()", "from pkg.d import go\ngo()",
    "from .d import K as L, go", "from .__init__ import go", "from pkg.__init__ import run",
]  # fmt: skip
TYPESCRIPT = [
    "export function go() { run(); }", "export class K { go() { this.run(); } run() {} }",
    "export class L extends K { run() { this.go(); } }", 'import { K } from "./a";',
    'import K from "./b";', "export default class M { go() {} }", 'export * from "./c";',
    'import * as ns from "./a";\nns.go();', "function f(x: K) { x.go(); new K().run(); L.go(); }",
    'import { K as L } from "./pkg";', "class N extends L { q() { this.go(); } }",
    "class Q { go() {} }\nexport { Q as K };", 'import { Q } from "./pkg/d";\nnew Q().go();',
    'import { go } from "./index";\ngo();', 'import * as pp from "./pkg";\nexport { pp };',
    'import { pp } from "./a";\npp.go();', 'export { go, K } from "./d";',
    'export { K as L } from "./c";', 'const zz = require("./b");\nzz.go();', "x.run();",
]  # fmt: skip
GO = [
    "type K struct{}", "func (k *K) Go() { k.Run() }", "func (k K) Run() { Help() }",
    "func Help() { Go() }", "func Go() {}", 'import "example.com/m/pkg"\nfunc a() { pkg.Help() }',
    "func b(k K) { k.Go(); x.Run() }", 'import "example.com/m"\nfunc c() { m.Go() }',
    "type L struct{ K }", "func (l L) Deep() { l.Go() }", "func d(k pkg.K) { k.Run() }",
]  # fmt: skip
RUST = [
    "pub struct K {}", "impl K { pub fn go(&self) { self.run() } }", "use crate::a::K;",
    "impl K { fn run(&self) { go() } }", "pub fn go() { run() }", "fn run() {}", "use super::*;",
    "use crate::pkg::d::go;", "pub use crate::b::K as L;", "fn f(k: K, l: L) { k.go(); l.run(); }",
    "mod inner { pub fn go() {} }", "use crate::c::inner::go;", "fn g() { x.go(); K::go(); }",
]  # fmt: skip
CPP = [
    "class K { void go() { run(); } };", "void K::run() { go(); }", '#include "a.h"', "int go();",
    '#include "pkg/d.h"', "int go() { return run(); }",
    "class L : public K { void run() { go(); } };",
    "int f(K k) { k.go(); x.run(); return go(); }", '#include "b.h"', "int run() { return 1; }",
    "void L::deep() { run(); go(); }",
]  # fmt: skip
JAVA = [
    "class K { void go() { run(); } void run() {} }", "class L extends K { void f() { go(); } }",
    "import pkg.K;", "import pkg.*;", "class M { void f(K k, L l) { k.go(); l.run(); x.go(); } }",
    "class N extends M { void run() { f(); K.go(); } }", "class K { void run() {} }",
]  # fmt: skip
RUBY = [
    "class K\n  def go\n    run\n  end\nend", "def run\n  go\nend", "def go\n  1\nend",
    "require_relative 'a'", "class L < K\n  def f\n    go\n    run\n  end\nend", "K.new.go",
    "require 'pkg/d'", "x.run", "class K\n  def run\n    go\n  end\nend",
]  # fmt: skip
LANGUAGES = {
    "python": (["a.py", "b.py", "c.py", "pkg/__init__.py", "pkg/d.py"], PYTHON),
    "typescript": (["a.ts", "b.ts", "c.ts", "pkg/index.ts", "pkg/d.ts"], TYPESCRIPT),
    "go": (["a.go", "b.go", "pkg/c.go", "pkg/d.go", "e/e.go"], GO),
    "rust": (["src/lib.rs", "src/a.rs", "src/b.rs", "src/pkg/mod.rs", "src/pkg/d.rs"], RUST),
    "cpp": (["a.h", "a.cpp", "b.h", "c.cpp", "pkg/d.h"], CPP),
    "java": (["K.java", "M.java", "pkg/K.java", "pkg/L.java", "e/N.java"], JAVA),
    "ruby": (["a.rb", "b.rb", "c.rb", "lib/pkg/d.rb", "e.rb"], RUBY),
}


def _trees(language: str) -> st.SearchStrategy[list[dict[str, str | None]]]:
    names, lines = LANGUAGES[language]
    sources = st.none() | st.lists(st.sampled_from(lines), max_size=5, unique=True).map(
        lambda chosen: "\n".join(chosen) + "\n"
    )
    tree = st.fixed_dictionaries(dict.fromkeys(names, sources))
    return st.lists(tree, min_size=2, max_size=5)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_histories_of_names_that_all_files_use(language: str, data: st.DataObject) -> None:
    """With bounds so low that each name counts as one that many files mention and define."""
    trees = data.draw(_trees(language))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as scratch:
        for module in (name_reach, affected):
            patch.setattr(module, "FEW_ROWS", 0)
        for many in (project_view, update_index, affected):
            patch.setattr(many, "MANY", 2)
        project = Project(Path(scratch) / "project")
        (project.root / "go.mod").write_text("module example.com/m\n")
        for tree in trees:
            for name, content in tree.items():
                path = project.root / name
                path.parent.mkdir(exist_ok=True, parents=True)
                path.unlink(missing_ok=True)
                if content is not None:
                    head = "package p\n" if name.endswith(".go") else ""
                    path.write_text(head + content)
            project.commit()
            spliced, whole = both(project, Path(scratch) / "whole")
            assert spliced == whole
