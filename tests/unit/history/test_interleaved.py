"""Outside edits and sessions in turns, under a disk cap: what goes, what must stay known."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from substrate.history.maintenance import disk_cap, metrics
from substrate.history.query.line_blame import blame
from substrate.history.query.resolve_id import resolve
from substrate.model.paths import RelPath
from tests.unit.history.workbench import Bench

Whose = list[tuple[bytes, str, str | None, str | None]]


def authors(bench: Bench, name: str) -> Whose:
    """Text, kind, session and agent of each line."""
    bench.settle()
    with bench.store() as store:
        found = blame(store, RelPath(name.encode()), None)
    out = []
    for line in found:
        assert line.author is not None
        assert line.entry is not None
        out.append((line.text, line.author.kind, line.author.session_id, line.author.agent_id))
    return out


def capped(bench: Bench, mib: int) -> None:
    bench.settle()
    text = f"[retention]\ndisk_cap_mib = {mib}\n[compact]\nauto = false\n"
    (bench.root / ".substrate-git/config.toml").write_text(text)


def all_ids(bench: Bench) -> list[str]:
    with bench.store() as store:
        rows = store.ledger.db.execute("SELECT command_id, span_id, commit_oid FROM entries")
        found = [[r["command_id"], r["span_id"], (r["commit_oid"] or b"").hex()] for r in rows]
        named = [name for row in found for name in row if name]
        sessions = store.ledger.db.execute("SELECT session_id FROM sessions")
        return [*named, *(row["session_id"] for row in sessions)]


def test_sixty_sessions_between_outside_edits_stay_under_the_cap(bench: Bench) -> None:
    bench.outside({"notes": b"first\n"})
    capped(bench, 1)
    ids: set[str] = set()
    for n in range(60):
        notes = bench.read("notes")
        bench.outside({"big": os.urandom(100_000), "notes": notes + b"outside %d\n" % n})
        bench.settle()
        text = b"%d by agent\n" % n + bench.read("notes")
        bench.run({"big": os.urandom(100_000), "notes": text}, session=f"s{n}", agent=f"a{n % 3}")
        ids.update(all_ids(bench))
    before, tree = authors(bench, "notes"), bench.tree()
    bench.compact()
    with bench.store() as store:
        assert metrics.capped_bytes(store) <= 1 << 20
        for name in ids:
            found = resolve(store, name)
            assert found.entry or found.session or found.commit
        given_up = disk_cap.state(store).given_up
        assert given_up.entries > 100
    assert authors(bench, "notes") == before
    assert bench.tree() == tree
    assert bench.fsck() == []
    bench.undo(session="s59")
    assert b"59 by agent\n" not in bench.read("notes")


def test_the_cap_holds_while_work_goes_on(bench: Bench) -> None:
    """Squashes are squashed again; ids of the first round still resolve, authors stay known."""
    capped(bench, 1)
    bench.outside({"notes": b""})
    ids: set[str] = set()
    for n in range(24):
        notes = bench.read("notes") if n else b""
        bench.outside({"big": os.urandom(100_000), "notes": notes + b"outside %d\n" % n})
        bench.settle()
        bench.run({"notes": bench.read("notes") + b"agent %d\n" % n}, session=f"s{n}", agent="a")
        before = authors(bench, "notes")
        ids.update(all_ids(bench))
        if n % 3 == 2:
            bench.compact(sessions=2)
            assert authors(bench, "notes") == before
    with bench.store() as store:
        assert metrics.capped_bytes(store) <= 1 << 20
        for name in ids:
            assert resolve(store, name)
    assert bench.fsck() == []


def edits(seed: int) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    """Line edits of three files by three authors: changes, moves, removals, renames."""
    rng = random.Random(seed)
    files: dict[str, list[bytes]] = {"a": [b"a%d\n" % n for n in range(8)], "b": [b"b\n"], "c": []}
    for step in range(40):
        name = rng.choice(sorted(files))
        lines = files[name]
        draw = rng.random()
        changed: dict[str, bytes | None] = {}
        if draw < 0.5 or not lines:
            lines.insert(rng.randint(0, len(lines)), b"new %d\n" % rng.randint(0, 12))
        elif draw < 0.7:
            del lines[rng.randrange(len(lines))]
        elif draw < 0.85:
            lines[rng.randrange(len(lines))] = b"line %d\n" % step
        else:
            other = f"{name}{step}"
            files[other] = files.pop(name)
            changed[name] = None
            name = other
        changed[name] = b"".join(files[name])
        yield rng.choice(("", "s1", "s2")), changed


@pytest.mark.parametrize("seed", range(6))
def test_blame_names_the_same_authors_after_any_compaction(bench: Bench, seed: int) -> None:
    bench.outside({"a": b"".join(b"a%d\n" % n for n in range(8)), "b": b"b\n", "c": b""})
    bench.settle()
    for number, (who, changed) in enumerate(edits(seed)):
        if who:
            bench.run(changed, session=f"{who}-{number // 10}", agent=f"agent of {who}")
        else:
            bench.outside(changed)
            bench.settle()
        if number % 13 == 12:
            names = [path.decode() for path, state in bench.tree().items() if state[2]]
            before = {name: authors(bench, name) for name in names}
            for session in ("s1-0", "s2-0", "s1-1", "s2-1"):
                with bench.store() as store:
                    known = store.ledger.live(session_id=session, limit=1)
                if known:
                    bench.close(session)
            bench.compact(checkpoints=0, sessions=0)
            assert {name: authors(bench, name) for name in names} == before
            assert bench.fsck() == []
    assert "squash" in bench.kinds()
