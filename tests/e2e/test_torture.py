"""The torture: an agent does damage of every kind, the user works on, then a rollback.

All of the agent's damage is undone and all of the user's work is kept: 11 of 11, point by point.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.crash.oracle import Cli, Seen, Tree, all_bytes, differences, store_problems, tree
from tests.crash.oracle import trace_lines as read_trace

NOBODY = 65534
BIG = random.Random(12).randbytes(12 * 1024 * 1024)

#: What the agent does, one shell line for each kind of damage.
DAMAGE = (
    "printf 'broken\\n' >> src/app.py",
    "rm src/old.py",
    "printf 'agent\\n' > src/new.py",
    "chmod 0755 notes.txt",
    "rm .env",
    "rm -r secrets",
    "rm nested/lib.py",
    "rmdir empty",
    "rm data.bin",
)


class Point(NamedTuple):
    """One thing that must hold after the rollback."""

    what: str
    path: bytes


POINTS = (
    Point("the edited file is as it was", b"src/app.py"),
    Point("the deleted file is back", b"src/old.py"),
    Point("the created file is gone", b"src/new.py"),
    Point("the mode is as it was", b"notes.txt"),
    Point("the ignored .env is back", b".env"),
    Point("the ignored directory is back with what it held", b"secrets"),
    Point("the nested repository's file is back", b"nested/lib.py"),
    Point("the empty directory is back", b"empty"),
    Point("the 12 MB file is back", b"data.bin"),
    Point("the user's edit of another file stands", b"src/user.py"),
    Point("the user's new file stands", b"src/mine.py"),
)


def make_project(cli: Cli) -> None:
    """Files under the umask of the run, made by the user of the run."""
    script = r"""
    git init -q . && mkdir -p src secrets/deep nested empty
    printf 'one\ntwo\n' > src/app.py; printf 'old\n' > src/old.py
    printf 'keep\n' > src/user.py; printf 'n\n' > notes.txt; chmod 0640 notes.txt
    printf '.env\nsecrets/\n' > .gitignore
    printf 'TOKEN=1\n' > .env; chmod 0600 .env
    printf 'k\n' > secrets/key; printf 'd\n' > secrets/deep/er; ln -s ../src/app.py secrets/link
    chmod 0700 secrets
    git init -q nested && printf 'lib\n' > nested/lib.py
    git -C nested add lib.py && git -C nested commit -qm lib
    git add src notes.txt .gitignore && git commit -qm first
    """
    assert cli.spawn(["sh", "-ec", script]).returncode == 0
    big = cli.workspace / "data.bin"
    big.write_bytes(BIG)
    os.chmod(big, 0o666 & ~cli.umask)
    if cli.uid is not None:
        os.chown(big, cli.uid, cli.uid)


def user_works(cli: Cli) -> None:
    script = (
        "printf 'mine\\n' >> src/user.py; printf 'new\\n' > src/mine.py; chmod 0604 src/mine.py"
    )
    assert cli.spawn(["sh", "-ec", script]).returncode == 0


def with_users_work(before: Tree, cli: Cli) -> Tree:
    """The tree that must come out: the project as it was, and the user's two changes."""
    old = before[b"src/user.py"]
    after = dict(before)
    after[b"src/user.py"] = old._replace(content=old.content + b"mine\n")
    after[b"src/mine.py"] = Seen("file", 0o604, b"new\n")
    return after


def holding(points: tuple[Point, ...], found: Tree, expected: Tree) -> list[Point]:
    """The points that hold; each also for everything below its path."""
    out = []
    for point in points:
        paths = {
            path
            for path in found.keys() | expected.keys()
            if path == point.path or path.startswith(point.path + b"/")
        } or {point.path}
        good = all(found.get(path) == expected.get(path) for path in paths)
        print(f"{'ok  ' if good else 'LOST'} {point.what}")
        if good:
            out.append(point)
    return out


def users_git(cli: Cli) -> dict[str, tuple[int, bytes]]:
    """The user's own repository, but for the one file that Substrate may write."""
    found = all_bytes(cli.workspace / ".git")
    return {name: what for name, what in found.items() if name != "info/exclude"}


