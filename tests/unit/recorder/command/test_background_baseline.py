"""The first command of a large project begins before its baseline is taken: nothing is mixed up."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.errors import WorldFailedError
from substrate.history.arrival import held_world_rows
from substrate.history.record import record_entry, sessions
from substrate.history.record.record_entry import InWorld, Running
from substrate.history.store.history_store import HistoryStore, open_store
from substrate.model.hold_causes import Hold, HoldCause
from substrate.model.paths import RelPath
from substrate.objects.import_user.bulk_baseline import WORTH_FORKING_FILES
from substrate.recorder.arrival import held_worlds
from substrate.recorder.command import background_baseline
from substrate.recorder.command.background_baseline import Baseline
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.session_context import Place
from substrate.system import clock, environment
from substrate.workspace.paths.change_times import new_moment
from substrate.world.interface import RunOutcome, RunRequest
from substrate.world.select_strategy import Falling
from substrate.world.strategies.direct import DirectWorld
from tests.daemons import until
from tests.unit.recorder.overlay_world import ISOLATION, ScriptWorld

pytestmark = pytest.mark.needs("overlay", "root", "mounts")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Just large enough not to be waited for."""
    made = tmp_path / "project"
    for number in range(WORTH_FORKING_FILES // 100):
        (made / f"d{number}").mkdir(parents=True)
        for name in range(100):
            # Most are one file: to make thousands in each test takes a disk long.
            path = made / f"d{number}" / f"f{name}"
            if number < 4:
                path.write_text(f"{number} {name}\n")
            else:
                os.link(made / "d0" / "f0", path)
    (made / "notes").write_text("one\ntwo\nthree\n")
    return made


def place_at(root: Path) -> Place:
    return Place.at(root, environment.current(), None, "ada")


def do(root: Path, script: str, meanwhile: Callable[[], None] = lambda: None) -> Recording:
    request = CommandRequest(root, shell=script)
    return record_command(place_at(root), ScriptWorld(root, script, meanwhile), request)


def history(root: Path) -> HistoryStore:
    return open_store(place_at(root).workspace, environment.current().substrate_home / "none")


def kinds(root: Path) -> list[str]:
    store = history(root)
    found = [entry.kind for entry in store.ledger.live()]
    store.close()
    return found


def begun(root: Path) -> tuple[HistoryStore, Running]:
    """A command announced as the first of all, which began without a baseline."""
    store = history(root)
    with store.writing("a test"):
        running = record_entry.begin(
            store, session=None, agent_id="ada", command="x", exact="x",
            world=InWorld("wld_x", (root / ".substrate-git" / "worlds" / "wld_x",)),
            baseline_later=background_baseline.may_wait(store),
        )  # fmt: skip
    return store, running


def held_with_its_baseline(store: HistoryStore, running: Running) -> None:
    with store.writing("a test"):
        record_entry.ensure_baseline(store)
        base = record_entry.base_of(store, running)
        result = record_entry.Result(0, 1, {})
        held_world_rows.hold(
            store, running._replace(base_commit=base), result, "held", (HoldCause(Hold.REQUESTED),)
        )
    store.close()


def test_the_command_begins_first_and_all_is_recorded(root: Path) -> None:
    store, running = begun(root)
    assert running.base_commit == b"" and running.base_known == "beside"
    assert store.tip_commit is None
    with store.writing("a test"):
        assert record_entry.ensure_baseline(store)
        assert record_entry.base_of(store, running) == store.tip_commit
        session = sessions.find(store.ledger, running.session_id)
        assert session is not None and session.start_commit == store.tip_commit
    store.close()


def test_a_small_project_has_its_baseline_before(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a").write_text("a")
    store, running = begun(tmp_path / "project")
    assert running.base_commit == store.tip_commit
    store.close()


def test_a_whole_command(root: Path) -> None:
    done = do(root, "echo four >> notes; rm -r d1; echo new > new")
    assert not done.held and done.entry is not None
    assert [change.path for change in done.changes if not change.path.count(b"/")] == [
        b"d1", b"new", b"notes",
    ]  # fmt: skip
    assert (root / "notes").read_text().endswith("four\n") and not (root / "d1").exists()
    assert kinds(root) == ["command", "baseline"]
    assert done.entry.detail["base_known"] == "beside"


def test_what_was_written_right_before_is_the_base(root: Path) -> None:
    """However shortly: the clock of files moves in ticks, and nothing is held for that."""
    (root / "notes").write_text("zero\n")
    done = do(root, "echo one >> notes")
    assert not done.held
    assert (root / "notes").read_text() == "zero\none\n"


def test_an_edit_that_the_baseline_has_and_the_command_had_not_seen_is_not_overwritten(
    root: Path,
) -> None:
    store, running = begun(root)
    world = ScriptWorld(root, "sed -i s/one/ONE/ notes; echo mine > mine")
    outcome = world.run(RunRequest(root, shell="x", world_id="wld_x"))
    (root / "notes").write_text("one\ntwo\nthree\nfour by hand\n")
    assert outcome.layer is not None
    held_with_its_baseline(store, running)
    _, brought = held_worlds.apply_world(place_at(root), "wld_x")
    assert brought.held.startswith("others may have changed it, too") and "notes" in brought.held
    assert "mine" not in brought.held
    assert (root / "notes").read_text() == "one\ntwo\nthree\nfour by hand\n"
    assert brought.is_refused_once
    _, brought = held_worlds.apply_world(place_at(root), "wld_x")
    assert not brought.held, "who knows it may have the world's"
    assert (root / "notes").read_text() == "ONE\ntwo\nthree\n"
    assert (root / "mine").read_text() == "mine\n"


def test_a_caller_that_learns_of_a_changed_repository_learns_of_edits_too(root: Path) -> None:
    """Both are reported: applying the world then brings all of it."""

    def bash(script: str) -> None:
        subprocess.run(["bash", "-ec", script], cwd=root, check=True)

    bash("git init -q .; git add notes; git -c user.name=a -c user.email=a@b commit -qm a")
    store, running = begun(root)
    world = ScriptWorld(root, "sed -i s/one/ONE/ notes; git add notes; rm d1/*")
    world.run(RunRequest(root, shell="x", world_id="wld_x"))
    bash("echo four by hand >> notes; git add notes; touch d1/*")
    held_with_its_baseline(store, running)
    _, brought = held_worlds.apply_world(place_at(root), "wld_x")
    assert brought.is_refused_once
    assert ".git/index was written since the command began" in brought.held
    assert "d1/f0" in brought.held and brought.held.endswith(" and 81 more")


def test_an_edit_after_the_baseline_is_merged_as_ever(root: Path) -> None:
    def edit() -> None:
        wait_for_the_baseline(root)
        (root / "notes").write_text("one\ntwo\nthree\nfour by hand\n")

    done = do(root, "sed -i s/one/ONE/ notes", edit)
    assert not done.held
    assert (root / "notes").read_text() == "ONE\ntwo\nthree\nfour by hand\n"


def wait_for_the_baseline(root: Path) -> None:
    store = history(root)
    try:
        for _ in range(3000):
            if store.tip_commit is not None and store.stat_cache_file.exists():
                return
            clock.sleep(0.01)
    finally:
        store.close()
    raise AssertionError("no baseline was taken beside the command")


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda root: (root / "d1" / "f1").unlink(), "d1/f1"),
        (lambda root: os.rename(root / "d2", root / "d1" / "d2"), "d1/d2/f1"),
        (lambda root: os.rename(root / "d1", root / "gone"), "d1/f1"),
        (lambda root: (root / "d1" / "f1").chmod(0o600), "d1/f1"),
    ],
    ids=["removed", "a directory moved in", "a directory moved away", "a mode"],
)
def test_other_edits_in_that_time(root: Path, edit: Callable[[Path], None], path: str) -> None:
    from substrate.history.record.baseline_race import perhaps_unseen

    store, running = begun(root)
    edit(root)
    with store.writing("a test"):
        record_entry.ensure_baseline(store)
    asked = [path.encode(), b"d3/f1", b"d3/not-there", b"notes"]
    found = perhaps_unseen(store, asked, running.started_ns)  # type: ignore[arg-type]
    store.close()
    assert found == [path.encode()]


