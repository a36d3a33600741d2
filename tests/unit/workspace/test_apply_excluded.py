"""What history leaves out has no copy anywhere: whatever gives way goes to the trash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT
from substrate.workspace.exclude import Exclusions
from tests.unit.workspace.applying import Ground, Leaving

pytestmark = pytest.mark.needs("posix")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path, Leaving(b"node_modules", b"secret.log", cap=100))


def _bulk(ground: Ground, path: bytes) -> None:
    ground.put(path, ground.directory())
    ground.put(path + b"/pkg", ground.directory(0o555))
    ground.where(path + b"/pkg").chmod(0o755)
    ground.put(path + b"/pkg/index.js", ground.file(b"bulk", 0o444))
    ground.where(path + b"/pkg").chmod(0o555)


def test_an_excluded_directory_that_is_removed_is_in_the_trash_whole(ground: Ground) -> None:
    _bulk(ground, b"node_modules")
    inode = ground.where(b"node_modules/pkg/index.js").stat().st_ino
    report = ground.apply(ground.op(b"node_modules", ABSENT))
    assert report.done == report.trashed == (b"node_modules",) and report.complete
    (entry,) = report.trash_entries
    assert "node_modules" in entry.why.detail and entry.entry_id.startswith("op-1/")
    assert (entry.location / "pkg" / "index.js").stat().st_ino == inode  # moved, not copied
    assert ground.trash.list() == (entry,)


def test_an_excluded_file_that_is_replaced_is_in_the_trash(ground: Ground) -> None:
    ground.put(b"secret.log", ground.file(b"lines", 0o600))
    report = ground.apply(ground.op(b"secret.log", ground.file(b"new")))
    assert report.done == report.trashed == (b"secret.log",)
    assert ground.trash.list()[0].location.read_bytes() == b"lines"


def test_a_file_that_grew_past_the_cap_gives_way_to_its_old_state(ground: Ground) -> None:
    """History says "nothing there" (too large to record); undo wants the small one back."""
    ground.put(b"data", ground.file(b"x" * 200))
    old = ground.file(b"small")
    report = ground.apply(ground.op(b"data", old)._replace(expect=ABSENT))
    assert report.done == report.trashed == (b"data",) and report.conflicts == ()
    assert ground.at(b"data") == old
    assert ground.trash.list()[0].location.read_bytes() == b"x" * 200


def test_a_directory_with_only_excluded_things_stays_when_it_should_go(ground: Ground) -> None:
    ground.put(b"app", ground.directory())
    ground.put(b"app/main", ground.file(b"1"))
    _bulk(ground, b"app/node_modules")
    report = ground.apply(ground.op(b"app", ABSENT), ground.op(b"app/main", ABSENT))
    assert report.done == (b"app/main",) and report.trashed == ()
    (kept,) = report.kept_directories
    assert kept.path == b"app" and "node_modules" in kept.reason
    assert ground.where(b"app/node_modules/pkg/index.js").exists()


@pytest.mark.parametrize("become", ["file", "symlink"])
def test_a_directory_with_only_excluded_things_makes_room_for_a_file(
    ground: Ground, become: str
) -> None:
    ground.put(b"app", ground.directory(0o750))
    ground.put(b"app/deep", ground.directory())
    _bulk(ground, b"app/deep/node_modules")
    ground.put(b"app/main", ground.file(b"1"))
    new = ground.file(b"a file") if become == "file" else ground.link(b"a link")
    report = ground.apply(
        ground.op(b"app", new), ground.op(b"app/main", ABSENT), ground.op(b"app/deep", ABSENT)
    )
    assert ground.at(b"app") == new
    assert report.trashed == (b"app",)
    (entry,) = ground.trash.list()
    assert (entry.location / "deep/node_modules/pkg/index.js").read_bytes() == b"bulk"


def test_one_stranger_among_excluded_things_keeps_the_directory(ground: Ground) -> None:
    ground.put(b"app", ground.directory())
    _bulk(ground, b"app/node_modules")
    ground.put(b"app/mine", ground.file(b"mine"))
    report = ground.apply(ground.op(b"app", ground.file(b"new")))
    assert "app/mine" in report.conflicts[0].reason and report.trashed == ()
    assert ground.where(b"app/node_modules/pkg/index.js").exists()


def test_an_excluded_directory_in_the_place_of_a_recorded_file(ground: Ground) -> None:
    """``node_modules`` was a file in history; now there is a directory of that name."""
    _bulk(ground, b"node_modules")
    new = ground.link(b"../shared/node_modules")
    report = ground.apply(ground.op(b"node_modules", new)._replace(expect=ABSENT))
    assert ground.at(b"node_modules") == new and report.trashed == (b"node_modules",)


def test_a_mode_alone_moves_nothing(ground: Ground) -> None:
    ground.put(b"secret.log", ground.file(b"lines", 0o600))
    op = ground.op(b"secret.log", ground.file(b"lines", 0o644))
    report = ground.apply(op)
    assert report.done == (b"secret.log",) and report.trashed == ()


def test_in_place_is_a_replacement_where_the_old_bytes_are_nowhere_else(ground: Ground) -> None:
    from substrate.workspace.apply.plan import How

    ground.put(b"secret.log", ground.file(b"lines"))
    report = ground.apply(ground.op(b"secret.log", ground.file(b"new"), How.IN_PLACE))
    assert report.trashed == (b"secret.log",)
    assert ground.trash.list()[0].location.read_bytes() == b"lines"


def test_trash_comes_back_by_its_entry(ground: Ground) -> None:
    _bulk(ground, b"node_modules")
    before = ground.listing()
    report = ground.apply(ground.op(b"node_modules", ABSENT))
    ground.trash.restore(report.trash_entries[0], ground.root)
    assert ground.listing() == before and ground.trash.list() == ()


def test_with_the_real_exclusions(tmp_path: Path) -> None:
    ground = Ground(tmp_path, Exclusions(b"*.log\n", size_cap_bytes=50))
    _bulk(ground, b"node_modules")
    ground.put(b"a.log", ground.file(b"log"))
    ground.put(b"huge", ground.file(b"h" * 51))
    ground.put(b"plain", ground.file(b"p"))
    report = ground.apply(
        *[ground.op(p, ABSENT) for p in (b"node_modules", b"a.log", b"huge", b"plain")]
    )
    assert set(report.trashed) == {b"node_modules", b"a.log", b"huge"}
    assert os.listdir(ground.root) == [".substrate-git"]
