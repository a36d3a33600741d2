"""The world of a replay: the tree at its recorded path, whatever is at that path now."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError
from substrate.packs.tools.confined_tree import ConfinedTree
from substrate.packs.tools.registry import ShellCall, ShellDone
from substrate.recorder.replay.replay_world import shell_for
from substrate.world.interface import Isolation
from tests.capabilities import present
from tests.contract.as_user import NOBODY, as_user

pytestmark = pytest.mark.needs("world-overlay")
_OWN = os.geteuid() if hasattr(os, "geteuid") else 0


class Site:
    """A scratch tree that belongs to the user of the case, and a place it was recorded at."""

    def __init__(self, base: Path, uid: int) -> None:
        self.base = base
        self.uid = uid
        self.scratch = base / "scratch"
        self.tree = self.scratch / "tree"
        self.live = base / "place" / "project"
        self.tree.mkdir(parents=True)
        self.live.mkdir(parents=True)
        (base / "home").mkdir()
        (self.tree / "sub").mkdir()
        (self.tree / "f").write_text("recorded\n")
        (self.live / "f").write_text("live\n")
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)

    def run(
        self, line: str, root: Path | None = None, strategy: str | None = None, net: str = "open"
    ) -> ShellDone:
        tree = ConfinedTree(self.tree, str(root or self.live))
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.base / "home")}

        def work() -> ShellDone:
            shell = shell_for(self.scratch, tree, variables, strategy, net)
            return shell.run(ShellCall(line, cwd=str(root or self.live), timeout_s=60))

        done = as_user(self.uid, work)
        assert done.problem == ""
        return done

    def said(self, line: str, root: Path | None = None, strategy: str | None = None) -> str:
        return self.run(line, root, strategy).stdout.read_text()


@pytest.fixture(params=[_OWN, NOBODY], ids=lambda uid: f"uid{uid}")
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == NOBODY and not present("other-user"):
        pytest.skip("needs other-user")
    base = Path(tempfile.mkdtemp(prefix="substrate-world-"))
    monkeypatch.setenv("HOME", str(base / "home"))
    monkeypatch.setenv("SUBSTRATE_HOME", str(base / "home" / ".substrate"))
    try:
        yield Site(base, request.param)
    finally:
        shutil.rmtree(base)


def test_the_tree_is_seen_over_the_live_one_which_stays_as_it_is(site: Site) -> None:
    line = f"pwd; cat f {site.live}/f; echo new > {site.live}/new; rm f; cd sub && pwd"
    assert site.said(line) == f"{site.live}\nrecorded\nrecorded\n{site.live}/sub\n"
    assert sorted(os.listdir(site.live)) == ["f"]
    assert (site.live / "f").read_text() == "live\n"
    assert (site.tree / "new").read_text() == "new\n"
    assert not (site.tree / "f").exists()


def test_a_place_that_is_gone_is_made_for_it_and_nowhere_else(site: Site) -> None:
    shutil.rmtree(site.live.parent)
    assert site.said("pwd; cat f; echo x > ../beside; cat ../beside").splitlines() == [
        str(site.live),
        *("recorded", "x"),
    ]
    assert not site.live.parent.exists()


def test_a_place_whose_first_directory_is_missing(site: Site) -> None:
    root = Path(f"/substrate-test-{os.getpid()}/deep/project")
    assert not root.parent.parent.exists()
    said = site.said("pwd; cat f; ls -d /usr /etc; test -e /proc/self && echo proc", root)
    assert said.splitlines() == [str(root), "recorded", "/etc", "/usr", "proc"]
    assert not root.parent.parent.exists()


def test_commands_see_one_anothers_work_and_their_status_is_their_own(site: Site) -> None:
    assert site.run("echo one > a; exit 3").exit == 3
    assert site.said("cat a") == "one\n"
    assert site.run("nosuchprogram").exit == 127


_CONNECT = "exec 3<>/dev/tcp/127.0.0.1/{} && echo reached || echo held"


def test_net_off_holds_the_commands_and_takes_a_world(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = f"bash -c '{_CONNECT.format(server.getsockname()[1])}' 2>/dev/null"
        assert site.run(line).stdout.read_text() == "reached\n"
        assert site.run(line, net="off").stdout.read_text() == "held\n"
    with pytest.raises(AssertionError, match="takes a world"):
        site.run("true", strategy="direct", net="off")
    with pytest.raises(AssertionError, match="UsageError"):
        site.run("true", net="sometimes")


def test_the_machine_stays_as_it_is(site: Site) -> None:
    """A home directory takes writes, for the caches in it, and keeps none; the rest is shut."""
    (site.base / "home" / "kept").write_text("mine\n")
    os.chown(site.base / "home" / "kept", site.uid, site.uid)
    mark = f"substrate-test-{os.getpid()}"
    said = site.said(
        f"cat ~/kept; echo over > ~/kept; mkdir -p ~/.cache/x && cat ~/kept; : > /usr/{mark}"
    )
    assert said == "mine\nover\n"
    assert (site.base / "home" / "kept").read_text() == "mine\n"
    assert not (site.base / "home" / ".cache").exists()
    assert not Path("/usr", mark).exists()


def test_nothing_is_left_running(site: Site) -> None:
    site.run("sleep 3601 & echo $! ")
    found = [
        name
        for name in os.listdir("/proc")
        if name.isdigit() and _command_line(name) == b"sleep\x003601\x00"
    ]
    assert found == []


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def settled(site: Site, tree: ConfinedTree, strategy: str | None) -> tuple[object, Isolation]:
    shell = shell_for(site.scratch, tree, {}, strategy)
    return shell.mapped, shell.isolation


def test_the_reported_isolation_is_true(site: Site) -> None:
    tree = ConfinedTree(site.tree, str(site.live))
    for strategy, said in ((None, "copy-diff"), ("copy-diff", "copy-diff"), ("direct", "direct")):
        mapped, isolation = as_user(site.uid, partial(settled, site, tree, strategy))
        assert isolation.strategy == said
        assert bool(mapped) == (said == "direct")
        assert isolation.tier == ("none" if said == "direct" else "guarded"), isolation
    with pytest.raises(MissingDependencyError, match="nothing to protect"):
        shell_for(site.scratch, tree, {}, "overlay")


def test_without_a_world_the_recorded_path_is_translated(site: Site) -> None:
    said = site.said(f"cat {site.live}/f; echo x > {site.live}/new", strategy="direct")
    assert said == "recorded\n"
    assert (site.tree / "new").exists()
    assert not (site.live / "new").exists()


@pytest.mark.parametrize("root", ["/", "/etc", "/proc/self", "/sys/kernel", "no/path"])
def test_a_place_where_no_tree_can_be_does_not_lead_out_of_the_world(site: Site, root: str) -> None:
    tree = ConfinedTree(site.tree, root)
    mapped, isolation = as_user(site.uid, partial(settled, site, tree, None))
    assert (isolation.strategy, isolation.tier) == ("copy-diff", "guarded"), isolation
    assert "where it was recorded" not in isolation.reason
    assert mapped == ((os.fsencode(site.tree), os.fsencode(root)),)


def test_commands_run_in_the_tree_where_it_is_if_need_be(site: Site) -> None:
    mine = site.base / "home" / "mine"
    mine.write_text("mine\n")
    os.chown(mine, site.uid, site.uid)
    said = site.said("pwd; cat f; echo x > new; echo theirs > ~/mine", Path("/etc"))
    assert said == f"{site.tree}\nrecorded\n"
    assert (site.tree / "new").read_text() == "x\n"
    assert mine.read_text() == "mine\n"


def test_what_a_replay_keeps_beside_the_tree_cannot_be_reached(site: Site) -> None:
    """A link in place of the next command's output would be written through, out of the world."""
    mine = site.base / "mine"
    mine.write_text("mine\n")
    os.chown(mine, site.uid, site.uid)
    plant = f"ls -A {site.scratch}; for i in 1 2 3; do ln -sf {mine} {site.scratch}/$i.out; done"
    for root in (site.live, site.tree):
        assert site.said(plant, root) == ("" if root == site.live else "tree\n")
        assert site.said("echo theirs", root) == "theirs\n"
    assert mine.read_text() == "mine\n"
    assert not any(path.is_symlink() for path in site.scratch.iterdir())
