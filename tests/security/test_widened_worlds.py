"""A command in a tier that shuts everything cannot have more opened for the next one.

What a world opens beside the workspace is found by files and directories that commands can write:
the pointer to a repository, a temporary directory, an environment of programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay", "root")

TIERS = ("guarded", "full")
SECRET = "what nobody is to see"


class Site:
    """A project, and beside it what none of its commands is to touch."""

    def __init__(self, base: Path, uid: int | None) -> None:
        self.base = base
        self.root = base / "project"
        self.victim = base / "victim"
        for path in (self.root, self.victim / "bin", base / "home"):
            path.mkdir(parents=True)
        (self.victim / "secret").write_text(SECRET)
        (self.root / "a").write_text("1\n")
        if uid is not None:
            for path in (base, *base.rglob("*")):
                os.chown(path, uid, uid)
        self.env = {"HOME": str(base / "home"), "SUBSTRATE_HOME": str(base / "home/.substrate")}
        self.program = Program(self.root, self.env, uid)

    def attempt(self, tier: str, prepare: str, **env: str) -> str:
        """What the second command could do, once the first one has prepared it."""
        program = Program(self.root, {**self.env, **env}, self.program.uid)
        program("--isolate", "guarded", "-c", prepare).went_well()
        words = f"cat {self.victim}/secret; echo x > {self.victim}/written"
        return program("--isolate", tier, "-c", words).text

    @property
    def is_written(self) -> bool:
        return (self.victim / "written").exists()


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """Where `guarded` may not write, and what `full` does not show."""
    above = next(path for path in ("/srv", "/mnt", "/") if os.path.isdir(path))
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir=above))
    base.chmod(0o755)
    try:
        yield Site(base, getattr(request, "param", None))
    finally:
        shutil.rmtree(base)


@pytest.fixture
def shared(site: Site) -> Iterator[Path]:
    """In a temporary directory, where `guarded` may write."""
    path = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/tmp"))
    uid = site.program.uid
    if uid is not None:
        os.chown(path, uid, uid)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.mark.parametrize("site", [None, NOBODY], ids=["root", "user"], indirect=True)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("points_back", [False, True])
def test_a_repository_of_a_command_s_own_making(
    site: Site, shared: Path, tier: str, points_back: bool
) -> None:
    """Its directory of objects is a link, and would have been opened for writing."""
    own = shared / "worktrees" / "x"
    lines = [
        f"mkdir -p {own}; echo ref: refs/heads/x > {own}/HEAD; echo {shared} > {own}/commondir",
        f"ln -s {site.victim} {shared}/objects; echo gitdir: {own} > .git",
    ]
    if points_back:
        lines.append(f"echo {site.root}/.git > {own}/gitdir")
    said = site.attempt(tier, "; ".join(lines))
    assert not site.is_written
    assert SECRET not in said or tier == "guarded"


@pytest.mark.parametrize("tier", TIERS)
def test_another_repository_is_not_opened_by_a_pointer(site: Site, tier: str) -> None:
    main = site.victim / "main"
    argv = ["git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@example.org"]

    def git(*words: str) -> None:
        subprocess.run([*argv, *words], cwd=site.victim, check=True, capture_output=True)

    git("init", "-q", str(main))
    git("-C", str(main), "commit", "-q", "--allow-empty", "-m", "one")
    git("-C", str(main), "worktree", "add", "-q", str(site.victim / "linked"))
    (main / ".git" / "secret").write_text(SECRET)
    if site.program.uid is not None:
        for path in (site.victim, *site.victim.rglob("*")):
            os.chown(path, site.program.uid, site.program.uid)
    for pointer in (main / ".git" / "worktrees" / "linked", main / ".git"):
        written = pointer / "written"
        site.program("--isolate", tier, "-c", f"echo gitdir: {pointer} > .git").went_well()
        line = f"cat {main}/.git/secret; echo x > {written}; echo x > {main}/.git/refs/heads/evil"
        said = site.program("--isolate", tier, "-c", line).text
        assert not written.exists()
        assert not (main / ".git/refs/heads/evil").exists()
        assert SECRET not in said or tier == "guarded"


@pytest.mark.parametrize("made", ["config.worktree", "modules/sub/config"])
def test_a_linked_worktree_gets_no_settings(site: Site, made: str) -> None:
    """Its own directory is open for commits; git would run what these name."""
    shutil.rmtree(site.root)
    main = site.victim / "main"
    argv = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(main)]
    for words in (
        ["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"],
        ["config", "extensions.worktreeConfig", "true"], ["worktree", "add", "-q", str(site.root)],
    ):  # fmt: skip
        main.mkdir(exist_ok=True)
        subprocess.run([*argv, *words], check=True, capture_output=True)
    own = main / ".git/worktrees/project"
    if made != "config.worktree":
        (own / made).parent.mkdir(parents=True)
        (own / "config.worktree").write_text("")
    site.program("--isolate", "guarded", "-c", f"echo x > {own / made}")
    assert not (own / made).exists()


@pytest.mark.parametrize("where", ["shared", "project"])
def test_a_temporary_directory_that_became_a_link(site: Site, shared: Path, where: str) -> None:
    above = shared if where == "shared" else site.root
    site.attempt("guarded", f"ln -s {site.victim} {above}/tmp", TMPDIR=str(above / "tmp"))
    assert not site.is_written


@pytest.mark.parametrize(
    "prepare",
    [
        "mkdir -p env/bin; echo home = {victim}/bin > env/pyvenv.cfg",
        "mkdir env; ln -s {victim} env/bin",
        "ln -s {victim} env; mkdir -p env/bin",
    ],
)
def test_programs_of_the_project_show_nothing_else(site: Site, prepare: str) -> None:
    path = f"{site.root}/env/bin:{os.environ['PATH']}"
    said = site.attempt("full", prepare.format(victim=site.victim), PATH=path)
    assert SECRET not in said
    assert not site.is_written


@pytest.mark.parametrize("tier", ["workspace", "guarded"])
def test_the_first_world_of_all_does_not_see_the_others(site: Site, tier: str) -> None:
    """Their directory is not there yet when it is decided what is hidden."""
    worlds = f"{site.env['SUBSTRATE_HOME']}/worlds"
    assert not os.path.lexists(worlds)
    assert site.program("--isolate", tier, "-c", f"ls -A {worlds}").went_well().text == ""
