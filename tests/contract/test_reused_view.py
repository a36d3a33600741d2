"""A view that its command left unchanged is used again for the next command, and shows the tree at
that time: after any edits in between, nothing stale is visible."""

from __future__ import annotations

import difflib
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model.paths import RelPath
from substrate.system.watcher_client import StillTree
from substrate.workspace.watch.inotify_quiet_proof import StillWatch
from substrate.world.interface import RunRequest, Wanted
from substrate.world.network.choose_network import network_for
from substrate.world.prewarm import reused_view
from substrate.world.prewarm.prewarmed_world import Warm
from substrate.world.select_strategy import choose_world
from tests.contract.as_user import as_user
from tests.contract.prewarmed import ahead
from tests.contract.tree_edits import Edits
from tests.contract.world_site import Site

_PROBE = f"python3 - < {Path(__file__).with_name('tree_probe.py')}"

#: Another process may mount something during a test; then there is a new view.
_ATTEMPTS = 20

pytestmark = [pytest.mark.needs("world-overlay"), pytest.mark.usefixtures("ahead")]


class Here(StillTree):
    """Asks a watch of this process, where the daemon's next process asks the daemon's watcher."""

    def __init__(self, watch: StillWatch) -> None:
        self._watch = watch

    def token(self, *, in_passing: bool = False) -> bytes:
        token = self._watch.token(in_passing=in_passing)
        return b"" if self._watch.lost else token

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class Commands:
    """One command after the other, each with the view of the last if it may have it."""

    def __init__(
        self, site: Site, tier: str = "workspace", watch: StillWatch | None = None
    ) -> None:
        self.site = site
        (site.root / ".git").mkdir(exist_ok=True)
        self.watch_anew(watch)
        self.was_warm = False
        self.view = -1
        wanted = Wanted(site.root, site.store, tier, strategy="overlay", required=True)
        self._world = choose_world(wanted)
        self.run("true")

    def watch_anew(self, watch: StillWatch | None = None) -> None:
        if watch is None:
            watch = StillWatch(self.site.root)
            watch.set_up()
        self.watch = watch

    def run(self, line: str, between: Callable[[], object] = lambda: None, **more: object) -> str:
        """What `line` prints; `between` happens when its world is there already."""
        news = ahead().news
        if news.recipe is not None:
            ahead().prepare(news.recipe, Warm(lambda _: Here(self.watch), news.kept, self.view))
        ahead().see_off()
        between()
        reader, writer = os.pipe()
        request = RunRequest(self.site.root, shell=line, network=network_for("open"))
        request = request._replace(stdout=writer, **more)  # type: ignore[arg-type]
        outcome = self._world.run(request)
        os.close(writer)
        assert outcome.layer is not None
        self.upper = _upper(outcome.layer.upper)
        self.view = ahead().settle()
        self._world.discard(outcome.layer)
        self.was_warm = ahead().news.was_warm
        with os.fdopen(reader, "rb") as pipe:
            return pipe.read().decode(errors="surrogateescape")

    def probe(self, between: Callable[[], object] = lambda: None, after: str = "true") -> str:
        return self.run(f"{_PROBE}; {after}", between)

    def run_warm(self, line: str) -> str:
        """In a view that was used before."""
        for _ in range(_ATTEMPTS):
            said = self.run(line)
            if self.was_warm:
                return said
        raise AssertionError(f"no view was used again for {line}")

    def run_after(self, before: str, line: str, **more: object) -> tuple[str, str]:
        """Both in the same view, though `line` may spoil it: a second attempt starts over."""
        for _ in range(_ATTEMPTS):
            said = self.run_warm(before), self.run(line, lambda: None, **more)
            if self.was_warm:
                return said
        raise AssertionError(f"no view was used again for {line}")


def _bare(site: Site) -> str:
    return subprocess.run(
        ["bash", "-c", _PROBE], cwd=site.root, capture_output=True, text=True, check=True
    ).stdout


def _is_used_again(site: Site, tier: str) -> int:
    """How often in a row."""
    commands = Commands(site, tier)
    count = 0
    for _ in range(_ATTEMPTS):
        assert "inner" in commands.run("ls -lR; touch .git/index.lock; rm .git/index.lock")
        count = count + 1 if commands.was_warm else 0
        if count == 3:
            break
    return count


@pytest.mark.parametrize("tier", ["workspace", "guarded", "full"])
def test_it_is_used_again(site: Site, tier: str) -> None:
    assert as_user(site.case.uid, lambda: _is_used_again(site, tier)) == 3


