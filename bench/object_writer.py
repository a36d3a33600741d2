"""One edited file, written to the store: our own object writer beside pygit2's TreeBuilder.

    python bench/object_writer.py [--rounds 100] [--sizes 1000,10000,100000]

Each round changes one file in a directory three levels down and writes the blob, four trees and a
commit. "durable" adds what each needs so that an acknowledged commit survives a power cut: for ours
one SQLite transaction that holds the small objects (synchronous=FULL), as history does it; for
pygit2 an fsync of every new object and of its directory. All writers and sizes take turns, so that
noise on the machine meets them alike. pygit2 is needed only here; without it its rows are left out.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.snapshots.commits import Commit, signature
from substrate.objects.snapshots.snapshot import Snapshot, build, edit
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore

try:
    import pygit2
except ImportError:
    pygit2 = None

WHO = signature("Bench", "bench@example.invalid", 1_700_000_000)
PER_DIRECTORY = 20
WARM_UP_ROUNDS = 3


def path_of(number: int) -> RelPath:
    """Directories of twenty, so that only their number grows with the project."""
    leaf = number // PER_DIRECTORY
    return RelPath(b"top%d/mid%d/leaf%d/f%d" % (leaf // 400, leaf // 20 % 20, leaf % 20, number))


def make_store(directory: Path, files: int) -> tuple[Path, Snapshot]:
    store = ObjectStore(directory / ".git")
    store.init()
    with Batch(store) as batch:
        nodes = [
            (path_of(number), Node(Kind.FILE, 0o644, batch.add_blob(b"file %d\n" % number)))
            for number in range(files)
        ]
        snap = build(batch, nodes)
        commit = batch.add_commit(Commit(snap.tree, (), WHO, WHO, b"all\n"))
        batch.publish()
    (store.git_dir / "refs/heads/main").write_bytes(commit.hex().encode() + b"\n")
    return store.git_dir, snap


class Writer(Protocol):
    def write(self, path: RelPath, data: bytes) -> None: ...


class OwnWriter:
    def __init__(self, git_dir: Path, snap: Snapshot, *, durable: bool) -> None:
        self.store, self.snap, self.durable = ObjectStore(git_dir), snap, durable
        self.log = sqlite3.connect(git_dir / f"log-{durable}.db", isolation_level=None)
        self.log.execute("pragma journal_mode=wal")
        self.log.execute("pragma synchronous=full")
        self.log.execute("create table pending (oid blob primary key, kind text, data blob)")

    def write(self, path: RelPath, data: bytes) -> None:
        with Batch(self.store) as batch:
            node = Node(Kind.FILE, 0o644, batch.add_blob(data))
            self.snap = edit(batch, self.snap, {path: node})
            batch.add_commit(Commit(self.snap.tree, (), WHO, WHO, b"edit\n"))
            if self.durable:
                rows = batch.small_objects()
                self.log.execute("begin")
                self.log.executemany("insert or ignore into pending values (?, ?, ?)", rows)
                self.log.execute("commit")
            batch.publish()


class Pygit2Writer:
    def __init__(self, git_dir: Path, *, durable: bool) -> None:
        self.repo, self.objects, self.durable = (
            pygit2.Repository(git_dir),
            git_dir / "objects",
            durable,
        )
        self.who = pygit2.Signature("Bench", "bench@example.invalid", 1_700_000_000, 0)
        self.tree_id = self.repo.revparse_single("refs/heads/main").tree.id

    def write(self, path: RelPath, data: bytes) -> None:
        parts = path.decode().split("/")
        chain = [self.repo[self.tree_id]]
        for name in parts[:-1]:
            chain.append(chain[-1][name])
        made = self.repo.create_blob(data)
        written, mode = [made], pygit2.enums.FileMode.BLOB
        for tree, name in zip(reversed(chain), reversed(parts), strict=True):
            builder = self.repo.TreeBuilder(tree)
            builder.insert(name, made, mode)
            made, mode = builder.write(), pygit2.enums.FileMode.TREE
            written.append(made)
        self.tree_id = made
        written.append(self.repo.create_commit(None, self.who, self.who, "edit\n", made, []))
        for oid in written if self.durable else []:
            name = str(oid)
            for place in (self.objects / name[:2] / name[2:], self.objects / name[:2]):
                fd = os.open(place, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)


class Lane(NamedTuple):
    files: int
    name: str
    durable: bool
    writer: Writer
    times: list[float]


def lanes_for(files: int, directory: Path) -> list[Lane]:
    git_dir, snap = make_store(directory, files)
    lanes = []
    for durable in (False, True):
        lanes.append(Lane(files, "own", durable, OwnWriter(git_dir, snap, durable=durable), []))
        if pygit2 is not None:
            lanes.append(Lane(files, "pygit2", durable, Pygit2Writer(git_dir, durable=durable), []))
    return lanes


def race(lanes: list[Lane], rounds: int) -> dict[tuple[int, str, bool], float]:
    """Median milliseconds of each lane, the lanes taking turns.

    Shuffled, because a lane right after a synced lane waits for the file system's journal.
    """
    order, rng = list(lanes), random.Random(1)
    for number in range(rounds + WARM_UP_ROUNDS):
        rng.shuffle(order)
        for lane in order:
            path = path_of(number * 7919 % lane.files)
            data = b"%s %d %d\n" % (lane.name.encode(), lane.durable, number)
            start = time.perf_counter()
            lane.writer.write(path, data)
            lane.times.append(1000 * (time.perf_counter() - start))
    return {
        (lane.files, lane.name, lane.durable): statistics.median(lane.times[WARM_UP_ROUNDS:])
        for lane in lanes
    }


def import_ms(module: str) -> float:
    """What importing costs a fresh interpreter, over starting one."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return 1000 * (time.perf_counter() - start)

    pairs = [(run("pass"), run(f"import {module}")) for _ in range(9)]
    return min(loaded for _, loaded in pairs) - min(bare for bare, _ in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="own object writer beside pygit2")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sizes", default="1000,10000,100000")
    options = parser.parse_args()
    if pygit2 is None:
        print("pygit2 is not importable: its rows are left out\n")
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory() as top:
        lanes = [lane for files in sizes for lane in lanes_for(files, Path(top, str(files)))]
        ms = race(lanes, options.rounds)
    print("| files | writer | ms | over smallest | over own | durable, ms | over own |")
    print("|--:|---|--:|--:|--:|--:|--:|")
    for files, name, durable in ms:
        if durable:
            continue
        bare, safe = ms[files, name, False], ms[files, name, True]
        print(
            f"| {files:,} | {name} | {bare:.2f} | {bare / ms[sizes[0], name, False]:.2f} × "
            f"| {bare / ms[files, 'own', False]:.2f} × "
            f"| {safe:.2f} | {safe / ms[files, 'own', True]:.2f} × |"
        )
    print(f"\nimport: own {import_ms('substrate.objects.snapshots.snapshot'):.0f} ms", end="")
    print(f", pygit2 {import_ms('pygit2'):.0f} ms" if pygit2 is not None else "")


if __name__ == "__main__":
    main()
