"""Generated sources: too deep, too large, odd bytes. They do not affect other files."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import tree_sitter_python
from tree_sitter import Language, Parser

from substrate.graph.index.manifests import commit_record
from substrate.graph.index.path_section import static_section
from substrate.graph.index.splice import Sections
from substrate.graph.parse import parse_source, syntax_tree
from substrate.graph.parse.blob_facts import outline_of
from substrate.graph.parse.extract_facts import MAX_PARSED_BYTES, extract
from substrate.graph.parse.syntax_tree import is_deep
from substrate.graph.resolve.project_view import TreeView
from substrate.graph.resolve.resolve_names import Entity, Names
from tests.unit.graph.conftest import Project

#: Each would take minutes, or all of the memory, if time or text grew with the square of depth.
DEEP = {
    ".py": [
        "def first(): ...\nx = a" + ".b()" * 20_000 + "\n",
        "def first(): ...\nx = " + "f(" * 20_000 + ")" * 20_000 + "\n",
        "def first(): ...\nx = " + "(" * 50_000 + "1" + ")" * 50_000 + "\n",
    ],
    ".js": ["function first() {}\n" + "function f(){" * 10_000 + "}" * 10_000],
    ".java": ["class first {}\n" + "class A{" * 5_000 + "}" * 5_000],
    ".cpp": ["void first() {}\n" + "namespace a {" * 5_000 + "}" * 5_000],
    ".rs": ["fn first() {}\n" + "mod a {" * 5_000 + "}" * 5_000],
    ".go": ["package a\nfunc first() {}\nvar x = " + "f(" * 10_000 + ")" * 10_000 + "\n"],
    ".rb": ["def first\nend\n" + "def a\n" * 3_000 + "end\n" * 3_000],
    ".c": ["void first() {}\nint f(){" + "{" * 50_000 + "}" * 50_000 + "}"],
    ".ts": ["function first() {}\ntype A = " + "Array<" * 10_000 + "x" + ">" * 10_000 + ";"],
}


@pytest.mark.parametrize(
    ("key", "number"), [(key, n) for key, texts in DEEP.items() for n in range(len(texts))]
)
def test_what_nests_too_deeply_is_marked_and_read_from_the_top(key: str, number: int) -> None:
    facts = extract(key, DEEP[key][number].encode())
    assert facts.trouble == "nested too deeply"
    assert "first" in {symbol.name for symbol in facts.symbols}
    assert len(facts.symbols) == len(facts.details)
    assert all(detail.hash for detail in facts.details)
    assert sum(len(symbol.local) for symbol in facts.symbols) < 4_000_000


def test_a_deep_tree_is_known_before_it_is_searched() -> None:
    """A search of it would take minutes."""
    parser = Parser(Language(tree_sitter_python.language()))
    for text in DEEP[".py"]:
        assert is_deep(parser.parse(text.encode()).root_node)
    flat = b"x = f(1)\n" * 20_000
    assert not is_deep(parser.parse(flat).root_node)


def test_what_people_nest_is_read_whole() -> None:
    chain = "query = session" + ".filter(lambda row: f(g(h(row))))" * 100 + "\n"
    nested = "".join("    " * n + f"def f{n}():\n" for n in range(40)) + "    " * 40 + "pass\n"
    sums = "total = " + " + ".join(f"part({n})" for n in range(400)) + "\n"
    facts = extract(".py", (chain + nested + sums).encode())
    assert facts.trouble == ""
    assert len(facts.calls) == 100 + 300 + 400
    assert len([s for s in facts.symbols if s.kind == "function"]) == 40


@pytest.mark.parametrize("module", ["_pydecimal", "functools", "typing", "datetime"])
def test_a_large_source_in_pieces_is_the_same_as_in_one(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Path(sysconfig.get_paths()["stdlib"], f"{module}.py").read_bytes()
    whole = extract(".py", data)
    monkeypatch.setattr(parse_source, "AT_ONCE_BYTES", 500)
    monkeypatch.setattr(syntax_tree, "AT_ONCE_BYTES", 500)
    assert extract(".py", data) == whole
    assert len(whole.calls) > 100


def test_a_source_that_is_too_large_keeps_its_size_and_lines() -> None:
    data = b"x = 1\n" * (MAX_PARSED_BYTES // 6 + 1)
    facts = extract(".py", data)
    assert facts.trouble == "too large to parse"
    assert (facts.size, facts.loc, facts.symbols) == (len(data), len(data) // 6, [])


@pytest.mark.parametrize(
    "codec", ["hex", "zlib", "rot13", "undefined", "idna", "nonsense", "utf-7"]
)
def test_a_coding_cookie_may_say_anything(codec: str) -> None:
    facts = extract(".py", b"# coding: " + codec.encode() + b"\ndef f(): ...\n\xff\xfe\n")
    assert not facts.trouble.startswith("not read")


def test_files_that_import_and_inherit_in_circles(project: Project) -> None:
    project.commit(
        {
            "a.py": "from b import *\nfrom b import x\n\n\ndef f():\n    x()\n    missing()\n",
            "b.py": "from a import *\nfrom a import f as x\n\n\ndef g():\n    x()\n    f()\n",
            "own.py": "from own import *\nimport own\n\n\nclass A(A):\n    def m(self):\n"
            "        self.nowhere()\n\n\nclass B(C):\n    def m(self):\n"
            "        super().nowhere()\n\n\nclass C(B): ...\n",
            "js/a.js": 'export * from "./b";\nimport {q} from "./b";\nq();\n',
            "js/b.js": 'export * from "./a";\nexport {q} from "./a";\n',
            "pkg/__init__.py": "from . import *\nfrom .. import *\nfrom ..... import x\n",
        }
    )
    calls = project.calls()
    assert ("a.f", "a.f") in calls
    assert ("b.g", "a.f") in calls


def test_thousands_of_definitions_of_one_name(project: Project) -> None:
    """Looked at once, not once for each call."""
    project.commit(
        {
            "lib/many.c": "".join(f"int same() {{ return {n}; }}\n" for n in range(3000)),
            "app/use.c": "".join(f"int u{n}() {{ return same(); }}\n" for n in range(3000)),
        }
    )
    rows = [row for row in project.records("edges.calls.jsonl") if "to_external_ref" in row]
    assert len(rows) == 3000
    assert {row["confidence"] for row in rows} == {0.3}


class _Counting(Names):
    looked_up = 0

    def lookup(self, path: bytes, name: str, depth: int = 0) -> Entity | None:
        self.looked_up += 1
        return super().lookup(path, name, depth)


def test_headers_that_include_each_other_are_searched_once_each() -> None:
    """Seven layers of six headers, each with all of the next: 46,656 ways to the last layer."""
    table, outlines = Sections(), []
    for layer in range(7):
        below = "".join(f'#include "h{layer + 1}_{n}.h"\n' for n in range(6)) if layer < 6 else ""
        for number in range(6):
            text = f"{below}int f{layer}_{number}(void) {{ return 0; }}\n".encode()
            facts = extract(".h", text)
            outlines.append(outline_of(facts))
            path = b"h%d_%d.h" % (layer, number)
            table.append(path, static_section(path, bytes(20), ".h", facts))
    names = _Counting(TreeView(table, outlines.__getitem__))
    assert names.lookup(b"h0_0.h", "nowhere") is None
    assert names.looked_up <= 7 * 6 * 6 + 1
    found = names.lookup(b"h0_0.h", "f6_3")
    assert found is not None
    assert found.symbol is not None
    assert found.symbol.path == b"h6_3.h"


@pytest.mark.parametrize("when", ["9" * 20, "-" + "9" * 20, "9" * 5000])
def test_a_commit_may_say_that_it_is_of_any_time(when: str) -> None:
    raw = f"tree {'0' * 40}\nauthor A <a@b> {when} +0000\n\nx\n".encode()
    assert commit_record("r", bytes(20), raw).authored_at == ""
