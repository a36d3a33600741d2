"""Commands of one session see each other's processes, and nothing else changes for them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from substrate.system.process.process_identity import pid_alive
from substrate.world.interface import Layer, RunOutcome, RunRequest, Wanted
from substrate.world.layer import layer_dirs
from substrate.world.network.choose_network import network_for
from substrate.world.select_strategy import choose_world
from tests.contract.as_user import NOBODY
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

pytestmark = pytest.mark.needs("linux", "root")
PATIENCE_S = 30.0


class Session:
    """Commands of one session, one after the other."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.left: list[Layer] = []

    def run(self, line: str, session: str = "s-one", **more: object) -> RunOutcome:
        wanted = {key: more.pop(key) for key in ("tier", "allow_host_services") if key in more}
        request = RunRequest(
            self.site.root, shell=line, session_id=session, beside=tuple(self.left)
        )._replace(**more)  # type: ignore[arg-type]
        outcome = self.site.ask(request, **wanted)
        assert outcome.layer is not None
        if outcome.left_running:
            self.left.append(outcome.layer)
        return outcome

    def leave(self, line: str = "exec sleep 300") -> int:
        """Leave a process running; its number in the session's namespace."""
        outcome = self.run(f"({line}) & echo $! > number")
        assert outcome.left_running >= 1
        return int(self.site.result(outcome, "number").read_text())

    def sees(self, number: int, session: str = "s-one", **more: object) -> bool:
        outcome = self.run(f"kill -0 {number} 2> /dev/null || touch unseen", session, **more)
        return not self.site.result(outcome, "unseen").exists()

    def end(self) -> None:
        for layer in self.left:
            if layer_dirs.is_running(layer):
                found = layer_dirs.pid_space(layer)
                if found is not None:
                    os.kill(found[1].first, signal.SIGKILL)
        until(lambda: not any(layer_dirs.is_running(layer) for layer in self.left))


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.fixture(params=[0, NOBODY], ids=lambda uid: f"uid{uid}")
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    case = Case("overlay", request.param)
    skip_unless_possible(case)
    with make_site(case, monkeypatch) as site:
        made = Session(site)
        try:
            yield made
        finally:
            made.end()


def test_a_later_command_sees_and_ends_what_an_earlier_one_left(session: Session) -> None:
    number = session.leave()
    assert session.sees(number)
    ended = session.run(f"kill {number}")
    assert (ended.exit, ended.left_running) == (0, 0)
    until(lambda: not layer_dirs.is_running(session.left[0]))
    assert not session.sees(number)


def test_pkill_by_arguments_finds_only_the_commands_own(session: Session) -> None:
    """Our own inits were started with the same words, and must not be taken for the program."""
    number = session.leave("exec sleep 301")
    found = session.run("pgrep -f 'slee[p] 301' > found")
    assert session.site.result(found, "found").read_text().split() == [str(number)]
    assert session.run("pkill -KILL -f 'slee[p] 301'").exit == 0
    until(lambda: not layer_dirs.is_running(session.left[0]))


def test_pkill_by_name_finds_only_the_commands_own(session: Session) -> None:
    """A user's `pkill -9 python3` for their own server must not kill our inits."""
    session.leave()
    both = "[ $(ps -eo comm= | grep -cx substrate-init) = 2 ]"
    named = session.run(f"until {both}; do sleep 0.05; done", timeout_s=PATIENCE_S)
    assert named.exit == 0


def test_the_view_and_the_changes_stay_apart(session: Session) -> None:
    session.leave("echo first > kept; exec sleep 300")
    later = session.run("cp kept seen; echo second > kept")
    assert session.site.result(later, "seen").read_text() == "kept\n"
    assert (session.left[0].upper / "kept").read_text() == "first\n"
    assert (session.site.root / "kept").read_text() == "kept\n"


