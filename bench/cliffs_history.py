"""Questions to a long history that once grew by more than its length: each at n and at 8n.

    python bench/cliffs_history.py [--commands 1000]

One file is appended to n times, a line by each command. Figures are the processor time of the
installed `substrate` as a process, start-up included. Growth is over the time of a question that
reads nothing: 8.0 is linear, 10.4 is n log n at these sizes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parents[1] / "src")]

from substrate.history.query import touched_paths  # noqa: E402
from substrate.history.record import record_entry, sessions  # noqa: E402
from substrate.history.store import pack_small_objects  # noqa: E402
from substrate.history.store.commit_chain import Extension  # noqa: E402
from substrate.history.store.history_store import HistoryStore  # noqa: E402
from substrate.history.store.ledger import NewEntry  # noqa: E402
from substrate.model.nodes import Kind, Node  # noqa: E402
from substrate.model.paths import RelPath  # noqa: E402
from substrate.objects.snapshots import snapshot as snapshots  # noqa: E402
from substrate.recorder.session_context import Place  # noqa: E402
from substrate.system import clock, environment, ids  # noqa: E402

SUBSTRATE = str(Path(sys.executable).with_name("substrate"))
ROWS = {
    "blame": ("blame", "log.txt"),
    "blame -L 1,1": ("blame", "log.txt", "-L", "1,1"),
    "log --path, no match": ("log", "--path", "nothing"),
    "fsck": ("fsck",),
}


def append(store: HistoryStore, data: bytes) -> None:
    """What one command adds to the store."""
    with store.new_batch() as batch:
        node = Node(Kind.FILE, 0o644, batch.add_blob(data))
        snapshot = snapshots.edit(batch, store.tip(), {RelPath(b"log.txt"): node})
        new = NewEntry(
            ids.new_id("c"), "command", clock.now_ns(), "echo >> log.txt", session_id="s-bench",
            agent_id="bench", changed_files=1, detail={"exact": "echo >> log.txt"},
        )  # fmt: skip
        extension = Extension(store, batch, snapshot, new)
        with store.commit_point(batch, durable=False) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)
    pack_small_objects.flush_if_due(store)


def make(root: Path, commands: int) -> None:
    root.mkdir()
    place = Place.at(root, environment.current(), session="s-bench", agent_id="bench")
    data = b""
    with place.history() as store, store.writing("bench"):
        record_entry.ensure_baseline(store)
        sessions.for_recording(store, "s-bench", "bench")
        for number in range(commands):
            data += b"line %d of the log\n" % number
            append(store, data)
            if store.ledger.waits_for_index():  # as after the answer to a command
                touched_paths.catch_up_some(store)
    (root / "log.txt").write_bytes(data)


def took(root: Path, *words: str) -> float:
    """Seconds of processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([SUBSTRATE, *words], cwd=root, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--commands", type=int, default=1000)
    few = words.parse_args().commands
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SUBSTRATE_HOME"] = f"{scratch}/home"
        roots = [Path(scratch, str(n)) for n in (few, 8 * few)]
        for root, count in zip(roots, (few, 8 * few), strict=True):
            make(root, count)
        start = took(roots[0], "session", "list")
        print(f"{'':24}{few:>10,}{8 * few:>10,}    growth")
        for name, question in ROWS.items():
            small, large = (min(took(root, *question) for _ in range(3)) for root in roots)
            growth = (large - start) / max(small - start, 0.001)
            print(f"{name:24}{small:>8.2f} s{large:>8.2f} s{growth:>9.1f}")


if __name__ == "__main__":
    main()
