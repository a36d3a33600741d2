"""History beside plain git on the same trees: record, undo, rollback, first use, compact, size.

    python bench/history.py [--files 1000,10000,100000] [--rounds 7] [--only store,record,…]
                            [--size 1200]

Both sides work on the same tree; figures are medians. "store write" is what
history itself adds to one edit (blob, trees, commit, ledger, made durable); "whole record" adds the
two scans that the direct strategy needs. "git" is ``git add -A && git commit`` in a shadow
repository of the same tree, as checkpointing tools do it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.trees import edit, file_path, make_tree  # noqa: E402
from substrate.history.maintenance.metrics import git_bytes  # noqa: E402
from substrate.history.record import record_entry  # noqa: E402
from substrate.history.reversal.undo import Choice  # noqa: E402
from substrate.history.store.commit_chain import Extension  # noqa: E402
from substrate.history.store.history_store import HistoryStore  # noqa: E402
from substrate.history.store.ledger import NewEntry  # noqa: E402
from substrate.model.nodes import Kind, Node  # noqa: E402
from substrate.model.paths import RelPath  # noqa: E402
from substrate.objects.snapshots import snapshot as snapshots  # noqa: E402
from substrate.recorder import checkpoints_sessions, reversals  # noqa: E402
from substrate.recorder.session_context import Place  # noqa: E402
from substrate.system import clock, environment, ids  # noqa: E402

Row = tuple[str, list[float], list[float]]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def git(root: Path, git_dir: Path, *words: str) -> None:
    argv = ["git", f"--git-dir={git_dir}", f"--work-tree={root}", "-c", "gc.auto=0",
            "-c", "user.name=b", "-c", "user.email=b@b", *words]  # fmt: skip
    subprocess.run(argv, cwd=root, check=True, stdout=subprocess.DEVNULL)


def shadow_init(root: Path, git_dir: Path) -> None:
    git(root, git_dir, "init", "-q")
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "exclude").write_text(".substrate-git\n.git\n")


def shadow_commit(root: Path, git_dir: Path) -> None:
    git(root, git_dir, "add", "-A")
    git(root, git_dir, "commit", "-q", "-m", "x", "--allow-empty")


def place_at(root: Path) -> Place:
    return Place.at(root, environment.current(), session="s-bench", agent_id="bench")


def record_all(place: Place) -> None:
    """What `substrate -c` does around a command that took no time: two scans, one commit."""
    with place.history() as store:
        with store.writing("bench"):
            running = record_entry.begin(
                store, session="s-bench", agent_id="bench", command="edit", exact="edit"
            )
        with store.writing("bench"):
            record_entry.finish(store, running, record_entry.Result(0, 0, {}))


def store_write(store: HistoryStore, paths: list[RelPath], salt: int) -> None:
    """The store's own part: these contents, the trees above them, a commit, durable."""
    with store.new_batch() as batch:
        nodes = {
            path: Node(Kind.FILE, 0o644, batch.add_blob(b"# %d %s\n" % (salt, path)))
            for path in paths
        }
        snapshot = snapshots.edit(batch, store.tip(), nodes)
        new = NewEntry(ids.new_id("c"), "command", clock.now_ns(), "edit", session_id="s-bench")
        extension = Extension(store, batch, snapshot, new)
        with store.commit_point(batch) as ledger:
            ledger.add(new, extension.commit)
            extension.take_up(ledger)


