"""Questions and dry runs on a project that cannot be written: they need no more than to read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program
from tests.mounts import mounted

pytestmark = pytest.mark.needs("world-overlay", "root")

QUESTIONS = (
    "log", "log --path a", "show @", "diff", "diff @", "status", "stats", "fsck", "blame a",
    "checkpoint list", "session list", "world list", "world diff WORLD", "recover list",
    "recover show SNAPSHOT", "recover search two",
)  # fmt: skip
DRY_RUNS = (
    "undo", "rollback --to FIRST", "rollback --checkpoint 1 --exact",
    "world apply WORLD", "world discard WORLD", "compact", "recover restore SNAPSHOT",
    "recover prune", "forget a",
)  # fmt: skip


@pytest.fixture
def base() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", made], check=True)
        shutil.rmtree(made)


def project(base: Path, uid: int | None) -> Program:
    root, home = base / "project", base / "home"
    (root / "node_modules").mkdir(parents=True)
    (root / "node_modules" / "x").write_text("1\n")
    home.mkdir()
    subprocess.run(["git", "init", "-q", root], check=True)
    if uid is not None:
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)
    substrate = Program(root, {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}, uid)
    substrate.sh("echo one > a; echo b > b")
    substrate.sh("echo two >> a; rm -rf b node_modules")
    substrate("checkpoint").went_well()
    substrate("undo").went_well()
    substrate.sh("echo two >> a; rm -f b")
    substrate("--hold", "-c", "echo w > w; mkdir d").went_well()
    substrate.sh("echo three >> a")
    return substrate


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    found = sorted(root.rglob("*"))
    stats = [(path, path.lstat()) for path in found]
    return [(str(path), at.st_mode, at.st_size, at.st_mtime_ns) for path, at in stats]


def ask_all(substrate: Program, cwd: Path) -> None:
    [world] = substrate.json("world", "list")["worlds"]
    snapshot = substrate.json("recover", "list")["recoveries"][0]["ref"]
    first = substrate.json("log")["commands"][-1]["command_id"]
    names = {"WORLD": world["world_id"], "SNAPSHOT": snapshot, "FIRST": first}
    before = listing(cwd)
    for line in (*QUESTIONS, *(f"{one} --dry-run" for one in DRY_RUNS)):
        done = substrate(*(names.get(word, word) for word in line.split()), cwd=cwd)
        assert done.status == 0, (line, done.text, done.errors)
        assert "ead-only" not in done.errors, line
    assert listing(cwd) == before


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("has_log", [False, True], ids=["no log", "a log beside the ledger"])
def test_a_read_only_mount(base: Path, has_log: bool) -> None:
    substrate = project(base, None)
    copy = base / "copy"
    copy.mkdir()
    ledger = substrate.cwd / ".substrate-git/index/history.db"
    with closing(sqlite3.connect(ledger)) as reader:
        if has_log:  # an open reader keeps the product from folding the log into the ledger
            reader.execute("SELECT 1 FROM entries").fetchall()
            substrate.sh("echo four >> a")
            assert ledger.with_name("history.db-wal").stat().st_size
        else:  # as in a backup that is mounted on another machine, or later
            reader.execute("UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
            reader.commit()
            reader.close()
            assert not ledger.with_name("history.db-wal").exists()
        with mounted(copy, "--bind", str(substrate.cwd)):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(copy)], check=True)
            ask_all(substrate, copy)
            if has_log:
                assert "four" in substrate("log", cwd=copy).went_well().text
            substrate("undo", cwd=copy).is_clear(5)


def test_directories_without_write_permission(base: Path) -> None:
    substrate = project(base, NOBODY)
    words = ["find", str(substrate.cwd), "-type", "d", "-exec", "chmod", "a-w", "{}", "+"]
    subprocess.run(words, check=True)
    ask_all(substrate, substrate.cwd)
    substrate("undo").is_clear(5)
