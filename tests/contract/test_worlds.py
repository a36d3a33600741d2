"""What every strategy promises, asked of every strategy, as root and as an ordinary user.

A strategy that the probe says works here is never skipped: `test_nothing_that_works_is_skipped`.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from substrate.errors import UsageError, WorkspaceError
from substrate.system.files.files import remove_tree
from substrate.system.process.process_identity import pid_alive
from substrate.world.interface import STRATEGIES, ResourceLimits, RunOutcome, RunRequest
from substrate.world.layer.layer_dirs import new_look
from tests.contract.as_user import NOBODY
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible
from tests.mounts import mounted, tmpfs_words

PATIENCE_S = 30.0


CASES = [
    Case(strategy, uid)
    for strategy in STRATEGIES
    for uid in (os.geteuid() if hasattr(os, "geteuid") else 0, NOBODY)
]


def _named(case: Case) -> str:
    return f"{case.strategy}-uid{case.uid}"


#: For what the others do not promise.
isolating = pytest.mark.parametrize(
    "site", [case for case in CASES if case.strategy != "direct"], indirect=True, ids=_named
)
of_overlay = pytest.mark.parametrize(
    "site", [case for case in CASES if case.strategy == "overlay"], indirect=True, ids=_named
)


@pytest.fixture(params=CASES, ids=_named)
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    skip_unless_possible(request.param)
    with make_site(request.param, monkeypatch) as made:
        yield made


def until(condition: object) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_the_command_sees_its_changes_and_the_workspace_does_not(site: Site) -> None:
    line = "echo new > new; echo more >> kept; rm gone; mkdir d; test -f new && ! test -e gone"
    outcome = site.run(line)
    assert (outcome.exit, outcome.notice) == (0, "")
    assert site.result(outcome, "new").read_text() == "new\n"
    assert site.result(outcome, "kept").read_text() == "kept\nmore\n"
    assert site.result(outcome, "d").is_dir()
    if site.isolates:
        assert outcome.layer is not None
        assert (site.root / "kept").read_text() == "kept\n"
        assert (site.root / "gone").exists()
        assert not (site.root / "new").exists()
    else:
        assert outcome.layer is None
        assert not (site.root / "gone").exists()


def test_what_applied_is_reported(site: Site) -> None:
    isolation = site.run("true").isolation
    assert isolation.strategy == site.case.strategy
    assert isolation.tier == ("workspace" if site.isolates else "none")
    assert isolation.network == "open"


@pytest.mark.parametrize("status", [0, 1, 77, 255])
def test_the_status_is_the_commands(site: Site, status: int) -> None:
    outcome = site.run(f"exit {status}")
    assert (outcome.exit, outcome.signal) == (status, None)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_death_by_signal(site: Site, signum: signal.Signals) -> None:
    outcome = site.run(f"kill -{signum.value} $$")
    assert (outcome.exit, outcome.signal) == (128 + signum, signum)


def test_a_program_that_is_not_there(site: Site) -> None:
    outcome = site.ask(RunRequest(site.root, argv=("no-such-program",)))
    assert (outcome.exit, outcome.notice) == (127, "no-such-program: command not found")


def test_a_file_that_is_no_program(site: Site) -> None:
    outcome = site.ask(RunRequest(site.root, argv=("./kept",)))
    assert outcome.exit == 126


def test_a_directory_below_the_root(site: Site) -> None:
    assert site.seen("pwd; cat inner", cwd=site.root / "dir") == f"{site.root}/dir\ninner\n"


def test_a_directory_that_is_not_there(site: Site) -> None:
    with pytest.raises(AssertionError, match=WorkspaceError.__name__):
        site.run("true", cwd=site.root / "nowhere")


def test_exactly_one_command(site: Site) -> None:
    with pytest.raises(AssertionError, match=UsageError.__name__):
        site.ask(RunRequest(site.root))


def test_bytes_of_stdin_arrive(site: Site) -> None:
    data = bytes(range(256)) * 1000
    (site.base / "in").write_bytes(data)
    fd = os.open(site.base / "in", os.O_RDONLY)
    outcome = site.run("cat > copy", stdin=fd)
    os.close(fd)
    assert site.result(outcome, "copy").read_bytes() == data


def test_the_environment_is_ours_and_what_was_asked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOES", "x")
    monkeypatch.setenv("STAYS", "y")
    before = set(os.environ)
    said = site.seen("env -0", env={"GOES": None, "COMES": "z"})
    found = dict(pair.split("=", 1) for pair in said.split("\0") if pair)
    assert (found["STAYS"], found["COMES"]) == ("y", "z")
    extra = set(found) - before - {"COMES", "_", "PWD", "SHLVL", "OLDPWD"}
    assert all(name.startswith("SUBSTRATE_") for name in extra)
    assert "GOES" not in found


def test_the_umask_is_ours(site: Site) -> None:
    old = os.umask(0o027)
    try:
        outcome = site.run("touch f; mkdir d2")
    finally:
        os.umask(old)
    assert stat.S_IMODE(site.result(outcome, "f").stat().st_mode) == 0o640
    assert stat.S_IMODE(site.result(outcome, "d2").stat().st_mode) == 0o750


def test_the_root_itself_looks_as_it_is(site: Site) -> None:
    os.chmod(site.root, 0o751)
    assert site.seen("stat -c '%a %u' .").strip() == f"751 {site.case.uid}"


@pytest.mark.needs("user-xattrs")
def test_the_root_itself_has_its_attributes_and_no_marks(site: Site) -> None:
    for name in ("user.mine", "user.overlay.opaque"):
        os.setxattr(site.root, name, b"y")
    look = "import os; print(os.listxattr(), os.listdir('dir'))"
    seen = site.seen(f'python3 -c "{look}"')
    assert "'user.mine'" in seen and "'inner'" in seen
    outcome = site.run("touch new")
    if outcome.layer is not None:
        assert new_look(outcome.layer) == ""


def test_new_files_belong_to_the_user(site: Site) -> None:
    outcome = site.run("touch mine")
    assert site.result(outcome, "mine").stat().st_uid == site.case.uid


@isolating
def test_history_is_hidden_and_cleaning_up_does_not_trip_over_it(site: Site) -> None:
    (site.store / "secret").write_text("s")
    line = "ls -A .substrate-git; git init -q . && git clean -fdxq && ls -A && git status --short"
    outcome = site.run(line)
    assert outcome.exit == 0
    assert site.seen("ls -d .substrate-git* || echo hidden").strip() == "hidden"
    assert (site.store / "secret").exists()


def test_a_timeout_ends_everything(site: Site) -> None:
    line = "sleep 60 & echo $! > child; sleep 60"
    outcome = site.run(line, timeout_s=0.5)
    assert (outcome.exit, outcome.timed_out) == (124, True)
    assert outcome.notice == "the command was ended after 0.5 s"
    assert outcome.left_running == 0


@of_overlay
def test_what_is_left_running_goes_on_and_is_reported(site: Site) -> None:
    mark = site.base / "mark"
    os.mkdir(mark)
    os.chown(mark, site.case.uid, site.case.uid)
    wait = f"until test -e {mark}/go; do sleep 0.05; done"
    line = f"({wait}; echo late > late; touch {mark}/done) & echo now > now"
    outcome = site.run(line)
    assert outcome.exit == 0
    assert outcome.left_running >= 1
    assert site.result(outcome, "now").read_text() == "now\n"
    (mark / "go").touch()
    until((mark / "done").exists)
    assert site.result(outcome, "late").read_text() == "late\n"
    until(lambda: not _is_running(outcome))


def _is_running(outcome: RunOutcome) -> bool:
    from substrate.world.layer import layer_dirs

    assert outcome.layer is not None
    return layer_dirs.is_running(outcome.layer)


def test_children_can_be_ended_with_the_command(site: Site) -> None:
    outcome = site.run("sleep 60 & echo $!", kill_children=True)
    assert (outcome.exit, outcome.left_running) == (0, 0)


def test_orphans_are_reaped(site: Site) -> None:
    """Zombies of a double fork would fill up the pid table of a long command."""
    left = "ps -eo stat= | grep -c Z"  # one that has just ended may be seen
    line = f"for i in 1 2 3; do (sleep 0.05 & ); done; until [ $({left}) = 0 ]; do sleep 0.1; done"
    if site.isolates:
        assert site.run(line, timeout_s=PATIENCE_S).exit == 0


def test_nothing_is_left_behind(site: Site) -> None:
    site.run("true")
    # Others mount things, too.
    assert str(site.base) not in Path("/proc/self/mountinfo").read_text()
    site.discard()
    site.made.clear()
    if site.isolates:
        assert os.listdir(site.store / "worlds") == []


def test_names_that_are_no_text(site: Site) -> None:
    outcome = site.ask(RunRequest(site.root, argv=("touch", b"a\xff\nb", "c,d:e\\f")))
    names = set(os.listdir(os.fsencode(outcome.layer.upper if outcome.layer else site.root)))
    assert {b"a\xff\nb", b"c,d:e\\f"} <= names


def test_a_root_with_every_character_that_mount_options_would_read(site: Site) -> None:
    odd = site.base / "a,b:c\\d e\nf"
    if site.case.strategy == "fuse-overlayfs":
        site.root.rename(odd)
        site.root, site.store = odd, odd / ".substrate-git"
        with pytest.raises(AssertionError, match="a directory whose path has a colon"):
            site.run("true")
        odd.rename(site.base / "project")
        site.root = site.base / "project"
        odd = site.base / "a,bc\\d e\nf"
    site.root.rename(odd)
    site.root, site.store = odd, odd / ".substrate-git"
    outcome = site.run("echo x > new; cat kept > copy")
    assert outcome.exit == 0
    assert site.result(outcome, "copy").read_text() == "kept\n"
    assert (site.root / "new").exists() is not site.isolates


@pytest.mark.needs("mounts")
def test_a_mount_inside_is_seen_and_named(site: Site) -> None:
    inner = site.root / "dir"
    with mounted(inner, *tmpfs_words(mode="777")):
        (inner / "mounted").write_text("m\n")
        if site.case.strategy == "overlay" and site.case.uid:
            with pytest.raises(AssertionError, match="something is mounted inside"):
                site.run("true")
        else:
            outcome = site.run("cat dir/mounted && echo real > dir/real")
            assert outcome.exit == 0
            assert (inner / "real").read_text() == "real\n"
            assert (str(inner) in outcome.isolation.reason) is site.isolates


@isolating
def test_a_killed_waiter_takes_the_world_with_it(site: Site) -> None:
    """Its further changes could never be applied."""
    marks = site.base / "marks"
    os.mkdir(marks)
    os.chown(marks, site.case.uid, site.case.uid)
    site.run("true")  # so that everything is imported, and the child below has one child
    child = os.fork()
    if child == 0:
        line = f"echo $$ > {marks}/up; while :; do touch {marks}/beat; sleep 0.02; done"
        try:
            site.run(line)
        finally:
            os._exit(0)
    until((marks / "beat").exists)
    for pid in _children(child):  # as_user's child is the one that waits
        os.kill(pid, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: not _processes_in(site.root))
    assert not pid_alive(child)
    for name in os.listdir(site.store / "worlds"):
        remove_tree(site.store / "worlds" / name)  # the kernel's own work directory has mode 000


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def _processes_in(directory: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(directory)):
                found.append(process.name)
    return found


def test_nothing_that_works_is_skipped() -> None:
    """Every strategy is in the list of cases: a new one cannot be forgotten."""
    assert {case.strategy for case in CASES} == set(STRATEGIES)


FORKING = """exec python3 -c '
import os, time
made = 0
try:
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    pass
print(made)
'"""
HUNGRY = "exec python3 -c 'x = bytearray(400 * 1024 * 1024); print(len(x))'"


@isolating
def test_a_limit_on_processes_holds_for_all_of_them(site: Site) -> None:
    # Without a control group the limit counts whatever the user has running on this machine.
    others = 0 if site.case.uid == 0 else _processes_of(site.case.uid)
    limits = ResourceLimits(pids=8 + others)
    assert int(site.seen(FORKING, limits=limits, kill_children=True)) < 8 + others
    assert int(site.seen(FORKING, kill_children=True)) == 30


def _processes_of(uid: int) -> int:
    count = 0
    for entry in Path("/proc").glob("[0-9]*/task/*"):
        with suppress(OSError):
            count += entry.stat().st_uid == uid
    return count


@isolating
def test_a_limit_on_memory_ends_what_goes_over_it(site: Site) -> None:
    limits = ResourceLimits(memory_bytes=100 * 1024 * 1024)
    assert site.run(HUNGRY, limits=limits).exit != 0
    assert site.run(HUNGRY).exit == 0


@isolating
def test_limits_that_cannot_be_held_are_reported(site: Site) -> None:
    reason = site.run("true", limits=ResourceLimits(cpus=0.5)).isolation.reason
    assert ("processor time is not limited" in reason) is (site.case.uid == NOBODY)