def _lock_seen(site: Site) -> str:
    """By a command in a view through which others have looked."""
    lock = site.root / ".git" / "index.lock"
    go, seen = (site.base / "home" / name for name in ("go", "seen"))
    os.mkfifo(go)
    os.mkfifo(seen)
    commands = Commands(site)

    def locked() -> None:
        lock.touch()
        go.write_text("\n")
        seen.read_text()
        lock.unlink()

    line = f"read -r _ < {go}; test -e .git/index.lock || echo no; echo > {seen}"
    absent = (b".git/index.lock",)
    return commands.run_after("ls -lR", line, absent=absent, meanwhile=locked, timeout_s=60)[1]


def test_a_lock_that_comes_later_is_not_seen(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _lock_seen(site)) == "no\n"


#: After a command: a lock in the repository leaves a directory in the layer.
_AFTER = ("true", "true", "touch .git/index.lock; rm .git/index.lock")


def _compare(site: Site, commands: Commands, seed: int) -> list[str]:
    """A command after some edits, or none: in what it does not see the tree as it is."""
    chance = random.Random(seed)
    edits = Edits(site.root, seed)
    when = chance.randint(0, 3)
    if when == 1:
        edits()
    seen = commands.probe(edits if when == 2 else lambda: None, chance.choice(_AFTER))
    lines = difflib.unified_diff(seen.splitlines(), _bare(site).splitlines(), lineterm="", n=0)
    return list(lines)


def _nothing_is_stale(site: Site, seeds: range, wanted: int) -> int:
    """How many of the views were used before; a busy machine needs more seeds for `wanted`."""
    commands = Commands(site)
    warm = 0
    for seed in range(seeds.start, seeds.stop + _ATTEMPTS * len(seeds)):
        if seed >= seeds.stop and warm >= wanted:
            break
        found = _compare(site, commands, seed)
        assert not found, (seed, commands.was_warm, found)
        warm += commands.was_warm
        if commands.watch.lost:  # the whole was moved: the daemon sets up another one
            commands.watch_anew()
    return warm


def test_nothing_is_stale(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _nothing_is_stale(site, range(30), 5)) >= 5


@pytest.mark.long
def test_nothing_is_stale_many_times(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _nothing_is_stale(site, range(30, 630), 100)) >= 100


def _differs(site: Site, watch: StillWatch) -> bool:
    """Whether one of 30 commands sees a stale tree; a busy machine gets more of them."""
    commands = Commands(site, watch=watch)
    return any(_compare(site, commands, seed) for seed in range(30 + _ATTEMPTS * 30))


class _Blind(StillWatch):
    """Sees nothing at all."""

    def token(self, *, in_passing: bool = False) -> bytes:
        del in_passing
        return b"the same/0"


class _DirectoriesOnly(StillWatch):
    def _add(self, path: RelPath) -> None:
        """No file."""


def test_the_comparison_would_show_it(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _differs(site, _set_up(_Blind(site.root))))


def _set_up(watch: StillWatch) -> StillWatch:
    watch.set_up()
    return watch


def _copied(site: Site, kind: type[StillWatch]) -> set[tuple[bool, int]]:
    """How much `cp` copies of a file that grew under a name outside: by whether the view was used
    before."""
    (site.root / ".git").mkdir()
    found = set()
    for number in range(4):
        shared, outside = site.root / f"shared{number}", site.base / f"outside{number}"
        shared.write_text("short\n")
        os.link(shared, outside)
        commands = Commands(site, watch=_set_up(kind(site.root)))
        commands.run_warm(_PROBE)
        with outside.open("a") as file:
            file.write("and much longer now\n")
        said = commands.run(f"cp shared{number} copy; stat -c %s copy")
        found.add((commands.was_warm, int(said)))
    return found


def test_a_file_that_grew_under_another_name_is_copied_whole(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _copied(site, StillWatch)) == {(False, 26)}


def test_without_a_watch_on_the_file_it_would_not_be(site: Site) -> None:
    found = as_user(site.case.uid, lambda: _copied(site, _DirectoriesOnly))
    assert (True, 6) in found
    assert found <= {(True, 6), (False, 26)}


#: What a command does, after which its view is not for another one.
_TRACES = [
    "echo new > new", "rm kept", "echo more >> kept", "mkdir new", "chmod 700 dir", "chmod 711 .",
    "touch kept", "touch .", "echo n > n; rm n", "mv kept kept2; mv kept2 kept",
    "mkdir .git/new", "sleep 0.3 > /dev/null 2>&1 & true",
    "python3 -c \"import os; os.setxattr('.', 'user.x', b'y')\"",
]  # fmt: skip