def agent(cli: Cli, *lines: str) -> None:
    done = cli("--session", "s-agent", "-c", " && ".join(lines))
    assert done.returncode == 0, done.stderr.decode()


def check_all(cli: Cli, before: Tree, git_before: dict[str, tuple[int, bytes]]) -> None:
    expected = with_users_work(before, cli)
    found = tree(cli.workspace)
    good = holding(POINTS, found, expected)
    print(f"{len(good)} of {len(POINTS)}")
    assert len(POINTS) == 11
    assert [p.what for p in POINTS if p not in good] == []
    assert differences(found, expected) == []
    assert users_git(cli) == git_before
    assert store_problems(cli) == []
    status = cli.spawn(["git", "status", "--porcelain"]).stdout.decode().splitlines()
    assert sorted(status) == [" M src/user.py", "?? data.bin", "?? nested/", "?? src/mine.py"]


@pytest.fixture(params=[0o022, 0o002, 0o077], ids=["umask022", "umask002", "umask077"])
def cli(request: pytest.FixtureRequest, tmp_path: Path, private_environment: Path) -> Cli:
    workspace = tmp_path / "project"
    workspace.mkdir()
    made = Cli(workspace, private_environment, umask=request.param)
    make_project(made)
    return made


@pytest.fixture
def foreign_cli() -> Iterator[Cli]:
    """The same, as a user other than root, in directories of that user."""
    base = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        for name in ("", "home", "project"):
            (base / name).mkdir(exist_ok=True)
            os.chown(base / name, NOBODY, NOBODY)
        made = Cli(base / "project", base / "home", uid=NOBODY)
        made = reachable(made)
        make_project(made)
        yield made
    finally:
        shutil.rmtree(base)


#: Everything is imported while still root, then the process becomes the other user.
_LAUNCHER = """
import argparse, base64, concurrent.futures.thread, contextlib, ctypes, datetime, difflib, encodings
import importlib, json, os, pkgutil, platform, pwd, shlex, signal, subprocess, sys, tempfile
import tomllib, traceback, substrate
for module in (
    *pkgutil.walk_packages(substrate.__path__, "substrate."),
    *pkgutil.walk_packages(encodings.__path__, "encodings."),
):
    if not module.name.endswith(("__main__", ".mbcs", ".oem")):
        with contextlib.suppress(ImportError):  # of a dependency that no history needs
            importlib.import_module(module.name)
from substrate.cli.main import substrate as program
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sys.exit(program())
"""


def reachable(cli: Cli) -> Cli:
    """That user may be unable to reach the interpreter, if it lives in root's home."""
    try:
        if cli("--version").returncode == 0:
            return cli
    except PermissionError:
        pass
    launched = cli._replace(launcher=("-c", _LAUNCHER, str(cli.uid)))
    assert launched("--version").returncode == 0
    return launched


