"""The history is put aside while a world runs or waits: what it holds can still be asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from substrate.history.arrival import orphan_worlds
from substrate.model.hold_causes import Hold, HoldCause
from substrate.recorder import maintenance
from substrate.recorder.arrival import held_worlds
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.world.interface import Layer
from tests.unit.history.workbench import Bench
from tests.unit.recorder.overlay_world import ScriptWorld

pytestmark = pytest.mark.needs("overlay", "root", "mounts")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "project")
    made.run({"a": b"one\n", "mine": b"mine\n"})
    return made


class KilledBeforeTheEnd(ScriptWorld):
    def discard(self, layer: Layer) -> None:
        """Never reached."""


def do(bench: Bench, world: ScriptWorld, *, hold: bool = False) -> Recording:
    return record_command(
        bench.place(), world, CommandRequest(bench.root, shell=world.script, hold=hold)
    )


def reset(bench: Bench) -> None:
    maintenance.reset_history(bench.place())


def spoil(bench: Bench) -> None:
    """A repair cannot but begin a new store."""
    database = bench.root / ".substrate-git" / "index" / "history.db"
    for path in database.parent.glob("history.db*"):
        path.unlink()
    database.write_bytes(b"no database" * 1000)
    assert maintenance.repair_store(bench.place()).extent == "rebuilt"


def test_while_the_command_runs(bench: Bench) -> None:
    def meanwhile() -> None:
        bench.outside({"mine": b"edited while it ran\n"})
        reset(bench)

    done = do(bench, ScriptWorld(bench.root, "echo two >> a; rm mine; echo n > new", meanwhile))
    assert "put aside" in done.held
    assert (bench.read("a"), bench.read("mine")) == (b"one\n", b"edited while it ran\n")
    (waiting,) = held_worlds.list_worlds(bench.place())
    assert (waiting.world_id, waiting.command_id) == (done.world_id, done.command_id)
    held_worlds.apply_world(bench.place(), done.world_id)
    assert (bench.read("a"), bench.read("new")) == (b"one\ntwo\n", b"n\n")
    assert not (bench.root / "mine").exists()
    bench.undo()
    assert bench.read("mine") == b"edited while it ran\n"
    assert bench.fsck() == []


def test_a_repair_carries_over_what_the_command_started_from(bench: Bench) -> None:
    def meanwhile() -> None:
        bench.outside({"mine": b"edited while it ran\n"})
        spoil(bench)

    done = do(bench, ScriptWorld(bench.root, "echo two >> a; rm mine", meanwhile))
    assert not done.held
    assert (bench.read("a"), bench.read("mine")) == (b"one\ntwo\n", b"edited while it ran\n")
    assert bench.fsck() == []


def test_while_a_command_runs_that_changes_nothing(bench: Bench) -> None:
    done = do(bench, ScriptWorld(bench.root, "true", lambda: reset(bench)))
    assert not done.held
    assert bench.kinds() == ["baseline", "command"]
    assert bench.fsck() == []


@pytest.mark.parametrize("put_aside", [reset, spoil])
def test_while_a_world_waits(bench: Bench, put_aside: object) -> None:
    world = ScriptWorld(bench.root, "echo two >> a")
    held = do(bench, world, hold=True)
    put_aside(bench)  # type: ignore[operator]
    bench.run({"other": b"x"})
    assert held_worlds.list_worlds(bench.place()) == []  # its maker is alive and may be working
    assert world.layer is not None
    _end_maker(world.layer.directory)
    (waiting,) = held_worlds.list_worlds(bench.place())
    assert (waiting.world_id, waiting.state) == (held.world_id, "crashed")
    held_worlds.apply_world(bench.place(), held.world_id)
    assert bench.read("a") == b"one\ntwo\n"


def test_an_announcement_that_went_with_the_power(bench: Bench) -> None:
    """It is not synced, and the world's own files may have reached the disk before it."""
    world = ScriptWorld(bench.root, "echo two >> a")
    held = do(bench, world, hold=True)
    with bench.writing() as store, store.commit_point() as ledger:
        ledger.db.execute("DELETE FROM intents")
        ledger.db.execute("DELETE FROM entries WHERE command_id = ?", (held.command_id,))
    assert world.layer is not None
    meta = world.layer.directory / "meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_bytes()), "boot_id": "before", "alive": ""}))
    (waiting,) = held_worlds.list_worlds(bench.place())
    assert waiting.world_id == held.world_id
    assert waiting.causes == (HoldCause(Hold.MACHINE_STOPPED),)
    held_worlds.apply_world(bench.place(), held.world_id)
    assert bench.read("a") == b"one\ntwo\n"


def test_one_that_was_being_removed_does_not_wait(bench: Bench) -> None:
    for script in ("echo two >> a", "touch a"):
        world = KilledBeforeTheEnd(bench.root, script)
        do(bench, world)
        assert world.layer is not None
        _end_maker(world.layer.directory)
        bench.run({"other": script.encode()})
        assert held_worlds.list_worlds(bench.place()) == []
        assert not world.layer.directory.exists()


def test_what_a_shells_world_was_made_from_outlives_compaction(bench: Bench) -> None:
    with bench.store() as store:
        base = store.tip_commit
    assert base is not None
    world = bench.root / ".substrate-git" / "worlds" / "wld_of_a_shell"
    (world / "upper").mkdir(parents=True)
    (world / "upper" / "a").write_bytes(b"job\n")
    pid = {"pid": os.getpid(), "pid_start": _start(), "boot_id": _boot()}
    (world / "meta.json").write_text(json.dumps(pid))
    orphan_worlds.note(world, orphan_worlds.Origin(base.hex(), 1, None, None))
    for number in range(3):
        bench.run({"a": b"%d\n" % number}, session=f"s-{number}")
        bench.close(f"s-{number}")
    bench.compact(0, 0)
    with bench.store() as store:
        assert store.objects.has(base)


def _end_maker(world: Path) -> None:
    meta = json.loads((world / "meta.json").read_bytes())
    (world / "meta.json").write_text(json.dumps({**meta, "alive": "00000000000001"}))


def _start() -> str:
    from substrate.system.process import process_identity

    return process_identity.process_start_token(os.getpid())


def _boot() -> str:
    from substrate.system.process import process_identity

    return process_identity.boot_id()
