"""What one flipped bit does, file by file: found by `fsck`, without effect, or a wrong answer.

    python -m tests.crash.flipped_bits [--bits 200]

prints the table of `docs/on-disk-format.md`. Each bit is flipped in a copy of a small store; then
`fsck` runs, and if it finds nothing, every question is asked and compared with the answers that the
undamaged store gave.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from substrate.errors import SubstrateError
from substrate.history.maintenance import repair
from substrate.history.query.line_blame import blame
from substrate.history.record.scan_against_tip import HashOnly, observe
from substrate.model.paths import RelPath
from substrate.recorder import queries
from tests.unit.history.workbench import Bench

FOUND, HARMLESS, WRONG = "found", "harmless", "wrong answer"
Answers = dict[str, object]


def small_store(root: Path) -> Bench:
    """Commands, outside edits, a checkpoint, an undo and a squash of several authors."""
    bench = Bench(root)
    bench.outside({"a": b"one\ntwo\n", "d/b": b"b\n"})
    for n in range(3):
        bench.run({"a": bench.read("a") + b"agent %d\n" % n}, session="old", agent="ada")
        bench.outside({"a": bench.read("a") + b"outside %d\n" % n})
        bench.settle()
    bench.close("old")
    bench.run({"d/b": b"c\n", "e": b"\0" * 100}, session="new", command="make things")
    bench.checkpoint("new", "a mark")
    bench.run({"e": None}, session="new")
    bench.undo(session="new")
    bench.compact(sessions=1)
    bench.run({"f": b"1\n"}, session="new")
    return bench


def answers(bench: Bench) -> Answers:
    """What the store says when asked; one that refuses says so, which is no wrong answer."""
    out: Answers = {}
    questions: dict[str, Callable[[], object]] = {
        "log": bench.log,
        "tree": lambda: _with(bench, lambda s: observe(s, HashOnly()).changes),
        "path": lambda: _with(
            bench, lambda s: queries.log_entries(s, session=None, limit=0, paths=(RelPath(b"a"),))
        ),
        "blame": lambda: _with(bench, lambda s: blame(s, RelPath(b"a"), None)),
        "diffs": lambda: _with(
            bench, lambda s: [queries.changed_files(s, e) for e in s.ledger.live()]
        ),
    }
    for name, question in questions.items():
        try:
            out[name] = question()
        except SubstrateError as error:
            out[name] = type(error)
    return out


def _with(bench: Bench, question: Callable[..., object]) -> object:
    with bench.store() as store:
        return question(store)


def parts(store: Path) -> Iterator[tuple[str, Path]]:
    """Every file of a store, by the name of its part."""
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.stat().st_size and path.name != "history.db-shm":
            name = str(path.relative_to(store))
            if name.startswith(".git/objects/pack/"):
                name = f".git/objects/pack/*{path.suffix}"
            elif name.startswith(".git/objects/"):
                name = ".git/objects/??/* (loose)"
            elif name.startswith(".git/refs/"):
                name = ".git/refs/…"
            yield name, path


def effect(bench: Bench, wanted: Answers) -> str:
    """What the damage does that was just made."""
    place = bench.place()
    try:
        if repair.check_or_explain(place.workspace, bench.root / "no-config"):
            return FOUND
    except SubstrateError:
        return FOUND
    given = answers(bench)
    wrong = [n for n, said in given.items() if said != wanted[n] and not isinstance(said, type)]
    return WRONG if wrong else HARMLESS


def flip_all(scratch: Path, bits: int, only: str = "", seed: int = 1) -> dict[str, Counter[str]]:
    """Flip some bits of each file, one at a time, each in a copy that is whole otherwise."""
    bench = small_store(scratch / "made")
    with bench.store() as store:
        store.ledger.fold_log()
    wanted = answers(bench)
    kept = scratch / "kept"
    shutil.copytree(bench.root / ".substrate-git", kept, symlinks=True)
    chance = random.Random(seed)
    table: dict[str, Counter[str]] = {}
    for name, path in parts(kept):
        if not name.startswith(only):
            continue
        data = path.read_bytes()
        for _ in range(bits):
            at = chance.randrange(len(data) * 8)
            shutil.rmtree(bench.root / ".substrate-git")
            shutil.copytree(kept, bench.root / ".substrate-git", symlinks=True)
            hurt = bytearray(data)
            hurt[at // 8] ^= 1 << at % 8
            target = bench.root / ".substrate-git" / path.relative_to(kept)
            target.chmod(0o600)
            target.write_bytes(bytes(hurt))
            table.setdefault(name, Counter())[effect(bench, wanted)] += 1
    return table


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--bits", type=int, default=200, help="flipped in each file")
    words.add_argument("--only", default="", help="files whose name begins so")
    wanted = words.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        table = flip_all(Path(scratch), wanted.bits, wanted.only)
    print(f"| File | {FOUND} | {HARMLESS} | {WRONG} |\n|---|---|---|---|")
    for name, counts in table.items():
        print(f"| `{name}` | {counts[FOUND]} | {counts[HARMLESS]} | {counts[WRONG]} |")


if __name__ == "__main__":
    main()
