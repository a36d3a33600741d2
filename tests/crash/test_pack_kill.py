"""`ctx` killed, or out of disk, at any system call: packs are there or not, none is damaged.

A bounded sample of the points; with --long all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from substrate.packs.exchange.bundle import export
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store, open_store
from substrate.packs.store.fsck import check_store
from substrate.packs.store.gc import collect
from tests.crash.harness import CALLS, KILLED, Point, read_points, sample

pytestmark = [pytest.mark.needs("strace"), pytest.mark.timeout(0)]

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]

OPERATIONS = {
    "pack": ("pack", "new.json"),
    "import": ("import", "bundle.tgz"),
    "finalize": ("finalize", "draft"),
    "gc": ("gc", "--drop", "doomed"),
}


class Site(NamedTuple):
    root: Path
    #: The packs before, and after the operation has happened.
    old: frozenset[str]
    new: frozenset[str]


def log(salt: str) -> str:
    steps = [{"type": "t", "tool": "t", "output": f"{salt} {n}"} for n in range(4)]
    return json.dumps(
        {
            "model": {"identifier": "m"},
            "system_prompt": "p",
            "steps": steps,
            "outputs": [{"name": "o", "content": salt * 30_000}],
            "environment": {"os": "l", "runtime": "r"},
        }
    )


def run(root: Path, *words: str, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [*under, *CTX, *words]
    return subprocess.run(
        argv, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


def words_of(root: Path, name: str) -> tuple[str, ...]:
    """The operation's words; a pack to be dropped is named by its hash, not by a tag."""
    doomed = (root / "doomed").read_text()
    return tuple(doomed if word == "doomed" else word for word in OPERATIONS[name])


def store_at(root: Path) -> Store:
    return open_store(root / ".ctx")


def prepare(directory: Path, name: str) -> Site:
    root = directory / "template"
    root.mkdir(parents=True)
    assert run(root, "init").returncode == 0
    for file in ("kept", "doomed", "far", "new"):
        (root / f"{file}.json").write_text(log(file))
    addresses = {
        file: run(root, "pack", f"{file}.json").stdout.strip()[6:]
        for file in ("far", "doomed", "kept")
    }
    store = store_at(root)
    pack_refs.set_tag(store, "kept", f"sha256:{addresses['kept']}")
    pack_refs.set_tag(store, "moved", f"sha256:{addresses['doomed']}")
    if name == "gc":
        pack_refs.delete_tag(store, "moved")
    export(store, [f"sha256:{addresses['far']}"], root / "bundle.tgz")
    collect(store, [f"sha256:{addresses['far']}"])
    (root / "doomed").write_text(addresses["doomed"])
    run(root, "fork", "kept")
    (draft,) = (root / ".ctx" / "drafts").iterdir()
    edited = json.loads(draft.read_text()) | {"system_prompt": "new words"}
    draft.write_text(json.dumps(edited))
    draft.rename(draft.with_name("draft.draft.json"))
    old = frozenset(store.packs())
    done = copy(directory, "expected")
    assert run(done, *words_of(done, name)).returncode == 0
    return Site(directory, old, frozenset(store_at(done).packs()))


def copy(directory: Path, name: str) -> Path:
    root = directory / name
    if root.exists():
        shutil.rmtree(root)
    subprocess.run(["cp", "-a", str(directory / "template"), str(root)], check=True)
    return root


def points(site: Site, name: str) -> list[Point]:
    root = copy(site.root, "traced")
    told = site.root / "strace.log"
    under = ("strace", "-o", str(told), "-e", "trace=" + ",".join(CALLS))
    assert run(root, *words_of(root, name), under=under).returncode == 0
    return [point for point, _ in read_points(told)]


def struck(site: Site, name: str, point: Point, fault: str) -> tuple[Path, int, str]:
    root = copy(site.root, "struck")
    inject = f"inject={point.call}:{fault}:when={point.number}"
    under = ("strace", "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject)
    done = run(root, *words_of(root, name), under=under)
    return root, done.returncode, done.stderr


def judge(site: Site, name: str, root: Path, status: int) -> None:
    """Old or new; every object sound; the same words again bring it about."""
    store = store_at(root)
    found = frozenset(store.packs())
    assert found in (site.old, site.new)
    if status == 0:
        assert found == site.new
    assert check_store(store).is_sound, check_store(store).findings
    again = run(root, *words_of(root, name))
    # What has happened already may have nothing left to act on: the draft, the dropped pack.
    assert again.returncode == 0 or (found == site.new and again.returncode == 4), again.stderr
    assert frozenset(store.packs()) == site.new
    collect(store)
    assert check_store(store).findings == ()
    assert list(store.scratch.iterdir()) == []


def chosen(site: Site, name: str, request: pytest.FixtureRequest, count: int) -> list[Point]:
    found = points(site, name)
    return found if request.config.getoption("--long") else sample(found, count)


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_any_call(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    site = prepare(tmp_path, name)
    for point in chosen(site, name, request, 4):
        root, status, _ = struck(site, name, point, "signal=KILL")
        assert status in (*KILLED, 0), point
        judge(site, name, root, status)


@pytest.mark.parametrize("name", ["pack", "import"])
def test_a_full_disk_is_reported_and_leaves_the_old_state(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    site = prepare(tmp_path, name)
    for point in chosen(site, name, request, 3):
        root, status, said = struck(site, name, point, "error=ENOSPC")
        assert status in (0, 5), (point, said)
        assert (status == 0) or "No space left" in said
        judge(site, name, root, status)