@pytest.mark.parametrize("lost", ["deep", "deep/er"])
def test_a_directory_whose_look_was_lost_is_unknown(root: Path, lost: str) -> None:
    """As when the system ends a child that still works at what only the cache needs."""
    from substrate.history.record.baseline_race import perhaps_unseen
    from substrate.workspace.scan.stat_cache import StatCache

    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("a")
    store, running = begun(root)
    (root / "deep" / "er" / "file").write_text("b")
    with store.writing("a test"):
        record_entry.ensure_baseline(store)
    cache = StatCache.load(store.stat_cache_file)
    cache.drop(lost)
    cache.save(store.stat_cache_file, describes=cache.describes)
    asked = [RelPath(b"deep/er/file"), RelPath(b"not/there"), RelPath(b"d3/f1")]
    found = perhaps_unseen(store, asked, running.started_ns)
    store.close()
    assert found == [b"deep/er/file"]


def test_one_whose_child_is_killed_is_recorded_even_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(place: Place, parent: int) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    monkeypatch.setattr(background_baseline, "_take", killed)
    done = do(root, "echo four >> notes")
    assert not done.held
    assert (root / "notes").read_text().endswith("four\n")
    assert kinds(root) == ["command", "baseline"]


def test_a_recorder_that_is_killed_leaves_a_world_that_can_be_applied(root: Path) -> None:
    child = os.fork()
    if child == 0:
        world = _Killed(root, "echo four >> notes")
        record_command(place_at(root), world, CommandRequest(root, shell="x"))
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    (waiting,) = held_worlds.list_worlds(place_at(root))
    assert waiting.state == "crashed"
    assert b"+four" in held_worlds.diff_world(place_at(root), waiting.world_id).text
    assert (root / "notes").read_text() == "one\ntwo\nthree\n"
    _, brought = held_worlds.apply_world(place_at(root), waiting.world_id)
    assert not brought.held
    assert (root / "notes").read_text().endswith("four\n")


