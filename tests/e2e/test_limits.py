"""Limits that the caller set (``ulimit``): the call works, or says at once which is too small."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon_in, until
from tests.e2e.test_daemon_as_user import _AS_USER

pytestmark = pytest.mark.needs("linux")

PATIENCE_S = 60.0
MIB = 1024 * 1024


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a").write_text("a\n")
    call(root, "-c", "echo b > b")
    return root


def limited(name: str, value: int) -> Callable[[], None]:
    def limit() -> None:
        import resource

        resource.setrlimit(getattr(resource, name), (value, value))

    return limit


def call(
    root: Path, *words: str, limit: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "substrate", *words], cwd=root, capture_output=True,
        stdin=subprocess.DEVNULL, preexec_fn=limit, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def assert_fair(root: Path, done: subprocess.CompletedProcess[bytes]) -> None:
    """It did all of it, or none and said why; and nothing is in the way of the next call."""
    if done.returncode == 0:
        assert (done.stdout, done.stderr) == (b"done\n", b"")
        assert (root / "f").read_bytes() == b"1\n"
    else:
        assert done.returncode == 125
        assert done.stderr.startswith(b"substrate: error:")
        assert b"ulimit" in done.stderr
        assert b"a bug" not in done.stderr
        assert b"Traceback" not in done.stderr
        assert not (root / "f").exists()
    assert not [each.name for each in (root / ".substrate-git/worlds").iterdir()]
    again = call(root, "-c", "echo 2 > g")
    assert (again.returncode, again.stderr) == (0, b"")


@pytest.mark.parametrize("mib", [30, 40, 43, 46, 50, 58, 66, 128])
@pytest.mark.parametrize("what", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_little_memory(workspace: Path, what: str, mib: int) -> None:
    done = call(workspace, "-c", "echo 1 > f; echo done", limit=limited(what, mib * MIB))
    assert_fair(workspace, done)
    if mib >= 128:
        assert done.returncode == 0


@pytest.mark.parametrize("size", [0, 4096, MIB, 64 * MIB])
def test_small_files(workspace: Path, size: int) -> None:
    """Where the output is a pipe, which no such limit is for."""
    done = call(workspace, "-c", "echo 1 > f; echo done", limit=limited("RLIMIT_FSIZE", size))
    assert_fair(workspace, done)
    assert (done.returncode == 0) == (size == 64 * MIB)


@pytest.mark.parametrize("count", [6, 10, 20, 64])
def test_few_descriptors(workspace: Path, count: int) -> None:
    done = call(workspace, "-c", "echo 1 > f; echo done", limit=limited("RLIMIT_NOFILE", count))
    assert_fair(workspace, done)
    assert (done.returncode == 0) == (count == 64)


@pytest.mark.parametrize(("what", "value"), [("RLIMIT_MEMLOCK", 0), ("RLIMIT_STACK", 512 * 1024)])
def test_limits_that_are_no_matter(workspace: Path, what: str, value: int) -> None:
    done = call(workspace, "-c", "echo 1 > f; echo done", limit=limited(what, value))
    assert_fair(workspace, done)
    assert done.returncode == 0


@pytest.mark.needs("other-user", "world-overlay")
def test_few_processes() -> None:
    """For an ordinary user: root has no limit. No other user has this uid."""
    user = 4_000_000 + os.getpid() % 1_000_000
    with tempfile.TemporaryDirectory(prefix="substrate-limits-") as name:
        base = Path(name)
        root, home = base / "project", base / "home"
        for directory in (base, root, home):
            directory.mkdir(exist_ok=True)
            os.chown(directory, user, user)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate"),
               "PATH": "/usr/local/bin:/usr/bin:/bin", "SUBSTRATE_DAEMON": "off"}  # fmt: skip

        def run(count: int | None) -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [sys.executable, "-c", _AS_USER, str(user), "-c", "echo 1 >> f; echo done"],
                cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                preexec_fn=None if count is None else limited("RLIMIT_NPROC", count),
                timeout=PATIENCE_S,
            )  # fmt: skip

        went_well = 0
        for count in (None, 2, 3, 4, 5, 6, 40, None):
            done = run(count)
            if done.returncode == 0:
                went_well += 1
                assert (done.stdout, done.stderr) == (b"done\n", b"")
            else:
                assert count is not None
                assert count < 40
                assert (done.returncode, done.stdout) == (125, b"")
                assert b"ulimit -u" in done.stderr
            assert (root / "f").read_bytes() == b"1\n" * went_well
            assert not list((root / ".substrate-git/worlds").iterdir())


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as made:
        yield made


def test_through_an_daemon(daemon: Daemon) -> None:
    daemon.serve()
    for _ in range(2):
        assert daemon.run("-c", "true").returncode == 0
    for what, value in (("AS", 43 * MIB), ("DATA", 20 * MIB), ("FSIZE", 0), ("NOFILE", 20)):
        done = daemon.run("-c", "echo 1 > f", preexec_fn=limited(f"RLIMIT_{what}", value))
        assert done.returncode == 125, what
        assert b"ulimit" in done.stderr, what
        assert b"a bug" not in done.stderr, what
    done = daemon.run("-c", "ulimit -c; ulimit -l", preexec_fn=limited("RLIMIT_MEMLOCK", 0))
    assert (done.returncode, done.stdout.split()[1]) == (0, b"0")
    assert daemon.serves()


def test_no_daemon_is_started_with_limits_of_one_call(daemon: Daemon) -> None:
    """It would have them for as long as it serves everybody."""
    done = daemon.run("-c", "true", preexec_fn=limited("RLIMIT_CPU", 20))
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (daemon.directory / "start").exists()
    assert daemon.run("-c", "true").returncode == 0
    until(daemon.state, "a daemon")
