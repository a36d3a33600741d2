"""Thousands of files of a layer, read by two processes: the same as by one, whatever befalls it."""

from __future__ import annotations

import gc
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.objects.store.object_store import ObjectStore
from substrate.workspace.apply.layer_source import LayerEntry
from substrate.workspace.exclude import Exclusions
from substrate.workspace.paths.nofollow_path import Walker
from substrate.workspace.paths.read_node import look
from substrate.world.layer import bulk_files, changes
from tests.unit.world.overlays import Answer, Overlay

pytestmark = pytest.mark.needs("overlay", "root", "mounts")

_BEFORE = """
import os
for d in range(12):
    os.makedirs(f"old/{d}")
    for n in range(30):
        with open(f"old/{d}/{n}", "w") as file:
            file.write(f"{d} {n}\\n" * (n + 1))
"""
#: New, the same twice, empty, written to in place, replaced, odd in every way there is.
_WORK = """
import os
os.mkdir("one")
for n in range(700):
    open(f"one/{n}", "w").write(str(n // 2))
for d in range(120):
    os.makedirs(f"many/{d}/deep")
    open(f"many/{d}/deep/a", "w").write(f"text {d} " * d)
    open(f"many/{d}/deep/empty", "w")
for d in range(0, 12, 2):
    for n in range(0, 30, 2):
        open(f"old/{d}/{n}", "a").write("more")
    os.rename(f"old/{d}/1", f"old/{d}/moved")
    open(f"old/{d}/new", "w").write("new")
    os.replace(f"old/{d}/new", f"old/{d}/3")
    os.chmod(f"old/{d}/5", 0o600)
os.link("one/1", "one/linked")
os.symlink("1", "one/soft")
os.mkfifo("one/fifo")
os.setxattr("one/2", "user.note", b"x")
os.chmod("one/3", 0o4755)
os.chmod("one/4", 0)
open("one/left.out", "w").write("left out")
open("one/big", "wb").write(os.urandom(2 << 20))
os.remove("old/11/7")
"""


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    made = Overlay(tmp_path, "trusted")
    subprocess.run([sys.executable, "-c", _BEFORE], cwd=made.lower, check=True)
    (made.lower / ".substrateignore").write_text("*.out\n")
    return made


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two processors, and the children that were made."""
    made: list[int] = []
    really = os.fork

    def fork() -> int:
        pid = really()
        made.append(pid)
        return pid

    monkeypatch.setattr(bulk_files, "processors", lambda: 2)
    monkeypatch.setattr(os, "fork", fork)
    return made


def _run(overlay: Overlay) -> Answer:
    rules = Exclusions.load(overlay.lower)
    return overlay.run(shlex.join([sys.executable, "-c", _WORK]), rules)


def _alone(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> list[LayerEntry]:
    monkeypatch.setattr(bulk_files, "processors", lambda: 1)
    rules = Exclusions.load(overlay.lower)
    return _unread(overlay.read(rules))


def _unread(found: Answer) -> list[LayerEntry]:
    """Without the times of access: they are ours."""
    return [one._replace(times=(0, one.times[1])) for one in found.diff.entries]


def _check(overlay: Overlay, found: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [one for one in found.expected if one.path != b"one/left.out"]
    # A new set-id bit stays in the world.
    assert {one.path for one in found.changes} == {one.path for one in expected}
    wrong = [
        one
        for one, wanted in zip(found.changes, expected, strict=True)
        if one != wanted and one.path != b"one/3"
    ]
    assert not wrong
    assert _unread(found) == _alone(overlay, monkeypatch)


def test_two_read_what_one_reads(
    overlay: Overlay, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _run(overlay)
    assert len(forks) >= 1
    _check(overlay, found, monkeypatch)
    in_place = {one.path for one in found.diff.entries if one.in_place}
    assert {b"old/0/0", b"old/10/28"} <= in_place
    assert b"old/0/3" not in in_place


def test_what_is_in_their_places_is_seen_as_a_look_sees_it(
    overlay: Overlay, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _run(overlay)
    assert forks
    monkeypatch.setattr(bulk_files, "processors", lambda: 1)
    alone = overlay.read(Exclusions.load(overlay.lower))
    assert found.diff.stood.keys() == alone.diff.stood.keys()
    # Modified, replaced, given another mode; new files replace nothing.
    assert {b"old/0/0", b"old/0/3", b"old/0/5"} <= found.diff.stood.keys()
    assert all(path.startswith(b"old/") for path in found.diff.stood)
    walker = Walker(overlay.lower)
    for path, seen in found.diff.stood.items():
        parent, name = walker.parent_of(path)
        with parent:
            wanted = look(parent, name)
        at, then = seen.stat, wanted.stat
        assert at is not None
        assert then is not None
        assert seen.node == wanted.node
        assert seen.same_inode_untouched(then)
        for each in ("st_nlink", "st_uid", "st_gid", "st_atime_ns"):
            assert getattr(at, each) == getattr(then, each)


def _no_process(_: Callable[[], int]) -> int:
    raise BlockingIOError(11, "Resource temporarily unavailable")


def _killed(fork: Callable[[], int]) -> int:
    pid = fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return pid


@pytest.mark.parametrize("fork", [_no_process, _killed])
def test_what_a_child_does_not_say_is_read_even_so(
    overlay: Overlay,
    forks: list[int],
    monkeypatch: pytest.MonkeyPatch,
    fork: Callable[[Callable[[], int]], int],
) -> None:
    really = os.fork
    monkeypatch.setattr(os, "fork", lambda: fork(really))
    found = _run(overlay)
    monkeypatch.setattr(os, "fork", really)
    _check(overlay, found, monkeypatch)


def test_a_child_holds_so_much_and_no_more(
    overlay: Overlay, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_files, "_CHILD_BYTES", 1)
    monkeypatch.setattr(bulk_files, "_PORTION_BYTES", 1)
    _check(overlay, _run(overlay), monkeypatch)
    assert forks


def test_directories_are_not_kept_open_without_end(
    overlay: Overlay, forks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_MOST_OPEN", 3)
    before = len(os.listdir("/proc/self/fd"))
    _check(overlay, _run(overlay), monkeypatch)
    assert len(os.listdir("/proc/self/fd")) == before


def test_every_content_is_in_the_store(overlay: Overlay, forks: list[int]) -> None:
    rules = Exclusions.load(overlay.lower)
    work = shlex.join([sys.executable, "-c", _WORK])
    found = overlay.run(work, rules, publish=True)
    assert forks
    again = ObjectStore(overlay.store.git_dir)
    for one in found.changes:
        if one.new.oid:
            again.read_blob(one.new.oid)  # verified by its id


_REPOSITORY = """
import os, subprocess
os.makedirs("copy")
os.chdir("copy")
for n in range(30):
    open(str(n), "w").write(str(n))