def test_only_its_own_processes_are_counted_and_ended(session: Session) -> None:
    number = session.leave()
    assert session.run("true").left_running == 0
    assert session.run("sleep 300 & echo", kill_children=True).left_running == 0
    timed = session.run("sleep 300 & sleep 300", timeout_s=0.3)
    assert (timed.exit, timed.left_running) == (124, 0)
    assert session.sees(number)
    names = session.run("ps -eo args= > list")
    assert (session.site.result(names, "list")).read_text().count("sleep 300") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"session": "s-two"},
        {"tier": "guarded"},
        {"tier": "full"},
        {"network": "off"},
        {"allow_host_services": True},
    ],
    ids=str,
)
def test_a_caller_that_has_other_rights_shares_nothing(
    session: Session, other: dict[str, object]
) -> None:
    number = session.leave("exec sleep 302")
    if other.get("network"):
        other = {"network": network_for(str(other["network"]))}
    outcome = session.run("cat /proc/[0-9]*/cmdline > list", **other)  # type: ignore[arg-type]
    assert b"sleep\x00302" not in session.site.result(outcome, "list").read_bytes()
    assert session.sees(number)


def test_the_first_stays_for_later_ones(session: Session) -> None:
    first = session.leave()
    go = session.site.base / "go"
    session.leave(f"while ! test -e {go}; do sleep 0.05; done; echo late > late; exec sleep 300")
    assert session.run(f"kill {first}").exit == 0
    one, two = session.left
    until(lambda: not layer_dirs.is_running(one))
    assert layer_dirs.is_running(two)
    # The second goes on in its own world, and a third still finds it.
    go.touch()
    until((two.upper / "late").exists)
    session.left = [two]
    third = session.run("pkill -f 'slee[p] 300'")
    assert third.exit == 0
    until(lambda: not layer_dirs.is_running(two))


def test_with_the_first_process_all_of_them_end(session: Session) -> None:
    session.leave()
    session.leave()
    found = layer_dirs.pid_space(session.left[1])
    assert found is not None
    init, space = found
    assert init != space.first
    os.kill(space.first, signal.SIGKILL)
    until(lambda: not any(layer_dirs.is_running(layer) for layer in session.left))
    assert not pid_alive(init)
    assert session.run("echo on > after").exit == 0


def test_a_killed_init_takes_no_other_processes_and_loses_nothing(session: Session) -> None:
    """The owner of each process is unknown: the world counts as running until all have ended."""
    number = session.leave()
    line = "(sleep 0.5; echo late > late; exec sleep 300) & kill -KILL $PPID; sleep 300"
    killed = session.run(line)
    assert (killed.exit, killed.signal) == (137, signal.SIGKILL)
    assert killed.left_running >= 1
    assert killed.layer is not None and layer_dirs.is_running(killed.layer)
    until((killed.layer.upper / "late").exists)
    assert session.sees(number)
    session.run("pkill -f 'slee[p] 300'")
    until(lambda: not layer_dirs.is_running(session.left[0]))
    until(lambda: not layer_dirs.is_running(session.left[1]))


def test_if_the_waiting_process_is_killed_its_command_ends_and_no_other(session: Session) -> None:
    number = session.leave()
    mark = session.site.base / "started"
    child = _run_apart(session, f"sleep 303 & (setsid sleep 303 &); touch {mark}; sleep 303")
    until(mark.exists)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: not _anywhere("sleep\x00303"))
    assert session.sees(number)


def _run_apart(session: Session, line: str) -> int:
    """Run a command in a child that can be killed."""
    site = session.site
    os.chmod(site.base, 0o777)
    wanted = Wanted(site.root, site.store, strategy="overlay", required=True)
    request = RunRequest(site.root, shell=line, session_id="s-one", beside=tuple(session.left))
    choose_world(wanted)  # imports
    child = os.fork()
    if child:
        return child
    try:
        if site.case.uid:
            os.setgroups([])
            os.setgid(site.case.uid)
            os.setuid(site.case.uid)
        choose_world(wanted).run(request)
    finally:
        os._exit(1)


def _anywhere(words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_text(errors="replace"):
                return True
        except OSError:
            continue
    return False


def test_many_join_at_once_and_each_keeps_its_own(session: Session) -> None:
    number = session.leave()
    marks = [session.site.base / f"mark{at}" for at in range(6)]
    line = "echo x > own; sleep 0.2; ls; kill -0 {number} && touch {mark}"
    children = [_run_apart(session, line.format(number=number, mark=mark)) for mark in marks]
    for child in children:
        os.waitpid(child, 0)
    assert all(mark.exists() for mark in marks)
    assert session.sees(number)


def test_the_ending_of_the_last_one_while_another_joins_is_no_error(session: Session) -> None:
    """The namespace that was found may be gone a moment later."""
    session.leave("exec sleep 0.3")
    for _ in range(12):
        assert session.run("echo x > x").exit == 0
