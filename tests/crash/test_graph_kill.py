"""`ctx index` killed at a system call: what is there afterwards is whole, or done again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from substrate.graph.index.graph_paths import FILES, read_marker

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]
#: Where the files, their names and the cache change. Some of each now; all of them with --long.
CALLS = ("rename", "mkdir", "openat", "write", "pwrite64", "unlink", "copy_file_range", "ftruncate")


def git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits, so that the second snapshot is spliced from the first."""
    root = tmp_path / "repo"
    git(tmp_path, "init", "-q", "-b", "main", "repo")
    for n in range(6):
        (root / f"m{n}.py").write_text(
            f"from m{(n + 1) % 6} import f\n\n\ndef f():\n    return f()\n"
        )
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    (root / "m3.py").write_text("def g():\n    return 3\n")
    git(root, "commit", "-q", "-a", "-m", "second")
    subprocess.run([*CTX, "init"], cwd=root, check=True, capture_output=True)
    return root


def index(repo: Path, revision: str, *wrapped: str) -> int:
    argv = [*wrapped, *CTX, "index", "--commit", revision]
    return subprocess.run(argv, cwd=repo, capture_output=True, check=False).returncode


def whole(repo: Path) -> dict[str, dict[str, bytes]]:
    """Every snapshot that would be believed."""
    return {
        directory.name: {name: (directory / name).read_bytes() for name in FILES}
        for directory in (repo / ".ctx/graph/snapshots").iterdir()
        if not directory.name.startswith(".tmp-") and read_marker(directory) is not None
    }


def manifests(repo: Path) -> dict[str, list[bytes]]:
    found = (repo / ".ctx/graph/manifests").iterdir()
    return {file.name: file.read_bytes().splitlines() for file in found}


def calls_made(repo: Path, log: Path) -> dict[str, int]:
    fresh(repo)
    index(repo, "HEAD~1")
    index(repo, "HEAD", "strace", "-o", str(log), "-e", f"trace={','.join(CALLS)}")
    lines = log.read_text().splitlines()
    return {call: sum(line.startswith(call + "(") for line in lines) for call in CALLS}


def fresh(repo: Path) -> None:
    subprocess.run(["rm", "-rf", str(repo / ".ctx/graph")], check=True)


def sweep(repo: Path, log: Path, most: int) -> None:
    made = calls_made(repo, log)
    right, told = whole(repo), manifests(repo)
    assert len(right) == 2
    killed = 0
    for call, count in made.items():
        # The last ones first: those before belong to Python's own start.
        for number in range(count, 0, -max(1, count // most)):
            fresh(repo)
            index(repo, "HEAD~1")
            inject = f"inject={call}:signal=KILL:when={number}"
            strace = ("strace", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
            killed += index(repo, "HEAD", *strace) != 0
            for name, files in whole(repo).items():
                assert files == right[name], (call, number, name)
            assert index(repo, "HEAD") == 0, (call, number)
            assert whole(repo) == right, (call, number)
            assert manifests(repo) == told, (call, number)
    assert killed >= 5


@pytest.mark.needs("strace")
def test_a_kill_at_any_call_leaves_nothing_to_believe_that_is_not_whole(
    repo: Path, tmp_path: Path
) -> None:
    sweep(repo, tmp_path / "log", most=1)


@pytest.mark.long
@pytest.mark.needs("strace")
def test_the_same_at_every_call(repo: Path, tmp_path: Path) -> None:
    sweep(repo, tmp_path / "log", most=10_000)