def torture_in_one(cli: Cli) -> None:
    before, git_before = tree(cli.workspace), users_git(cli)
    mark = cli.json("--session", "s-agent", "checkpoint")
    agent(cli, *DAMAGE)
    user_works(cli)
    cli.ok("rollback", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    check_all(cli, before, git_before)


def torture_spread(cli: Cli) -> None:
    """Five commands, a checkpoint between them, the user at work in between as well."""
    before, git_before = tree(cli.workspace), users_git(cli)
    mark = cli.json("--session", "s-agent", "checkpoint")
    agent(cli, *DAMAGE[0:2])
    agent(cli, *DAMAGE[2:4])
    cli.ok("--session", "s-agent", "checkpoint", "-m", "half way")
    agent(cli, *DAMAGE[4:6])
    user_works(cli)
    agent(cli, *DAMAGE[6:8])
    agent(cli, *DAMAGE[8:])
    cli.ok("rollback", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    check_all(cli, before, git_before)


def test_torture(cli: Cli) -> None:
    torture_in_one(cli)


def test_torture_spread_over_five_commands(cli: Cli) -> None:
    torture_spread(cli)


@pytest.mark.needs("other-user")
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_torture_as_another_user(foreign_cli: Cli, umask: int) -> None:
    torture_in_one(foreign_cli._replace(umask=umask))


@pytest.mark.needs("other-user")
def test_torture_spread_as_another_user(foreign_cli: Cli) -> None:
    torture_spread(foreign_cli)


def test_a_rollback_can_be_taken_back(cli: Cli) -> None:
    """The printed command brings the agent's state back, the user's work included."""
    mark = cli.json("--session", "s-agent", "checkpoint")
    agent(cli, *DAMAGE)
    user_works(cli)
    damaged = tree(cli.workspace)
    answer = cli.json("rollback", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    words = str(answer["recover_with"]).split()
    assert words[0] == "substrate"
    cli.ok(*words[1:])
    assert differences(tree(cli.workspace), damaged) == []


def test_an_exact_rollback_keeps_what_it_replaces(cli: Cli) -> None:
    """`--exact` takes the user's work away too; the recovery ref has it."""
    before = tree(cli.workspace)
    mark = cli.json("--session", "s-agent", "checkpoint")
    agent(cli, *DAMAGE)
    user_works(cli)
    damaged = tree(cli.workspace)
    answer = cli.json("rollback", "--exact", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    assert differences(tree(cli.workspace), before) == []
    cli.ok(*str(answer["recover_with"]).split()[1:])
    assert differences(tree(cli.workspace), damaged) == []


def test_torture_on_the_real_files(tmp_path: Path, private_environment: Path) -> None:
    """The same without a world."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    cli = Cli(workspace, private_environment, extra={"SUBSTRATE_WORLD": "disabled"})
    make_project(cli)
    torture_in_one(cli)


@pytest.mark.needs("overlay", "root")
def test_an_excluded_directory_comes_back_from_its_world(
    tmp_path: Path, private_environment: Path
) -> None:
    """11 of 11: in a world, what a command removes from excluded places goes to the trash."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    cli = Cli(workspace, private_environment, extra={"SUBSTRATE_WORLD": "enabled"})
    make_project(cli)
    (workspace / "node_modules" / "left-pad").mkdir(parents=True)
    (workspace / "node_modules" / "left-pad" / "index.js").write_text("pad\n")
    damage = [*DAMAGE, "rm -r node_modules"]
    before = tree(workspace)
    mark = cli.json("--session", "s-agent", "checkpoint")
    agent(cli, *damage)
    user_works(cli)
    cli.ok("rollback", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    expected = with_users_work(before, cli)
    assert differences(tree(workspace), expected) == []


def test_a_lost_excluded_directory_is_announced(tmp_path: Path, private_environment: Path) -> None:
    """Without a world, what an excluded directory held cannot be kept: 10 of 11, and said."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    cli = Cli(workspace, private_environment)
    make_project(cli)
    (workspace / "node_modules" / "left-pad").mkdir(parents=True)
    (workspace / "node_modules" / "left-pad" / "index.js").write_text("pad\n")
    excluded = Point("the excluded directory is back", b"node_modules")
    points = tuple(excluded if p.path == b"secrets" else p for p in POINTS)
    damage = ["rm -r node_modules" if "secrets" in line else line for line in DAMAGE]

    before = tree(workspace)
    mark = cli.json("--session", "s-agent", "checkpoint")
    done = cli("--session", "s-agent", "run", "--no-world", "--", "sh", "-ec", "; ".join(damage))
    assert done.returncode == 0, done.stderr.decode()
    span = read_trace(cli)[-1]
    assert span["event_type"] == "command_complete"
    assert span["unprotected"] == ["node_modules"]

    user_works(cli)
    said = cli("rollback", "--checkpoint", f"s-agent/{mark['checkpoint_seq']}")
    assert said.returncode == 0, said.stderr.decode()
    good = holding(points, tree(workspace), with_users_work(before, cli))
    print(f"{len(good)} of {len(points)}")
    assert [p.what for p in points if p not in good] == [excluded.what]
    assert b"node_modules" in said.stdout + said.stderr
    assert stat.S_IMODE((workspace / ".substrate-git").stat().st_mode) == 0o700
