"""`substrate ui` in a real browser, with real clicks and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, browser
from tests.contract.program import Program
from tests.daemons import until
from tests.page_site import Page, page_in

pytestmark = pytest.mark.needs("chromium")

OLD = "".join(f"line {n}\n" for n in range(1, 21))
NEW = OLD.replace("line 2\n", "LINE 2\n").replace("line 18\n", "LINE 18\n")
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text(OLD)
    env = {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")}
    program = Program(project, {**env, "SUBSTRATE_SESSION_ID": "s-1"})
    program.sh("true")
    program.sh("sed -i 's/line 2$/LINE 2/; s/line 18/LINE 18/' a.txt; echo new > new.txt")
    with page_in(program) as started:
        yield started


def shown(tab: Browser, page: Page) -> None:
    tab.open("about:blank")  # the page of an earlier test complains that its server is gone
    tab.wait("location.href === 'about:blank'")
    tab.problems.clear()
    tab.open(page.link)
    tab.wait("document.querySelector('.row.cmd.sel')")


def test_take_back_and_redo(tab: Browser, page: Page) -> None:
    """The main path: look, preview, take back, redo. Enter alone never takes back."""
    file = page.cwd / "a.txt"
    shown(tab, page)
    assert "#" not in tab.value("location.href"), "the token leaves the address bar"
    assert tab.text(".d-head pre").startswith("sed -i")
    tab.wait("document.querySelector('.scope .sum').textContent.startsWith('2 files+3−2')")
    tab.press("u")
    tab.wait("document.querySelector('#carry-out:not([disabled])')")
    assert tab.value("document.activeElement.textContent") == "Cancel"
    assert "2 files and 1 deleted" in tab.text("#carry-out")
    tab.value("document.querySelector('#carry-out').focus()")
    tab.press("Enter")
    assert file.read_text() == NEW
    tab.press("Escape")
    tab.wait("!document.querySelector('#carry-out')")
    tab.click("#take-back")
    tab.click("#carry-out")
    assert "Took back sed …: 1 restored, 1 deleted" in tab.text(".after-bar")
    assert file.read_text() == OLD
    assert not (page.cwd / "new.txt").exists()
    tab.wait("document.querySelector('.row.undone')")
    tab.click("#redo")
    tab.click("#carry-out", "Bring back")
    tab.wait("document.querySelector('.after-bar')?.textContent.includes('Brought back')")
    assert (file.read_text(), (page.cwd / "new.txt").read_text()) == (NEW, "new\n")
    assert tab.problems == []


def test_a_stale_preview_is_refused(tab: Browser, page: Page) -> None:
    shown(tab, page)
    tab.click("#take-back")
    tab.wait("document.querySelector('#carry-out:not([disabled])')")
    edited = NEW.replace("line 5", "mine")
    (page.cwd / "a.txt").write_text(edited)
    tab.click("#carry-out")
    assert "This preview is out of date." in tab.text(".banner.stale")
    assert (page.cwd / "a.txt").read_text() == edited
    tab.click(".banner.stale button")
    assert "mineoutside edit, kept" in tab.text(".ln.y")
    tab.click("#carry-out")
    tab.text(".after-bar")
    assert (page.cwd / "a.txt").read_text() == OLD.replace("line 5", "mine")


def test_one_hunk_alone_and_a_mark(tab: Browser, page: Page) -> None:
    shown(tab, page)
    tab.click(".h-head .check input")
    tab.wait("document.body.textContent.includes('1 of 2 reviewed')")
    tab.click(".h-act")
    tab.click("#carry-out", "1 hunk")
    tab.text(".after-bar")
    assert (page.cwd / "a.txt").read_text() == NEW.replace("LINE 2\n", "line 2\n")
    assert (page.cwd / "new.txt").exists()
    page.status = 5
    tab.open("about:blank")
    tab.open(page.link)
    assert "used already" in tab.text("h1"), "a link works once"


def test_new_commands_and_hostile_texts_appear(tab: Browser, page: Page) -> None:
    """Names, commands and output are text, whatever they contain."""
    shown(tab, page)
    name = HOSTILE.replace("/", "")
    (page.cwd / "made").write_text(HOSTILE + "\n")
    page.program.sh(f"cp made '{name}'; printf '\\033]0;title\\007\\033[31mred\\033[0m\\n'")
    tab.click(".row.cmd", "cp made")
    tab.wait("document.querySelector('.d-head pre').textContent.includes('onerror')")
    assert "\\u202egnp.exe" in tab.text(".f-head .path"), "odd characters are shown as codes"
    assert tab.value("document.querySelectorAll('img').length") == 0
    tab.click("[role=tab]", "Output")
    tab.wait("document.querySelector('.term .r, .msg')")
    assert "title" not in str(tab.value("document.querySelector('.term')?.textContent"))
    assert tab.problems == []


def test_a_part_of_a_held_world_is_brought_in(tab: Browser, page: Page) -> None:
    """A deletion has to be chosen; what is left out stays held."""
    page.program("-c", "echo held > held.txt; rm new.txt", "--hold").went_well()
    shown(tab, page)
    tab.click(".tabs button", "Held")
    assert "1 deletion" in tab.text(".delbox .sect")
    tab.click("#bring-in", "Bring in 1 of 2 files")
    until((page.cwd / "held.txt").exists, "the world's file")
    assert "Brought in" in tab.text(".after-bar")
    assert (page.cwd / "new.txt").exists()
    tab.wait("!document.querySelector('.detail .scroll').textContent.includes('held.txt')")
    tab.click(".delbox input")
    tab.click("#bring-in", "Bring in 1 file, 1 deletion")
    until(lambda: not (page.cwd / "new.txt").exists(), "the deletion")
    tab.wait("document.body.textContent.includes('Nothing is waiting')")
    assert tab.problems == []