def measure_store(root: Path, files: int, rounds: int) -> list[Row]:
    place = place_at(root)
    shadow = root.parent / "shadow.git"
    shadow_init(root, shadow)
    shadow_commit(root, shadow)
    dirs = max(1, files // 100)
    rows: list[Row] = []
    with place.history() as store, store.writing("bench"):
        record_entry.ensure_baseline(store)
        for changed in (1, 100):
            # Ours in a row, then git's: in turns, each of git's passes over the whole tree would
            # leave our next write with cold caches, and the more so the larger the tree.
            ours, theirs = [], []
            for number in range(5 * rounds + 1):
                chosen = [(i * (files // changed) + number) % files for i in range(changed)]
                paths = [RelPath(os.fsencode(file_path(n, dirs))) for n in chosen]
                ours.append(timed(partial(store_write, store, paths, number)))
            for number in range(rounds + 1):
                edit(root, files, changed, salt=1000 * changed + number)
                theirs.append(timed(lambda: shadow_commit(root, shadow)))
            rows.append((f"store write, {changed} changed", ours[1:], theirs[1:]))
    return rows


def measure_record(root: Path, files: int, rounds: int) -> list[Row]:
    place = place_at(root)
    record_all(place)
    shadow = root.parent / "shadow.git"
    shadow_init(root, shadow)
    shadow_commit(root, shadow)
    rows: list[Row] = []
    for changed in (1, 100):
        ours, undos, theirs = [], [], []
        for number in range(rounds):
            edit(root, files, changed, salt=1000 * changed + number)
            theirs.append(timed(lambda: shadow_commit(root, shadow)))
            ours.append(timed(lambda: record_all(place)))
            target = _last(place)
            undos.append(timed(partial(reversals.undo_command, place, target, Choice())))
            shadow_commit(root, shadow)
        rows.append((f"whole record, {changed} changed", ours, theirs))
        rows.append((f"undo, {changed} changed", undos, theirs))
    checkpoints_sessions.mark_checkpoint(place)
    for number in range(5):
        edit(root, files, 20, salt=77 + number)
        record_all(place)
    took = timed(lambda: reversals.roll_back(place, Choice(), checkpoint="1", session="s-bench"))
    rows.append(("rollback of 5 commands, 100 changes", [took], []))
    return rows


def _last(place: Place) -> str:
    with place.history() as store:
        entry = store.ledger.tip()
        assert entry is not None
        return entry.command_id


def measure_first_use(root: Path, rounds: int) -> list[Row]:
    """A full shadow copy from nothing against our baseline, without git and in a clone.

    Cold means that nothing of the tree is in the page cache: as root only.
    """

    def shadow_copy() -> None:
        shadow = root.parent / "first.git"
        shadow_init(root, shadow)
        shadow_commit(root, shadow)

    def repeated(work: Callable[[], None], leaves: Path, *, cold: bool = False) -> list[float]:
        took = []
        for _ in range(1 if cold else max(3, rounds)):
            if cold:
                drop_caches()
            took.append(timed(work))
            shutil.rmtree(leaves)
        return took

    def baseline() -> None:
        _baseline(root)

    theirs, store = root.parent / "first.git", root / ".substrate-git"
    warm_git = repeated(shadow_copy, theirs)
    ours_bare = repeated(baseline, store)
    cold_git = repeated(shadow_copy, theirs, cold=True) if os.geteuid() == 0 else []
    _make_clone(root)
    ours_git = repeated(baseline, store)
    rows = [("first use, no git", ours_bare, warm_git),
            ("first use, git repository", ours_git, warm_git)]  # fmt: skip
    if cold_git:
        rows += [("  beside a cold shadow copy", ours_git, cold_git),
                 ("  both cold", repeated(baseline, store, cold=True), cold_git)]  # fmt: skip
    return rows


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def _make_clone(root: Path) -> None:
    """Make the tree a repository as a clone leaves it: one pack, an index younger than all."""
    user = root / ".git"
    git(root, user, "init", "-q")
    git(root, user, "add", "-A")
    git(root, user, "commit", "-q", "-m", "x")
    git(root, user, "repack", "-adq")
    time.sleep(2.5)  # entries as young as the index itself are read again, rightly
    (user / "index").unlink()
    git(root, user, "reset", "-q")


def _baseline(root: Path) -> None:
    with place_at(root).history() as store, store.writing("bench"):
        record_entry.ensure_baseline(store)


def measure_compact(root: Path, files: int, commands: int) -> None:
    place = place_at(root)
    shadow = root.parent / "shadow.git"
    record_all(place)
    shadow_init(root, shadow)
    shadow_commit(root, shadow)
    for number in range(commands):
        edit(root, files, 1, salt=number)
        record_all(place)
        shadow_commit(root, shadow)
    with place.history() as store:
        before = git_bytes(store)
    took = timed(lambda: checkpoints_sessions.compact_history(place, None, None))
    with place.history() as store:
        after = git_bytes(store)
    plain = sum(f.stat().st_size for f in shadow.rglob("*") if f.is_file())
    print(f"  {commands} commands: store {before >> 10} KiB, compact {after >> 10} KiB")
    print(f"  ({took:.0f} ms); shadow git {plain >> 10} KiB, {plain / max(1, after):.1f} × ours")


def show(files: int, rows: list[Row], seen: dict[str, list[tuple[int, float]]]) -> None:
    for name, ours, theirs in rows:
        mine = statistics.median(ours)
        seen.setdefault(name, []).append((files, mine))
        if theirs:
            other = statistics.median(theirs)
            print(
                f"  {name:<36} {mine:9.1f} ms   git {other:9.1f} ms   {other / mine:7.1f} × faster"
            )
        else:
            print(f"  {name:<36} {mine:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--files", default="1000,10000,100000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="store,record,first,compact")
    parser.add_argument("--size", type=int, default=1200, help="bytes a file (default: 1200)")
    parser.add_argument("--dir", help="where to make the trees (default: the temp directory)")
    args = parser.parse_args()
    wanted = set(args.only.split(","))
    seen: dict[str, list[tuple[int, float]]] = {}
    for files in [int(n) for n in args.files.split(",")]:
        print(f"{files} files")
        for part in ("store", "record", "first", "compact"):
            if part not in wanted:
                continue
            with tempfile.TemporaryDirectory(dir=args.dir, prefix="bench-") as top:
                root = make_tree(Path(top) / "tree", files, size_bytes=args.size)
                if part == "store":
                    show(files, measure_store(root, files, args.rounds), seen)
                elif part == "record":
                    show(files, measure_record(root, files, args.rounds), seen)
                elif part == "first":
                    show(files, measure_first_use(root, max(1, args.rounds // 3)), seen)
                else:
                    measure_compact(root, files, 50)
    print("growth from the smallest to the largest tree")
    for name, points in seen.items():
        if len(points) > 1:
            (small, low), (large, high) = points[0], points[-1]
            print(f"  {name:<36} {large // small:>4} × files   {high / low:6.2f} × cost")


if __name__ == "__main__":
    main()
