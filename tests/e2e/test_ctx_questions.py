"""`ctx symbols`, `refs`, `context` and `graph` as a user asks them, with known answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]
FILES = {
    "shop/__init__.py": "",
    "shop/prices.py": '"""What things cost."""\n\n\ndef total(items):\n    """Their sum."""\n'
    "    return sum(items)\n\n\nclass Tax:\n    RATE = 7\n\n    def add(self, amount):\n"
    "        return amount + self.RATE\n",
    "shop/cart.py": "import json\nfrom shop.prices import Tax, total\n\n\ndef checkout(items):\n"
    "    json.dumps(items)\n    return Tax().add(total(items))\n\n\ndef dumps(items): ...\n",
    "school/grades.py": "import numpy\n\n\ndef total(items):\n    return numpy.total(items)\n",
    "unsure.py": "def later(thing):\n    thing.total()\n    thing.polish()\n",
}


def ctx(
    where: Path, *words: str, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CTX, *words], cwd=where, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def answer(where: Path, *words: str) -> dict[str, Any]:
    done = ctx(where, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=root, check=True)
    assert ctx(root, "init").returncode == 0
    return root


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("total",), ["school.grades.total", "shop.prices.total"]),
        (("TOTAL", "--path", "shop"), ["shop.prices.total"]),
        (("--kind", "class"), ["shop.prices.Tax"]),
        (("Tax",), ["shop.prices.Tax", "shop.prices.Tax.add"]),
        (("add",), ["shop.prices.Tax.add"]),
        (("--kind", "method", "Tax.add"), ["shop.prices.Tax.add"]),
        (("--path", "unsure.py"), ["unsure.later"]),
        (("--path", "sho"), []),
        (("--limit", "1", "total"), ["school.grades.total"]),
    ],
)
def test_symbols(repo: Path, words: tuple[str, ...], found: list[str]) -> None:
    assert [one["fqname"] for one in answer(repo, "symbols", *words)["symbols"]] == found


def test_those_called_exactly_that_come_first(repo: Path) -> None:
    (repo / "a.py").write_text("def subtotal():\n    pass\n\n\ndef total_of():\n    pass\n")
    for words in (("add", "."), ("commit", "-q", "-m", "second")):
        subprocess.run(["git", *words], cwd=repo, check=True)
    rows = answer(repo, "symbols", "total")["symbols"]
    assert [one["fqname"] for one in rows] == [
        "school.grades.total", "shop.prices.total", "a.subtotal", "a.total_of"
    ]  # fmt: skip


def test_a_kind_that_nothing_has_is_reported_with_those_there_are(repo: Path) -> None:
    said = ctx(repo, "symbols", "--kind", "bogus").stderr
    assert "of kind bogus there is none: class, function, method" in said


def refs(repo: Path, name: str) -> set[tuple[str, int, str | None, float]]:
    rows = answer(repo, "refs", name)["refs"]
    return {(r["path"], r["line"], r["from"], r["confidence"]) for r in rows}


def test_refs_distinguish_sure_from_unsure(repo: Path) -> None:
    assert refs(repo, "prices.total") == {
        ("shop/cart.py", 7, "shop.cart.checkout", 1.0),
        ("shop/cart.py", 2, None, 1.0),
        ("unsure.py", 2, "unsure.later", 0.3),
    }
    assert refs(repo, "Tax.add") == {("shop/cart.py", 7, "shop.cart.checkout", 0.9)}


def test_a_line_that_calls_it_twice_is_one_line(repo: Path) -> None:
    (repo / "twice.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return f() + f()\n")
    for words in (("add", "."), ("commit", "-q", "-m", "second")):
        subprocess.run(["git", *words], cwd=repo, check=True)
    assert ctx(repo, "refs", "twice.f").stdout.split() == [
        "twice.py:6", "twice.g", "function", "1.00", "twice.f", "2", "times",
    ]  # fmt: skip
    assert len(answer(repo, "refs", "twice.f")["refs"]) == 2


def test_refs_of_a_name_outside_of_the_project(repo: Path) -> None:
    """`json.dumps` is asked for by its name; our own `dumps` is not called by it."""
    assert refs(repo, "json.dumps") == {("shop/cart.py", 6, "shop.cart.checkout", 0.95)}
    assert refs(repo, "cart.dumps") == set()
    assert "no uses found" in ctx(repo, "refs", "cart.dumps").stdout


def test_a_context_is_what_is_printed_and_never_over_the_cap(repo: Path) -> None:
    import splintr

    count = splintr.Tokenizer.from_pretrained("o200k_base").encode_ordinary
    sizes = []
    for cap in (0, 1, 10, 30, 60, 100, 200, 1000):
        words = ("context", "--task", "add tax to the total", "--token-cap", str(cap))
        done = ctx(repo, *words)
        assert done.returncode == 0
        assert ctx(repo, *words).stdout == done.stdout
        sizes.append(len(count(done.stdout)))
        assert sizes[-1] <= cap
        told = answer(repo, *words)
        assert (told["tokens"], told["text"]) == (sizes[-1], done.stdout)
        assert all(piece["why"] for piece in told["pieces"])
    assert sizes[-1] > sizes[3] > 0
    assert "def checkout" in done.stdout
    assert ctx(repo, "context", "--task", " ", "--token-cap", "9").returncode == 2


def test_a_picture_is_not_written_under_a_wrong_name(repo: Path) -> None:
    refused = ctx(repo, "graph", "--out", "g.png")
    assert (refused.returncode, ".svg" in refused.stderr) == (2, True)
    assert not (repo / "g.png").exists()
    assert ctx(repo, "graph", "--out", "g.xml", "--format", "svg").returncode == 0
    assert ctx(repo, "graph", "--out", "G.SVG").returncode == 0
    assert (repo / "G.SVG").read_bytes() == (repo / "g.xml").read_bytes()


def test_a_picture_is_not_poured_into_a_terminal(repo: Path) -> None:
    leader, follower = os.openpty()
    try:
        refused = ctx(repo, "graph", stdout=follower)
        assert refused.returncode == 2
        assert "ctx graph --out graph.html" in refused.stderr
        assert ctx(repo, "graph", "--format", "dot", stdout=follower).returncode == 0
        assert os.read(leader, 7) == b"digraph"
    finally:
        os.close(follower)
        os.close(leader)


def test_pictures_in_each_format(repo: Path) -> None:
    assert ctx(repo, "graph", "--out", "g.svg").returncode == 0
    assert ElementTree.parse(repo / "g.svg").getroot().tag.endswith("svg")
    lost = ctx(repo, "graph", "--out", "nowhere/g.svg")
    assert (lost.returncode, "there is no directory" in lost.stderr) == (4, True)
    assert ctx(repo, "graph", "--out", "shop").returncode == 2
    dot = ctx(repo, "graph", "--format", "dot").stdout
    assert '"shop/cart.py" -> "shop/prices.py"' in dot
    page = ctx(repo, "graph").stdout
    assert page.startswith("<!doctype html>")
    assert {n["name"] for n in answer(repo, "graph", "--path", "shop/")["nodes"]} == {
        "shop/__init__.py",
        "shop/cart.py",
        "shop/prices.py",
    }


@pytest.mark.needs("chromium")
def test_a_browser_shows_the_page(repo: Path, tmp_path: Path) -> None:
    prices = repo / "shop/prices.py"
    prices.write_text(prices.read_text().replace("sum(items)", "2 * sum(items)"))
    subprocess.run(["git", "commit", "-q", "-a", "-m", "second"], cwd=repo, check=True)
    assert ctx(repo, "graph", "--impact", "HEAD", "--out", "i.html").returncode == 0
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)))
    argv = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    argv += [f"--user-data-dir={tmp_path / 'profile'}", (repo / "i.html").as_uri()]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=120, env=environment
    )
    assert done.stdout.count('<g class="node"') == 2
    assert "1 file changed, 1 more can break" in done.stdout
    assert "shop.cart.checkout calls shop.prices.total" in done.stdout
    assert "school" not in done.stdout
