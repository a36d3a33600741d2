"""A write that a tier refuses is in the command's record, and nothing else is."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.world.interface import RunOutcome, RunRequest, Wanted
from substrate.world.network.choose_network import network_for
from substrate.world.process.refused_writes import MOST_REFUSED
from substrate.world.select_strategy import choose_world
from tests.contract.as_user import NOBODY, as_user
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
USERS = (os.geteuid() if hasattr(os, "geteuid") else 0, NOBODY)
pytestmark = pytest.mark.needs("linux", "root")


class Ground:
    """A workspace, and a directory outside that the user may write to without a world."""

    def __init__(self, site: Site, outside: Path) -> None:
        self.site = site
        self.outside = outside
        (outside / "file").write_text("theirs")
        (outside / "dir").mkdir()
        for path in (outside, outside / "file", outside / "dir"):
            os.chown(path, site.case.uid, site.case.uid)

    def run(self, script: str, tier: str = "guarded", net: str = "open") -> RunOutcome:
        root = self.site.root
        wanted = Wanted(root, self.site.store, tier, required=True, strategy="overlay")
        script = script.replace("OUT", str(self.outside))

        def work() -> RunOutcome:
            os.chdir(root)
            request = RunRequest(root, shell=script, network=network_for(net))
            return choose_world(wanted).run(request)

        outcome = as_user(self.site.case.uid, work)
        self.site.made.append(outcome)
        return outcome

    def refused(self, script: str, tier: str = "guarded", net: str = "open") -> set[str]:
        """``call path``, with the directory outside written OUT."""
        outcome = self.run(script, tier, net)
        assert outcome.fs_denied is not None
        assert outcome.fs_denied_notice == ""
        shown = {f"{call} {os.fsdecode(path)}" for path, call in outcome.fs_denied}
        return {one.replace(str(self.outside), "OUT") for one in shown}


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    case = Case("overlay", request.param)
    skip_unless_possible(case)
    outside = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/lib"))
    outside.chmod(0o755)
    try:
        with make_site(case, monkeypatch) as site:
            yield Ground(site, outside)
    finally:
        shutil.rmtree(outside)


EVERY_CALL = """
echo x > OUT/new; echo x >> OUT/file; mkdir OUT/d2; rm -f OUT/file; rmdir OUT/dir
mv OUT/file OUT/f2; ln -s x OUT/link; ln OUT/file OUT/hard; truncate -s 0 OUT/file
cd OUT && echo x > by-cwd
"""


def test_each_refused_call_is_reported(ground: Ground) -> None:
    assert ground.refused(EVERY_CALL) == {
        "open OUT/new", "open OUT/file", "mkdir OUT/d2", "unlink OUT/file", "rmdir OUT/dir",
        "rename OUT/file", "symlink OUT/link", "link OUT/hard", "open OUT/by-cwd",
    }  # fmt: skip
    assert (ground.outside / "file").read_text() == "theirs"


def test_modes_owners_times_and_attributes_count_as_writes(ground: Ground) -> None:
    program = (
        "import os\n"
        "for work in (lambda: os.chmod('OUT/file', 0o600), lambda: os.chown('OUT/dir', -1, -1),\n"
        "             lambda: os.utime('OUT/dir'), lambda: os.mkfifo('OUT/pipe'),\n"
        "             lambda: os.setxattr('OUT/file', 'user.x', b'1'),\n"
        "             lambda: os.lchown('OUT/file', -1, -1), lambda: os.chmod('OUT/none', 0),\n"
        "             lambda: os.mkfifo('OUT/file'), lambda: os.utime('ours')):\n"
        "    try:\n        work()\n    except OSError: pass\n"
    )
    (ground.site.root / "try.py").write_text(program.replace("OUT", str(ground.outside)))
    assert ground.refused(f"touch ours; chmod 600 ours; {PYTHON} -I try.py") == {
        "chmod OUT/file", "chown OUT/dir", "utimensat OUT/dir", "mknod OUT/pipe",
        "setxattr OUT/file", "chown OUT/file",
    }  # fmt: skip


def test_what_is_not_refused_is_not_reported(ground: Ground) -> None:
    """Writes that arrive, reads, and calls that would fail without a world as well."""
    script = (
        "echo in > ours; mkdir -p sub; rm ours; echo x > /tmp/substrate-test-$$;"
        "rm /tmp/substrate-test-$$; cat OUT/file > /dev/null; mkdir OUT/dir; mkdir -p OUT;"
        "rm -f OUT/missing; echo x > OUT/none/x; ls OUT > /dev/null; true"
    )
    assert ground.refused(script) == set()


def test_what_other_users_own_is_not_reported_as_refused_by_the_tier(ground: Ground) -> None:
    found = ground.refused("echo x > /etc/substrate-test-x; true")
    assert found == ({"open /etc/substrate-test-x"} if ground.site.case.uid == 0 else set())


def test_through_a_link_and_by_descriptor(ground: Ground) -> None:
    (ground.site.root / "way").symlink_to(ground.outside / "file")
    (ground.site.root / "inner").symlink_to("ours")
    program = (
        "import os\nout = os.open('OUT', os.O_RDONLY)\n"
        "for work in (lambda: os.mkdir('at', dir_fd=out), lambda: open('way', 'w')):\n"
        "    try:\n        work()\n    except OSError: pass\n"
        "open('inner', 'w')\n"
    )
    (ground.site.root / "try.py").write_text(program.replace("OUT", str(ground.outside)))
    found = ground.refused(f"{PYTHON} -I try.py")
    assert found == {"mkdir OUT/at", f"open {ground.site.root}/way"}


@pytest.mark.parametrize("net", ["off", "open"])
def test_full_reports_it_too(ground: Ground, net: str) -> None:
    found = ground.refused("echo x > /usr/substrate-test-x; echo x > ours", "full", net)
    assert found == ({"open /usr/substrate-test-x"} if ground.site.case.uid == 0 else set())


def test_the_default_tier_looks_for_nothing(ground: Ground) -> None:
    assert ground.run("true", "workspace").fs_denied is None


def test_a_list_that_is_cut_says_so(ground: Ground) -> None:
    loop = f"i=0; while [ $i -lt {MOST_REFUSED + 5} ]; do : > OUT/$i; i=$((i+1)); done 2>/dev/null"
    outcome = ground.run(loop)
    assert outcome.fs_denied is not None
    assert len(outcome.fs_denied) == MOST_REFUSED
    assert "only the first" in outcome.fs_denied_notice
