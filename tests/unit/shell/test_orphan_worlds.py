"""Layers of a killed shell, wherever they lie: empty ones go, the others wait for a decision."""

from __future__ import annotations

import json
import os
from pathlib import Path

from substrate.history.arrival import held_world_rows, orphan_worlds
from substrate.history.maintenance import crash_recovery
from substrate.history.record import record_entry
from substrate.recorder.session_context import Place
from substrate.system import environment


def layer(worlds: Path, name: str, root: Path, pid: int = 0) -> Path:
    path = worlds / name
    (path / "upper").mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps({"root": str(root), "pid": pid}))
    return path


def test_what_a_killed_shell_left_elsewhere(tmp_path: Path) -> None:
    project, worlds = tmp_path / "project", tmp_path / "worlds"
    project.mkdir()
    place = Place.at(project, environment.current())
    empty = layer(worlds, "wld_empty", project)
    full = layer(worlds, "wld_full", project)
    foreign = layer(worlds, "wld_foreign", tmp_path / "other")
    (full / "upper" / "a").write_text("written\n")
    with place.history() as store:
        with store.writing("test"):
            record_entry.ensure_baseline(store)
            tip = store.tip_commit or b""
            orphan_worlds.note(full, orphan_worlds.Origin(tip.hex(), 5, None, "human"))
            [said] = crash_recovery.sweep_elsewhere(store, worlds)
            assert "wld_full" in said
            assert crash_recovery.sweep_elsewhere(store, worlds) == [], "it is known now"
        [waiting] = held_world_rows.all_held(store)
    assert (waiting.world_id, waiting.state, waiting.base_commit) == ("wld_full", "crashed", tip)
    assert waiting.directory == full
    assert not empty.exists()
    assert os.listdir(worlds) and foreign.exists()
