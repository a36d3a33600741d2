"""The project is moved, or its mount goes, at some moment of an operation.

Afterwards history and tree agree, or the operation has said so with the command that settles it;
and no store is made at the path where the project was.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.oracle import Cli, Tree, differences, store_problems, tree

pytestmark = [pytest.mark.needs("root", "mounts", "world-overlay"), pytest.mark.timeout(0)]

_FILES = 250
_SHORT, _LONG = 1, 13
_EDIT = 'for f in d/*; do echo more >> "$f"; done; rm -r e; mkdir g; cp d/1* g'
_TOLD = re.compile(r"`substrate -C (\S+) -c true`")


class Site:
    """A project that can be moved away: by its own name, or with a mount."""

    def __init__(self, base: Path, way: str) -> None:
        self.way, self.base = way, base
        self.at = base / "project"
        self.real = self.at if way == "mv" else base / "disk"
        self.real.mkdir()
        for below in ("d", "e", "home"):
            (self.real / below if below != "home" else base / below).mkdir()
        for number in range(_FILES):
            (self.real / "d" / f"{number:03}").write_text(f"{number}\n" * 9)
            (self.real / "e" / f"{number:03}").write_text(f"e {number}\n")
        if way == "umount":
            self.at.mkdir()
            subprocess.run(["git", "init", "-q", str(self.real)], check=True)
            subprocess.run(["mount", "--bind", str(self.real), str(self.at)], check=True)
        self.is_mounted = way == "umount"
        self.cli = Cli(self.at, base / "home")

    def go(self) -> None:
        if self.way == "mv":
            self.real = self.base / "elsewhere"
            self.at.rename(self.real)
        else:
            self.unmount()

    def unmount(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.at)], check=True)
            self.is_mounted = False

    @property
    def there(self) -> Cli:
        return self.cli._replace(workspace=self.real)

    def left_behind(self) -> list[str]:
        return os.listdir(self.at) if self.at.exists() else []

    def close(self) -> None:
        self.unmount()
        shutil.rmtree(self.base)


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[[str], Site]]:
    made: list[Site] = []

    def make(way: str) -> Site:
        base = tmp_path / f"round-{len(made)}"
        base.mkdir()
        made.append(Site(base, way))
        return made[-1]

    yield make
    for site in made:
        if site.base.exists():
            site.close()


def _worlds(cli: Cli) -> list[str]:
    found = cli.json("world", "list")["worlds"]
    assert isinstance(found, list)
    return [one["world_id"] for one in found]


def _prepared(site: Site, verb: str) -> tuple[list[str], Tree, Tree]:
    """The words of the operation, the tree before it, and the tree after it."""
    site.cli.ok("-c", "true")
    first = tree(site.at)
    if verb == "world apply":
        site.cli.ok("run", "--hold", "--", "bash", "-c", _EDIT)
        [world_id] = _worlds(site.cli)
        copy = site.base / "copy"
        shutil.copytree(site.at, copy, ignore=shutil.ignore_patterns(".substrate-git", ".git"))
        subprocess.run(["bash", "-c", _EDIT], cwd=copy, check=True)
        return ["world", "apply", world_id], first, tree(copy)
    site.cli.ok("-c", _EDIT)
    edited = tree(site.at)
    if verb == "undo":
        return ["undo"], edited, first
    if verb == "rollback":
        oldest = [c["command_id"] for c in site.cli.log() if c["kind"] == "command"][-1]
        return ["rollback", "--to", str(oldest)], edited, first
    assert verb == "compact"
    for number in range(3):
        site.cli.ok("-c", f"echo {number} > n", "--session", f"s-{number}")
        site.cli.ok("session", "close", f"s-{number}")
    now = tree(site.at)
    return ["compact", "--keep-sessions", "0", "--keep-checkpoints", "0"], now, now


def _struck(site: Site, words: list[str], after_s: float) -> tuple[int, str]:
    running = subprocess.Popen(
        site.cli.argv(*words), cwd=site.at, env=site.cli.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(after_s)
    site.go()
    _, said = running.communicate(timeout=240)
    return running.returncode, said.decode()


def _settled(site: Site, status: int, said: str) -> None:
    """The next command settles what is left; the message named it, if anything was."""
    assert "Traceback" not in said and "crash report" not in said, said
    reasons = ("was moved", "no longer there", "no history")
    assert status == 0 or any(one in said for one in reasons), said
    told = _TOLD.search(said)
    if told and site.way == "mv":
        assert told[1] == str(site.real)
    site.there.ok("-c", "true")


def _check(site: Site, verb: str, before: Tree, after: Tree, status: int, said: str) -> str:
    assert site.left_behind() == []
    _settled(site, status, said)
    found, log = tree(site.real), site.there.log()
    assert store_problems(site.there) == []
    assert not [one for one in log if one["kind"] == "external"], (status, said)
    if verb == "compact":
        assert differences(found, before) == []
        return "same"
    is_done = not differences(found, after)
    assert is_done or not differences(found, before), (status, said, differences(found, before)[:5])
    if verb == "world apply":
        assert bool(_worlds(site.there)) is not is_done, (status, said)
    else:
        assert any(one["kind"] == verb for one in log) is is_done, (status, said)
    assert is_done or status != 0, said
    return "done" if is_done else "not done"


@pytest.mark.parametrize("way", ["mv", "umount"])
@pytest.mark.parametrize("verb", ["undo", "rollback", "world apply", "compact"])
def test_history_and_tree_agree_afterwards(
    make_site: Callable[[str], Site], verb: str, way: str, request: pytest.FixtureRequest
) -> None:
    rounds = _LONG if request.config.getoption("--long") else _SHORT
    trial = make_site(way)
    words, _, after = _prepared(trial, verb)
    began = time.monotonic()
    trial.cli.ok(*words)
    takes_s = time.monotonic() - began
    if verb != "compact":
        assert differences(tree(trial.at), after) == []
    trial.close()
    rng = random.Random(f"{verb} {way}")
    ends = []
    for _ in range(rounds):
        site = make_site(way)
        words, before, after = _prepared(site, verb)
        moment_s = rng.uniform(0.1, 1.05) * takes_s
        status, said = _struck(site, words, moment_s)
        ends.append((round(moment_s, 2), status, _check(site, verb, before, after, status, said)))
        site.close()
    print(verb, way, round(takes_s, 2), ends)


@pytest.mark.parametrize("way", ["mv", "umount"])
@pytest.mark.parametrize("option", ["--world", "--no-world"])
def test_a_command_says_where_its_world_is_now(
    make_site: Callable[[str], Site], way: str, option: str
) -> None:
    site = make_site(way)
    site.cli.ok("-c", "true")
    wait = f"touch {site.base}/started; until [ -e {site.base}/go ]; do sleep 0.05; done"
    words = [option, "-c", f"echo x > made; {wait}"]
    running = subprocess.Popen(
        site.cli.argv(*words), cwd=site.at, env=site.cli.environment,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not (site.base / "started").exists():
        time.sleep(0.05)
    site.go()
    if way == "mv":  # another project comes to its place
        site.at.mkdir()
    (site.base / "go").touch()
    _, raw = running.communicate(timeout=60)
    said = raw.decode()
    assert running.returncode == (122 if option == "--world" else 125), said
    assert site.left_behind() == []
    assert "the command ran (exit 0)" in said
    assert "was moved" in said, said
    if way == "mv":
        assert f"substrate -C {site.real}" in said, said
    there = site.there
    there.ok("-c", "true")
    if option == "--world":
        [world_id] = _worlds(there)
        if way == "mv":
            assert f"world apply {world_id}" in said
        there.ok("world", "apply", world_id)
    assert (site.real / "made").read_text() == "x\n"
    assert not [one for one in there.log() if one["kind"] == "external"]
    there.ok("undo")
    assert not (site.real / "made").exists()
