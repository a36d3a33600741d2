"""A world made ahead of its command shows the workspace, and the machine, as they are when the
command starts; one that no longer fits is not used, and none is left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from substrate.system.process.process_identity import pid_alive
from substrate.world.interface import ResourceLimits, RunOutcome, RunRequest, Wanted
from substrate.world.network.choose_network import network_for
from substrate.world.select_strategy import choose_world
from tests.contract.as_user import as_user
from tests.contract.prewarmed import ahead
from tests.contract.tree_edits import Edits
from tests.contract.world_site import Site

pytestmark = [pytest.mark.needs("world-overlay"), pytest.mark.usefixtures("ahead")]

#: Everything that a command can see of a tree, the root's own times included.
_MANIFEST = (
    "find . -path ./.substrate-git -prune -o -printf '%p %y %m %U %T@ %l ' -type f -printf '%s'"
    " -o -path ./.substrate-git -prune -o -printf '\\n' | sort;"
    " find . -path ./.substrate-git -prune -o -type f -exec sha256sum {} + | sort"
)
#: Another process may mount something during a test; then there is no world ahead.
_ATTEMPTS = 10


def _run(site: Site, line: str, **request: object) -> RunOutcome:
    wanted = Wanted(site.root, site.store, strategy="overlay", required=True)
    asked = RunRequest(site.root, shell=line, network=network_for("open"))
    world = choose_world(wanted)
    outcome = world.run(asked._replace(**request))  # type: ignore[arg-type]
    assert outcome.layer is not None
    world.discard(outcome.layer)
    return outcome


def _seen_ahead(site: Site, line: str, between: Callable[[], object], **request: object) -> str:
    """What `line` prints in a world that is made, then `between` happens, then it is run."""
    _run(site, "true")
    recipe = ahead().news.recipe
    assert recipe is not None
    for _ in range(_ATTEMPTS):
        ahead().prepare(recipe)
        between()
        reader, writer = os.pipe()
        _run(site, line, stdout=writer, **request)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            said = pipe.read()
        if ahead().news.was_ahead:
            return said
    raise AssertionError("no world made ahead was used")


def _bare(site: Site) -> str:
    return subprocess.run(
        ["bash", "-c", _MANIFEST], cwd=site.root, capture_output=True, text=True, check=True
    ).stdout


def _every_edit_is_seen(site: Site, seeds: range) -> None:
    for seed in seeds:
        edits = Edits(site.root, seed)

        def once(edits: Edits = edits) -> None:
            # The tree is warm in the kernel, for better or worse.
            _bare(site)
            edits()

        assert _seen_ahead(site, _MANIFEST, once) == _bare(site), f"seed {seed}"


def test_every_edit_between_is_seen(site: Site) -> None:
    as_user(site.case.uid, lambda: _every_edit_is_seen(site, range(8)))


@pytest.mark.long
def test_every_edit_between_is_seen_many_times(site: Site) -> None:
    as_user(site.case.uid, lambda: _every_edit_is_seen(site, range(8, 300)))


def _store_seen(site: Site) -> str:
    line = "ls -A | grep substrate; cat .substrate-git/secret; ls .substrate-git"
    (site.store / "secret").write_text("secret\n")
    return _seen_ahead(site, line, lambda: None)


def test_history_is_hidden_in_it(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _store_seen(site)) == ""


def _git(site: Site, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words],
        cwd=site.root, env=env, check=True, capture_output=True,
    )  # fmt: skip


def _another_branch(site: Site) -> None:
    (site.root / ".gitignore").write_text(".substrate-git\n")
    _git(site, "init", "-q")
    _git(site, "add", ".")
    _git(site, "commit", "-qm", "one")
    _git(site, "branch", "other")
    for number in range(40):
        (site.root / "dir" / f"f{number}").write_text(f"{number}\n")
    shutil.rmtree(site.root / "dir", ignore_errors=False)
    (site.root / "dir").write_text("now a file\n")
    (site.root / "new").mkdir()
    (site.root / "new" / "file").write_text("new\n")
    _git(site, "add", "-A")
    _git(site, "commit", "-qm", "two")
    branches = iter(["other", "-", "-", "-", "-", "-", "-", "-", "-", "-"])
    said = _seen_ahead(
        site, _MANIFEST + "; git status --short", lambda: _git(site, "checkout", next(branches))
    )
    assert said == _bare(site)  # and nothing from `git status`


def test_a_checkout_between_is_seen(site: Site) -> None:
    as_user(site.case.uid, lambda: _another_branch(site))


def _lock_seen(site: Site) -> str:
    lock, go = site.root / "lock", site.base / "home" / "go"
    os.mkfifo(go)

    def locked() -> None:
        lock.write_text("his\n")
        go.write_text("\n")

    return _seen_ahead(
        site, f"read -r _ < {go}; cat lock; (set -C; echo mine > lock) && cat lock",
        lambda: lock.unlink(missing_ok=True), absent=(b"lock",), meanwhile=locked, timeout_s=60,
    )  # fmt: skip


def test_a_lock_that_comes_later_is_not_seen(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _lock_seen(site)) == "mine\n"


def _misfits(site: Site) -> list[str]:
    """The events in between after which a world made ahead was wrongly used."""
    _run(site, "true")
    recipe = ahead().news.recipe
    assert recipe is not None
    used = []
    moved = site.root.with_name("moved")

    def replaced() -> None:
        site.root.rename(moved)
        site.root.mkdir()
        for path in moved.iterdir():
            path.rename(site.root / path.name)
        moved.rmdir()

    def without_home() -> None:
        shutil.rmtree(site.base / "home" / ".substrate")
        (site.base / "home" / ".substrate").mkdir(mode=0o700)

    cases: dict[str, tuple[Callable[[], object], dict[str, object]]] = {
        "another mode of the root": (lambda: site.root.chmod(0o711), {}),
        "another root at the same path": (replaced, {}),
        "another home at the same path": (without_home, {}),
        "another network": (lambda: None, {"network": network_for("off")}),
        "a limit": (lambda: None, {"limits": ResourceLimits(pids=4000)}),
    }
    for name, (between, request) in cases.items():
        ahead().prepare(recipe)
        assert ahead().made is not None, name
        between()
        outcome = _run(site, "true", **request)
        assert outcome.exit == 0, name
        if ahead().news.was_ahead:
            used.append(name)
        assert ahead().made is None
        assert os.listdir(site.store / "worlds") == [], name
    return used


def test_what_no_longer_fits_is_not_used(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _misfits(site)) == []


def _from_the_first(site: Site) -> None:
    """The first command's world is chosen before there is a history, the next one's beside it."""
    shutil.rmtree(site.store)
    wanted = Wanted(site.root, site.store, strategy="overlay", required=True)
    world = choose_world(wanted)
    site.store.mkdir(mode=0o700)
    (site.store / "worlds").mkdir(mode=0o700)
    outcome = world.run(RunRequest(site.root, shell="true", network=network_for("open")))
    assert outcome.layer is not None
    assert site.store not in outcome.layer.directory.parents
    world.discard(outcome.layer)
    recipe = ahead().news.recipe
    assert recipe is not None
    assert not ahead().news.was_ahead
    for _ in range(_ATTEMPTS):
        ahead().prepare(recipe)
        _run(site, "true")
        if ahead().news.was_ahead:
            return
    raise AssertionError("it was made ahead, and is not what the second command needs")


def test_the_second_command_of_all_can_have_one(site: Site) -> None:
    as_user(site.case.uid, lambda: _from_the_first(site))


def _killed(site: Site) -> None:
    _run(site, "true")
    recipe = ahead().news.recipe
    assert recipe is not None
    ahead().prepare(recipe)
    made = ahead().made
    assert made is not None
    init, command = made.opened.pids
    os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)
    outcome = _run(site, "echo fine > file; exit 3")
    assert (outcome.exit, outcome.signal) == (3, None)
    assert not ahead().news.was_ahead
    assert not pid_alive(command)
    assert os.listdir(site.store / "worlds") == []


def test_one_whose_processes_were_killed_is_not_used(site: Site) -> None:
    as_user(site.case.uid, lambda: _killed(site))


def _dropped(site: Site) -> None:
    _run(site, "true")
    recipe = ahead().news.recipe
    assert recipe is not None
    ahead().prepare(recipe)
    made = ahead().made
    assert made is not None
    pids = made.opened.pids
    # Copying the workspace now does not fail because of it.
    shutil.copytree(site.root, site.base / "copy")
    ahead().drop()
    assert not any(pid_alive(pid) for pid in pids)
    assert os.listdir(site.store / "worlds") == []


def test_one_never_used_is_in_no_command_s_way_and_leaves_nothing(site: Site) -> None:
    as_user(site.case.uid, lambda: _dropped(site))