def _carried(site: Site) -> list[str]:
    """After which of them the next command had the same view, or saw something of it."""
    commands = Commands(site)
    found = []
    for line in _TRACES:
        for _ in range(_ATTEMPTS):
            commands.run_warm(_PROBE)
            commands.run(line)
            if commands.was_warm:
                break
        if commands.probe() != _bare(site) or commands.was_warm:
            found.append(line)
    return found


def test_nothing_goes_from_one_command_to_the_next(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _carried(site)) == []


def _upper(top: Path) -> list[tuple[object, ...]]:
    """All that a layer says, marks included."""
    found: list[tuple[object, ...]] = []
    for path in sorted(top.rglob("*")):
        at = path.lstat()
        marks = [name.rpartition(".")[2] for name in os.listxattr(path, follow_symlinks=False)]
        size = at.st_size if path.is_file() else 0
        found.append((str(path.relative_to(top)), at.st_mode, at.st_rdev, size, sorted(marks)))
    return found


#: Each of what a layer can say.
_WRITES = [
    "echo new > new; mkdir -p a/b; echo x > a/b/c", "rm kept; rm -r dir", "echo more >> kept",
    "rm -r dir; mkdir dir; echo x > dir/y", "chmod 600 kept; touch gone", "mv dir dir2",
    "sed -i s/kept/x/ kept; ln kept kept2", "rm -r dir; echo file > dir", "echo x >> linked",
    "mkfifo pipe; ln -s kept link; mv gone dir/gone", "cp -a dir copy; rm dir/inner",
]  # fmt: skip


def _written(site: Site) -> list[str]:
    """What says something else in a view used before than in a new one."""
    (site.root / "linked").write_text("linked\n")
    os.link(site.root / "linked", site.root / "dir" / "linked")
    commands = Commands(site)
    found = []
    for line in _WRITES:
        commands.watch.lost = "for a test"
        commands.run(line)
        assert not commands.was_warm
        expected = commands.upper
        commands.watch_anew()
        for _ in range(_ATTEMPTS):
            commands.run_warm("find . -type f | xargs cat; stat dir linked gone nothing")
            commands.run(line)
            if commands.was_warm:
                break
        if not commands.was_warm or commands.upper != expected:
            found.append(line)
    return found


def test_what_is_written_in_it_is_what_is_written_in_a_new_one(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _written(site)) == []


def _misfits(site: Site) -> list[str]:
    used = []
    commands = Commands(site)

    def old() -> None:
        reused_view.OLDEST_NS = 0

    def cleared() -> None:
        for path in (site.store / "worlds").iterdir():
            shutil.rmtree(path)

    def unwatched() -> None:
        commands.watch.lost = "for a test"

    def another_watch() -> None:
        commands.watch_anew()

    for before in (cleared, another_watch, unwatched, old):
        commands.watch_anew()
        commands.run_warm(_PROBE)
        before()
        assert commands.probe() == _bare(site)
        if commands.was_warm:
            used.append(before.__name__)
    return used


def test_what_no_longer_fits_is_not_used(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _misfits(site)) == []


def _left(site: Site) -> list[str]:
    commands = Commands(site)
    commands.run_warm(_PROBE)
    names = os.listdir(site.store / "worlds")
    assert len(names) == 1
    # Copying the workspace now does not fail because of it.
    shutil.copytree(site.root, site.base / "copy")
    assert commands.view >= 0
    ahead().see_off()  # no command takes it
    return os.listdir(site.store / "worlds")


def test_one_that_nothing_takes_is_cleared_away(site: Site) -> None:
    assert as_user(site.case.uid, lambda: _left(site)) == []


def _set(path: str, name: str) -> str:
    return f'python3 -c \'import os; os.setxattr("{path}", "{name}", b"1")\''


_LEFT = {
    "a mark on the root": _set(".", "user.overlay.x"),
    "a mark that the kernel makes": _set("dir", "user.overlay.origin"),
    "a mark of others": _set("dir", "user.fuseoverlayfs.x"),
    "a flag on the root": "chattr +d .",
    "a flag on a directory": "chattr +S dir",
}


@pytest.mark.parametrize("line", _LEFT.values(), ids=_LEFT)
def test_attributes_and_flags_are_no_message_to_the_next_command(site: Site, line: str) -> None:
    def look() -> None:
        (site.root / "dir").mkdir(exist_ok=True)
        commands = Commands(site)
        seen = (
            'python3 -c \'import os; print(os.listxattr("."), os.listxattr("dir"))\';'
            " lsattr -d . dir"
        )
        clean, _ = commands.run_after(seen, f"{line}; {seen}")
        assert commands.run(seen) == clean
        ahead().drop()
        ahead().see_off()

    as_user(site.case.uid, look)