def killed_at_once(root: Path, scripts: list[str]) -> None:
    """First commands whose recorders die, all of them before there is a baseline."""
    for script in scripts:
        child = os.fork()
        if child == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(background_baseline, "_take", lambda *_: False)
                patch.setattr(held_world_rows, "crashed", lambda *_: "")
                world = _Killed(root, script)
                record_command(place_at(root), world, CommandRequest(root, shell="x"))
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_each_of_several_that_were_killed_has_the_baseline(root: Path) -> None:
    killed_at_once(root, ["echo four >> notes", "echo 2 > second", "echo 3 > third"])
    waiting = held_worlds.list_worlds(place_at(root))
    assert [one.state for one in waiting] == ["crashed"] * 3
    with place_at(root).history() as store, store.writing("test"):
        waiting = held_world_rows.all_held(store)  # listing alone takes no baseline
    assert len({one.base_commit for one in waiting}) == 1 and waiting[0].base_commit
    for one in waiting:
        assert held_worlds.diff_world(place_at(root), one.world_id).text
        _, brought = held_worlds.apply_world(place_at(root), one.world_id)
        assert not brought.held
    assert (root / "notes").read_text().endswith("four\n")
    assert (root / "second").exists() and (root / "third").exists()
    assert held_worlds.list_worlds(place_at(root)) == []


def test_one_that_was_killed_is_applied_before_anything_looked(root: Path) -> None:
    killed_at_once(root, ["echo four >> notes"])
    store = history(root)
    (waiting,) = held_world_rows.all_held(store)
    store.close()
    _, brought = held_worlds.apply_world(place_at(root), waiting.world_id)
    assert not brought.held
    assert (root / "notes").read_text().endswith("four\n")
    assert held_worlds.list_worlds(place_at(root)) == []


def test_a_caller_that_does_not_want_to_wait_for_the_baseline_finds_the_world(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Baseline) -> None:
        raise KeyboardInterrupt

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Baseline, "wait", interrupted)
        try:
            do(root, "echo four >> notes")
        except KeyboardInterrupt:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    # The process that takes the baseline may outlive it, and has its lock from the fork.
    until(lambda: [one.state for one in held_worlds.list_worlds(place_at(root))] == ["crashed"])
    (waiting,) = held_worlds.list_worlds(place_at(root))
    assert waiting.command == "echo four >> notes"
    _, brought = held_worlds.apply_world(place_at(root), waiting.world_id)
    assert not brought.held
    assert (root / "notes").read_text().endswith("four\n")


class _Killed(ScriptWorld):
    def run(self, request: RunRequest) -> RunOutcome:
        super().run(request)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class _Unmakeable(ScriptWorld):
    def run(self, request: RunRequest) -> RunOutcome:
        raise WorldFailedError("a test")


def test_a_command_that_gets_no_world_waits_for_the_baseline(root: Path) -> None:
    """On the real files it would change what the baseline is to hold."""
    world = Falling([_Unmakeable(root, ""), DirectWorld()])
    assert world.isolation == ISOLATION
    request = CommandRequest(root, shell="echo four >> notes")
    done = record_command(place_at(root), world, request)
    assert [change.path for change in done.changes] == [b"notes"]
    assert kinds(root) == ["command", "baseline"]


def test_a_required_world_that_cannot_be_had_leaves_nothing_waiting(root: Path) -> None:
    with pytest.raises(WorldFailedError):
        record_command(place_at(root), _Unmakeable(root, ""), CommandRequest(root, shell="x"))
    assert kinds(root) == ["command", "baseline"]
    assert held_worlds.list_worlds(place_at(root)) == []


def test_a_moment_is_after_every_change_before_and_before_every_one_after(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / "before").write_text(str(number))
        moment = new_moment(tmp_path)
        (tmp_path / "after").write_text(str(number))
        assert moment is not None
        assert (tmp_path / "before").stat().st_ctime_ns < moment
        assert (tmp_path / "after").stat().st_ctime_ns >= moment
    assert sorted(os.listdir(tmp_path)) == ["after", "before"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_an_index_that_is_none_is_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    from substrate.objects.index import entries_in

    assert entries_in(tmp_path / "index") == 0
    make(tmp_path / "index")
    assert entries_in(tmp_path / "index") == 0
