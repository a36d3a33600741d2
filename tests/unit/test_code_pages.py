"""The pages that lead through the code name files and rooms that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "substrate"
PACKAGES = "|".join(path.name for path in sorted(SOURCE.iterdir()) if path.is_dir())

#: `history/arrival/bring_into_tree`, with or without `.py`, in code quotes.
NAMED = re.compile(rf"`((?:{PACKAGES})(?:/\w+)+(?:\.py)?)/?`")
LINKED = re.compile(r"\]\((\.\./[^)#]+)\)")


def missing(text: str, directory: Path = ROOT / "docs") -> list[str]:
    """The files that a page names and that do not exist."""
    linked = [one for one in LINKED.findall(text) if not (directory / one).exists()]
    named = [
        one
        for one in NAMED.findall(text)
        if not (SOURCE / one).exists() and not (SOURCE / f"{one}.py").exists()
    ]
    return linked + named


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_file_on_a_page_exists(page: Path) -> None:
    assert missing(page.read_text("utf-8"), page.parent) == []


@pytest.mark.parametrize("page", ["architecture.md", "tour-of-the-code.md"])
def test_the_pages_about_code_name_files(page: str) -> None:
    assert NAMED.search((ROOT / "docs" / page).read_text("utf-8"))


def test_the_tour_links_to_its_files() -> None:
    text = (ROOT / "docs" / "tour-of-the-code.md").read_text("utf-8")
    assert len(LINKED.findall(text)) > 30


def test_a_file_that_moved_is_noticed() -> None:
    text = "`history/no_such_room/x.py` and [y](../src/substrate/no/such.py) and `cli/main`"
    assert missing(text) == ["../src/substrate/no/such.py", "history/no_such_room/x.py"]


def test_every_room_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = text.partition("| Package | Rooms |")[2].partition("\n\n")[0]
    rows = {row.split("`")[1]: set(row.split("`")[2:]) for row in table.splitlines() if "`" in row}
    for package in SOURCE.iterdir():
        rooms = (
            {one.parent.name for one in package.glob("*/__init__.py")}
            if package.is_dir()
            else set()
        )
        assert rooms <= rows.get(package.name, set()), package.name


#: Documents that a reader of this repository does not have.
ELSEWHERE = re.compile(
    r"\b(?:DESIGN|PRD|LAYOUT\.md|STYLE\.md|FACTS\.md|UI\.md|[Ss]eed 0\d\d|the seed)\b"
)


def test_no_reference_leads_out_of_the_repository() -> None:
    found = []
    for place in ("src", "tests", "bench", "launcher", "scripts", "docs"):
        for path in (ROOT / place).rglob("*"):
            if path.suffix in (".py", ".md", ".c", ".sh") and path != Path(__file__):
                lines = path.read_text("utf-8").splitlines()
                found += [f"{path}: {line.strip()}" for line in lines if ELSEWHERE.search(line)]
    assert found == []


def test_every_module_in_the_glossary_exists() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)+\w*)`", text)
    assert len(named) > 10
    assert [one for one in named if not _exists(one)] == []


def _exists(name: str) -> bool:
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()


def test_links_to_files_work_on_the_site(caplog: pytest.LogCaptureFixture) -> None:
    """`mkdocs build --strict` has only the pages: `scripts/docs_links.py` points to the rest."""
    spec = importlib.util.spec_from_file_location("links", ROOT / "scripts" / "docs_links.py")
    assert spec and spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="decisions/x.md"))
    text = "[a](../../src/substrate/errors.py) [b](../glossary.md) [c](../../no/such.py)"
    assert hook.on_page_markdown(text, page=page, config={}) == "a [b](../glossary.md) c"
    assert [one.getMessage() for one in caplog.records] == [
        "decisions/x.md links to ../../no/such.py, which does not exist"
    ]
    there = hook.on_page_markdown(text[:34], page=page, config={"repo_url": "https://x.org/r/"})
    assert there == "[a](https://x.org/r/blob/main/src/substrate/errors.py)"
