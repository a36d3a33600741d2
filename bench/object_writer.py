"""One edited file, written to the store: our own object writer beside pygit2's TreeBuilder.

    python bench/object_writer.py [--rounds 40] [--sizes 1000,10000,100000]

Each round changes one file three directories deep and writes the blob, the three trees and a
commit. "durable" adds what each needs so that an acknowledged commit survives a power cut: for ours
one SQLite transaction that holds the small objects (synchronous=FULL), as history does it; for
pygit2 an fsync of every new object and of its directory. pygit2 is only needed here; without it
its rows are left out.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.batch import Batch
from substrate.objects.commits import Commit, signature
from substrate.objects.snapshot import Snapshot, build, edit
from substrate.objects.store import ObjectStore

WHO = signature("Bench", "bench@example.invalid", 1_700_000_000)
PER_DIRECTORY = 20

try:
    import pygit2
except ImportError:
    pygit2 = None


def path_of(number: int) -> RelPath:
    """Directories of twenty, so that only their number grows with the project."""
    leaf = number // PER_DIRECTORY
    return RelPath(b"top%d/mid%d/leaf%d/f%d" % (leaf // 400, leaf // 20 % 20, leaf % 20, number))


def make_store(directory: Path, files: int) -> tuple[ObjectStore, Snapshot]:
    store = ObjectStore(directory / ".git")
    store.init()
    with Batch(store, durable=False) as batch:
        nodes = (
            (path_of(number), Node(Kind.FILE, 0o644, batch.add_blob(b"file %d\n" % number)))
            for number in range(files)
        )
        snap = build(batch, list(nodes))
        commit = batch.add_commit(Commit(snap.tree, (), WHO, WHO, b"all\n"))
        batch.publish()
    (store.git_dir / "refs/heads/main").write_bytes(commit.hex().encode() + b"\n")
    return store, snap


def own_rounds(
    store: ObjectStore, snap: Snapshot, files: int, rounds: int, *, durable: bool
) -> list[float]:
    log = sqlite3.connect(store.git_dir / f"log-{durable}.db", isolation_level=None)
    log.execute("pragma journal_mode=wal")
    log.execute("pragma synchronous=full")
    log.execute("create table pending (oid blob primary key, kind text, data blob)")
    times = []
    for number in range(rounds):
        data = b"edit %d %d\n" % (number, durable)
        path = path_of(number * 7919 % files)
        start = time.perf_counter()
        with Batch(store) as batch:
            node = Node(Kind.FILE, 0o644, batch.add_blob(data))
            snap = edit(batch, snap, {path: node})
            batch.add_commit(Commit(snap.tree, (), WHO, WHO, b"edit\n"))
            if durable:
                log.execute("begin")
                log.executemany(
                    "insert or ignore into pending values (?, ?, ?)", batch.small_objects()
                )
                log.execute("commit")
            batch.publish()
        times.append(time.perf_counter() - start)
    log.close()
    return times


def pygit2_rounds(git_dir: Path, files: int, rounds: int, *, durable: bool) -> list[float]:
    repo = pygit2.Repository(str(git_dir))
    who = pygit2.Signature("Bench", "bench@example.invalid", 1_700_000_000, 0)
    tree_id = repo.revparse_single("refs/heads/main").tree.id
    times = []
    for number in range(rounds):
        data = b"pygit2 edit %d %d\n" % (number, durable)
        parts = path_of(number * 7919 % files).decode().split("/")
        start = time.perf_counter()
        chain = [repo[tree_id]]
        for name in parts[:-1]:
            chain.append(chain[-1][name])
        made = repo.create_blob(data)
        written = [made]
        mode = pygit2.enums.FileMode.BLOB
        for tree, name in zip(reversed(chain), reversed(parts), strict=True):
            builder = repo.TreeBuilder(tree)
            builder.insert(name, made, mode)
            made = builder.write()
            written.append(made)
            mode = pygit2.enums.FileMode.TREE
        tree_id = made
        written.append(repo.create_commit(None, who, who, "edit\n", tree_id, []))
        if durable:
            for oid in written:
                sync_object(git_dir / "objects", str(oid))
        times.append(time.perf_counter() - start)
    return times


def sync_object(objects: Path, name: str) -> None:
    for path in (objects / name[:2] / name[2:], objects / name[:2]):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def import_ms(statement: str) -> float:
    """What importing costs a fresh interpreter, over starting one."""

    def run(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - start

    bare = statistics.median(run("pass") for _ in range(7))
    return 1000 * (statistics.median(run(statement) for _ in range(7)) - bare)


Writer = tuple[str, Callable[[bool], list[float]]]


def measure(files: int, rounds: int, directory: Path) -> dict[str, dict[bool, float]]:
    store, snap = make_store(directory, files)
    writers: list[Writer] = [
        ("own writer", lambda durable: own_rounds(store, snap, files, rounds, durable=durable))
    ]
    if pygit2 is not None:
        writers.append(
            ("pygit2", lambda durable: pygit2_rounds(store.git_dir, files, rounds, durable=durable))
        )
    return {
        name: {durable: 1000 * statistics.median(run(durable)[2:]) for durable in (False, True)}
        for name, run in writers
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="own object writer beside pygit2")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sizes", default="1000,10000,100000")
    options = parser.parse_args()
    if pygit2 is None:
        print("pygit2 is not importable: its rows are left out\n")
    sizes = [int(size) for size in options.sizes.split(",")]
    results = {}
    for files in sizes:
        with tempfile.TemporaryDirectory() as directory:
            results[files] = measure(files, options.rounds, Path(directory))
    print("| files | writer | ms | over smallest | durable, ms | over own |")
    print("|--:|---|--:|--:|--:|--:|")
    for files, by_writer in results.items():
        for name, ms in by_writer.items():
            growth = ms[False] / results[sizes[0]][name][False]
            ratio = ms[True] / by_writer["own writer"][True]
            print(
                f"| {files:,} | {name} | {ms[False]:.2f} | {growth:.2f} × "
                f"| {ms[True]:.2f} | {ratio:.2f} × |"
            )
    print(f"\nimport: own {import_ms('import substrate.objects.snapshot'):.0f} ms", end="")
    print(f", pygit2 {import_ms('import pygit2'):.0f} ms" if pygit2 is not None else "")


if __name__ == "__main__":
    main()