subprocess.run(["git", "init", "-q"], check=True)
subprocess.run(["git", "add", "-A"], check=True)
os.chdir(".git")
os.link("HEAD", "linked")
os.symlink("HEAD", "soft")
os.mkfifo("fifo")
for name in ("marked", "set-id", "shut"):
    open(name, "w").write(name)
os.setxattr("marked", "user.note", b"x")
os.chmod("set-id", 0o4755)
os.chmod("shut", 0)
"""


def test_what_history_leaves_out_is_reported_the_same_in_fewer_steps(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = _unread(overlay.run(shlex.join([sys.executable, "-c", _REPOSITORY])))
    inside = [one.path for one in quick if one.beyond]
    assert len(inside) > 20
    assert b"copy/.git/shut" in inside
    monkeypatch.setattr(bulk_files, "_without_marks", lambda directory, name: None)
    assert _unread(overlay.read()) == quick
    [marked] = [one for one in quick if one.path == b"copy/.git/marked"]
    assert marked.new.xattrs == ((b"user.note", b"x"),)


def _read_with(overlay: Overlay, descriptors: int) -> list[LayerEntry] | None:
    """With so many descriptors to spare; None: it says that they do not suffice."""
    import resource

    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is of numbers, and other tests' files may have some of those in between.
    spare = [os.open("/", os.O_RDONLY) for _ in range(descriptors)]
    for fd in spare:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, bounds[1]))
    try:
        return _unread(overlay.read())
    except OSError:
        return None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)


@contextmanager
def _no_collection() -> Iterator[None]:
    """What other tests left open does not close in between."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_caller_that_may_open_few_files_reads_the_same_or_says_so(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path, "trusted")
    for name in [f"m{number}" for number in range(10, 50)]:
        (overlay.lower / name).mkdir()
    (overlay.lower / "a/inner").mkdir(parents=True)
    for name in ("one", "two"):
        (overlay.lower / "a/inner" / name).write_text("stays")
    overlay.run("for one in m*; do echo new > $one/new; done; echo new > a/inner/new")
    whole = overlay.read()
    assert whole.paths() == dict.fromkeys(
        [*(f"m{number}/new".encode() for number in range(10, 50)), b"a/inner/new"], "added"
    )
    with _no_collection():
        before = len(os.listdir("/proc/self/fd"))
        with_few = [_read_with(overlay, descriptors) for descriptors in range(4, 110)]
        assert all(one in (None, _unread(whole)) for one in with_few)
        assert len(os.listdir("/proc/self/fd")) == before
    # As few as suffice for one directory after the other.
    assert with_few[30] is not None


_BUSY = """
import os, sys
for d in range(40):
    os.makedirs(f"{sys.argv[1]}/{d}")
    open(f"{sys.argv[1]}/{d}/stays", "w").write("stays")
print(flush=True)
while True:
    for d in range(40):
        os.symlink("x", f"{sys.argv[1]}/{d}/link")
        open(f"{sys.argv[1]}/{d}/file", "w").close()
        os.remove(f"{sys.argv[1]}/{d}/file")
        os.remove(f"{sys.argv[1]}/{d}/link")
"""


def test_what_goes_while_it_is_read_was_not_there(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path, "trusted")
    with overlay.mounted() as merged:
        words = [sys.executable, "-c", _BUSY, str(merged / "busy")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as busy:
            assert busy.stdout is not None
            busy.stdout.readline()
            try:
                found = [overlay.read().paths() for _ in range(30)]
            finally:
                busy.kill()
    for one in found:
        assert all(f"busy/{number}/stays".encode() in one for number in range(40))
