"""Many commands, some with large binaries, retention on: the store stays under its cap.

The default run is a small sample; ``--long`` is the whole thing: 10,000 commands, and one in a
hundred rewrites a 20 MB binary.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from substrate import History
from substrate.history.maintenance.metrics import git_bytes
from substrate.history.query.resolve_id import resolve
from substrate.recorder.session_context import Place
from substrate.system import environment

MIB = 1 << 20


class Size:
    def __init__(self, commands: int, binary_bytes: int, cap_mib: int) -> None:
        self.commands = commands
        self.binary_bytes = binary_bytes
        self.cap_mib = cap_mib


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(300, 2 * MIB, 5), id="sample"),
        pytest.param(Size(10_000, 20 * MIB, 300), id="whole", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(3600)
def test_the_store_stays_under_its_cap_and_every_id_resolves(tmp_path: Path, size: Size) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "src").mkdir()
    (root / "src/a.txt").write_text("start\n")
    history = History(root)
    history.init_repo()
    config = root / ".substrate-git/config.toml"
    config.write_text(f"[retention]\ndisk_cap_mib = {size.cap_mib}\n")
    chance = random.Random(7)
    printed: list[str] = []
    commits: list[str] = []
    biggest = 0
    for number in range(size.commands):
        session = f"s-{number // max(1, size.commands // 8)}"
        if number % 100 == 50:
            (root / "model.bin").write_bytes(chance.randbytes(size.binary_bytes))
        else:
            (root / "src" / f"f{number % 37}.txt").write_text(f"{number}\n" * 20)
        done = history.record_command_result(session_id=session, summary=f"step {number}")
        printed.append(done.command_id)
        assert done.commit is not None
        commits.append(done.commit)
        if number % 50 == 49:
            history.mark_checkpoint(session_id=session)
        if number % max(1, size.commands // 8) == max(1, size.commands // 8) - 1:
            history.mark_session_closed(session_id=session)
        if number % 100 == 60:
            history.keep_under_cap()
            biggest = max(biggest, _store_bytes(root))
    history.compact_sessions(retention_sessions=2)
    place = Place.at(root, environment.current())
    with place.existing_history() as store:
        assert git_bytes(store) <= size.cap_mib * MIB
        for one in (*printed, *commits):
            assert resolve(store, one).commit is not None
    assert biggest <= size.cap_mib * MIB, "over the cap right after a command"
    fsck = subprocess.run(
        ["git", f"--git-dir={root}/.substrate-git/.git", "fsck", "--strict"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert fsck.returncode == 0, fsck.stderr
    leftovers = [p.name for p in (root / ".substrate-git").rglob("*") if "tmp" in p.name]
    assert leftovers == []


def _store_bytes(root: Path) -> int:
    place = Place.at(root, environment.current())
    with place.existing_history() as store:
        return git_bytes(store)
