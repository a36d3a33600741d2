"""Pictures: the right boxes and arrows, never too many, and no name that can break out."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from substrate.graph.diagram.diagram_model import (
    MOST_NODES,
    Edge,
    Node,
    Picture,
    of_change,
    of_modules,
)
from substrate.graph.diagram.diagram_output import to_dot, to_html, to_svg
from substrate.graph.diagram.layout_layers import lay_out
from substrate.graph.index.delta import compare
from substrate.graph.index.snapshot import Snapshot
from tests.unit.graph.conftest import Project

SVG = "{http://www.w3.org/2000/svg}"


def opened(project: Project, revision: str = "HEAD") -> Snapshot:
    directory = project.index(revision)
    return Snapshot(bytes.fromhex(directory.name), directory)


def test_modules_and_their_imports(project: Project) -> None:
    project.commit(
        {
            "a.py": "import b\nfrom c import x\n",
            "b.py": "import c\n",
            "c.py": "x = 1\n",
            "n.txt": "",
        }
    )
    picture = of_modules(opened(project))
    assert [node.name for node in picture.nodes] == ["c.py", "b.py", "a.py"]  # most used first
    assert [(e.source, e.target) for e in picture.edges] == [
        ("a.py", "b.py"), ("a.py", "c.py"), ("b.py", "c.py"),
    ]  # fmt: skip


def test_many_files_are_gathered_by_directory(project: Project) -> None:
    files = {f"pkg/d{n % 9}/m{n}.py": f"import pkg.d{(n + 1) % 9}.m{n + 1}\n" for n in range(200)}
    project.commit(files)
    picture = of_modules(opened(project))
    assert len(picture.nodes) <= MOST_NODES
    assert sum(node.files for node in picture.nodes) == 200
    names = {node.name for node in picture.nodes}
    assert {f"pkg/d{n}/" for n in range(8)} <= names
    assert {end for edge in picture.edges for end in edge[:2]} <= names
    flat = {f"m{n}.py": "x = 1\n" for n in range(100)}
    project.commit({**dict.fromkeys(files), **flat})
    assert len(of_modules(opened(project)).nodes) <= MOST_NODES


def test_what_is_not_used_is_gathered_first(project: Project) -> None:
    """Thirty tests become one box; the modules they test stay apart."""
    tests = {f"tests/test_{n}.py": f"import core.m{n % 20}\n" for n in range(30)}
    project.commit({**tests, **{f"core/m{n}.py": "import core.m0\n" for n in range(20)}})
    names = {node.name: node.files for node in of_modules(opened(project)).nodes}
    assert names == {"tests/": 30, **{f"core/m{n}.py": 1 for n in range(20)}}


def test_a_change_and_what_uses_it(project: Project) -> None:
    project.commit(
        {"a.py": "def f():\n    return 1\n", "b.py": "from a import f\n\n\ndef g():\n    f()\n",
         "c.py": "def f(): ...\n"}
    )  # fmt: skip
    project.commit({"a.py": "def f():\n    return 2\n"})
    picture = of_change(compare(opened(project, "HEAD~1"), opened(project)))
    assert {node.name: node.state for node in picture.nodes} == {
        "a.py": "changed",
        "b.py": "impacted",
    }
    assert [(edge.source, edge.target) for edge in picture.edges] == [("b.py", "a.py")]
    page = to_html(picture, "Impact of HEAD")
    assert "b.g calls a.f" in page
    assert "c.py" not in page


HOSTILE = '"><script>alert(1)</script>&\\\n.py'


def test_names_cannot_break_out() -> None:
    picture = Picture(HOSTILE, [Node(HOSTILE, 1, "changed", (HOSTILE,)), Node("b", 2)],
                      [Edge(HOSTILE, "b", 3)])  # fmt: skip
    svg = to_svg(picture)
    tree = ElementTree.fromstring(svg)
    assert len(tree.findall(f"{SVG}g")) == 2
    assert len(tree.findall(f".//{SVG}path[@class='edge']")) == 1
    page = to_html(picture, HOSTILE)
    assert page.count("<script>") == 1
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+|http-equiv", "", page)
    dot = to_dot(picture)
    assert dot.count("\n") == 6
    assert '\\"><script>' in dot


def test_layers_put_users_above_what_they_use() -> None:
    names = ["a", "b", "c", "d"]
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "c")]
    spots = lay_out(names, edges)
    assert set(spots) == set(names)
    assert len(set(spots.values())) == 4
    assert spots["a"].layer < spots["b"].layer < spots["c"].layer
    assert spots == lay_out(names, reversed(edges))


def test_a_circle_shares_a_layer() -> None:
    """Names above or below the cycle stay there."""
    circle = [("b", "c"), ("c", "d"), ("d", "b"), ("c", "c")]
    spots = lay_out(["a", "b", "c", "d", "e"], [("a", "d"), *circle, ("b", "e"), ("d", "e")])
    assert spots["a"].layer < spots["b"].layer < spots["e"].layer
    assert spots["b"].layer == spots["c"].layer == spots["d"].layer
    many = [(f"n{i}", f"n{(i + 1) % 5000}") for i in range(5000)]
    assert len(set(lay_out([a for a, _ in many], many).values())) == 5000


def test_nothing_can_be_drawn() -> None:
    empty = Picture("nothing", [], [])
    assert ElementTree.fromstring(to_svg(empty)) is not None
    assert "nothing to show" in to_html(empty, "x")
