"""A flipped bit in a snapshot is found, or changes no answer."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError
from substrate.graph.check_graph import damage
from substrate.graph.index.compressed_snapshot import read_fold
from substrate.graph.index.graph_paths import FILES, MARKER, SECTIONS, read_marker
from substrate.graph.index.snapshot import Snapshot
from tests.unit.graph.conftest import Project

CODE = {
    "a.py": "def first(x):\n  return second(x)\n\n\nclass Thing:\n  def go(self):\n    pass\n",
    "b.py": "from a import first, Thing\n\ndef second(y):\n  Thing().go()\n  return first(y)\n",
}
_FLIPS = 60


@pytest.fixture
def indexed(tmp_path: Path) -> Project:
    project = Project(tmp_path / "project")
    for number in range(5):  # the first ones are folded by then
        project.commit({**CODE, "c.py": f"value = {number}\n"})
        project.index()
    return project


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.unlink()  # it may be a link to another snapshot's
    path.write_bytes(bytes(data))


def answers(directory: Path) -> list[object]:
    found = Snapshot(bytes.fromhex(directory.name), directory)
    symbols = found.symbols_at(b"a.py")
    return [
        found.files, found.symbols, found.calls, found.imports, symbols,
        [found.callers_of(symbol.symbol_id) for symbol in symbols],
        [found.importers_of(symbol) for symbol in symbols],
        [found.regions_at(path) for path in found.sections.paths],
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, SECTIONS, MARKER])
def test_in_a_snapshot(indexed: Project, name: str) -> None:
    directory = indexed.index()
    path = directory / name
    assert answers(directory) and not list(damage(indexed.layout))
    kept = path.read_bytes()
    chosen = random.Random(7)
    for bit in {chosen.randrange(8 * len(kept)) for _ in range(_FLIPS)}:
        flip(path, bit)
        if read_marker(directory) is not None:  # otherwise it is made again
            with pytest.raises(DamagedStoreError) as told:
                answers(directory)
            assert "ctx index" in told.value.hint
        assert [found for found, _ in damage(indexed.layout)] == [path], bit
        path.write_bytes(kept)


def test_in_a_folded_snapshot(indexed: Project) -> None:
    commit = bytes.fromhex(indexed.git("rev-parse", "HEAD~4"))
    path = indexed.layout.fold(commit)
    kept = path.read_bytes()
    whole = read_fold(indexed.layout, commit)
    assert whole is not None
    found = []
    for bit in range(8 * len(kept)):
        flip(path, bit)
        read = read_fold(indexed.layout, commit)
        found.append(read is None)
        # Some bits of a zstd frame have no meaning: those change nothing.
        assert read is None or read == whole, bit
        path.write_bytes(kept)
    assert sum(found) > 0.9 * len(found)


@pytest.mark.parametrize("name", ["symbols.jsonl", "edges.calls.jsonl", SECTIONS])
def test_the_next_index_is_right_even_so(indexed: Project, name: str) -> None:
    directory = indexed.index()
    data = bytearray((directory / name).read_bytes())
    for at in range(0, len(data), 40):
        data[at] ^= 1
    (directory / name).unlink()
    (directory / name).write_bytes(bytes(data))
    indexed.commit({"a.py": CODE["a.py"].replace("first", "other")})
    try:
        found = answers(indexed.index())
    except DamagedStoreError:  # what was not looked at was copied, with its sum
        found = []
    shutil.rmtree(indexed.layout.graph)
    assert found in ([], answers(indexed.index()))
