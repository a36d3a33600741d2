"""Where a use case happens, and paths as users type them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from substrate.errors import HistoryRefusedError, NotFoundError, UsageError
from substrate.history.record import record_entry
from substrate.recorder.maintenance import repair_store, reset_history
from substrate.recorder.session_context import Place
from substrate.system import environment


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "project/src").mkdir()
    return tmp_path / "project"


def at(cwd: Path) -> Place:
    return Place.at(cwd, environment.current())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("a", b"src/a"), ("./a", b"src/a"), ("../a", b"a"), (".", b"src"), ("..", b""),
        ("x/../a", b"src/a"), ("a//b/", b"src/a/b"), ("-rf", b"src/-rf"), ("a\nb", b"src/a\nb"),
        (b"\xff", b"src/\xff"),
    ],
)  # fmt: skip
def test_paths_count_from_the_users_directory(
    project: Path, typed: str | bytes, meant: bytes
) -> None:
    assert at(project / "src").rel_path(typed) == meant


def test_an_absolute_path_inside(project: Path) -> None:
    assert at(project / "src").rel_path(str(project / "doc/x")) == b"doc/x"


@pytest.mark.parametrize("typed", ["../..", "../../other", "/etc/passwd", "../../project-2/x"])
def test_a_path_outside(project: Path, typed: str) -> None:
    with pytest.raises(UsageError, match="outside the workspace"):
        at(project / "src").rel_path(typed)


@pytest.mark.needs("symlinks")
def test_a_link_is_itself_not_where_it_leads(project: Path) -> None:
    (project / "link").symlink_to("/etc")
    assert at(project).rel_path("link/passwd") == b"link/passwd"


@pytest.mark.needs("symlinks")
def test_standing_in_a_linked_directory(project: Path, tmp_path: Path) -> None:
    (tmp_path / "shortcut").symlink_to(project)
    place = at(tmp_path / "shortcut/src")
    assert place.workspace.root == project
    assert place.rel_path("a") == b"src/a"


def test_words_win_over_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSTRATE_SESSION_ID", "s-env")
    monkeypatch.setenv("SUBSTRATE_AGENT_ID", "env")
    place = at(project)
    assert (place.session, place.agent_id) == ("s-env", "env")
    place = Place.at(project, environment.current(), "s-word", "word")
    assert (place.session, place.agent_id) == ("s-word", "word")


def test_an_agent_whose_name_is_no_text(project: Path) -> None:
    place = Place.at(project, environment.current(), None, os.fsdecode(b"ag\xff"))
    assert place.agent_id == "ag%FF"


def test_a_question_makes_no_history(project: Path) -> None:
    with pytest.raises(NotFoundError), at(project).existing_history():
        pass
    assert not (project / ".substrate-git").exists()


def test_a_refused_place(private_environment: Path) -> None:
    place = at(private_environment)
    for opening in (place.history, place.existing_history):
        with pytest.raises(HistoryRefusedError) as caught, opening():
            pass
        assert "project directory" in caught.value.hint


def entries(place: Place) -> list[str]:
    with place.existing_history() as store:
        return [entry.kind for entry in store.ledger.live()]


def write_entry(place: Place) -> None:
    with place.history() as store, store.writing("test"):
        record_entry.record_outside(store)


def test_a_kept_history_is_opened_once_and_not_locked(project: Path) -> None:
    with at(project).keeping() as place:
        with place.history() as first, first.writing("test"):
            record_entry.record_outside(first)
        (project / "src/new").write_text("n")
        write_entry(at(project))  # another process in between
        with place.existing_history() as second:
            assert second is first
        assert entries(place) == ["external", "baseline"]


def test_a_kept_history_that_was_reset_is_begun_again(project: Path) -> None:
    with at(project).keeping() as place:
        write_entry(place)
        (project / "src/new").write_text("n")
        write_entry(place)
        reset_history(at(project))
        write_entry(place)
        assert entries(place) == ["baseline"]
    assert entries(at(project)) == ["baseline"]


def test_a_kept_history_that_is_replaced_while_we_wait_for_its_lock(project: Path) -> None:
    with at(project).keeping() as place:
        write_entry(place)
        (project / "src/new").write_text("n")
        write_entry(place)
        with place.history() as store:
            reset_history(at(project))
            write_entry(at(project))
            with store.writing("test"):
                assert [entry.kind for entry in store.ledger.live()] == ["baseline"]


def test_a_kept_history_that_was_repaired(project: Path) -> None:
    with at(project).keeping() as place:
        write_entry(place)
        (project / "src/new").write_text("n")
        write_entry(place)
        with sqlite3.connect(project / ".substrate-git/index/history.db") as ledger:
            ledger.execute("DELETE FROM pending_objects")
        ledger.close()
        for loose in (project / ".substrate-git/.git/objects").glob("??/*"):
            loose.unlink()
        assert repair_store(at(project)).extent == "rebuilt"
        (project / "src/later").write_text("n")
        write_entry(place)
        assert entries(place) == entries(at(project))
        assert "external" in entries(place)


def test_a_kept_history_that_was_removed(project: Path) -> None:
    with at(project).keeping() as place:
        write_entry(place)
        shutil.rmtree(project / ".substrate-git")
        with pytest.raises(NotFoundError), place.existing_history():
            pass
        write_entry(place)
        assert entries(at(project)) == ["baseline"]


@pytest.mark.needs("posix")
def test_a_forked_child_opens_its_own(project: Path) -> None:
    with at(project).keeping() as place:
        write_entry(place)
        with place.existing_history() as ours:
            pass
        child = os.fork()
        if child == 0:
            status = 1
            try:
                (project / "src/new").write_text("n")
                write_entry(place)
                with place.existing_history() as own:
                    status = 0 if own is not ours else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert entries(place) == ["external", "baseline"]
        with place.existing_history() as still:
            assert still is ours
