"""The world of an interactive shell holds what any other does, while its views change."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from substrate.system import environment
from substrate.system.process import spawn
from substrate.system.process.process import Stdio
from substrate.world.interface import RunRequest, Wanted
from substrate.world.layer import layer_dirs
from substrate.world.select_strategy import choose_world
from substrate.world.standing.standing_world import open_standing_world
from substrate.world.strategies.layer_strategy import LayeredWorld
from tests.contract.as_user import as_user
from tests.contract.world_site import Case
from tests.security.test_escapes import ALL, PYTHON, ROOT, USERS, Stage, staged

pytestmark = pytest.mark.needs("linux", "root")

#: `inherited` is about descriptors that a call is given; a shell has those of its terminal.
NAMES = [one for one in ALL if one.held_from == "workspace" and one.name != "inherited"]


def attempt(stage: Stage, attacks: list[str], room: Path) -> list[dict[str, str]]:
    """What each attack said: in the view of its line, and in that view when it is put aside."""
    site = stage.site
    (site.root / "facts.json").write_text(
        json.dumps({**stage.facts, "direct": False, "tier": "workspace"})
    )
    shutil.copy(stage.script, site.root / "attacks.py")
    line = f"{PYTHON} -I attacks.py facts.json " + " ".join(attacks)
    shell = f"{line}; echo done >&2; read answer; {line}"

    def work() -> str:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["TMUX_TMPDIR"] = str(stage.runtime)
        world = choose_world(Wanted(site.root, site.store, required=True, strategy="overlay"))
        assert isinstance(world, LayeredWorld)
        first, second = world.make_layer("wld_one"), world.make_layer("wld_two")
        standing = open_standing_world(world, RunRequest(site.root), first)
        standing.show(first)
        answer, give = os.pipe()
        told, tell = os.pipe()
        out = os.open(site.base / "said", os.O_RDWR | os.O_CREAT, 0o600)
        argv = (b"/bin/sh", b"-c", shell.encode())
        variables = dict(environment.current().variables)
        standing.start(spawn.Program(argv, site.root, variables, Stdio(answer, out, tell)))
        os.close(tell)
        while os.read(told, 100) != b"done\n":
            pass
        standing.show(second, stow=room)
        os.write(give, b"\n")
        assert standing.news() is not None
        standing.close()
        for layer in (first, second):
            layer_dirs.remove(layer)
        return (site.base / "said").read_text()

    said = [line.partition(" ") for line in as_user(site.case.uid, work).splitlines()]
    half = len(said) // 2
    return [{name: what for name, _, what in part} for part in (said[:half], said[half:])]


@pytest.mark.parametrize("uid", USERS)
def test_a_standing_world_holds(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attacks = [one.name for one in NAMES if uid == ROOT or not one.root_only]
    with staged(Case("overlay", uid), monkeypatch) as stage:
        room = stage.site.base / "home" / ".substrate" / "view"
        room.mkdir()
        os.chown(room, uid, uid)
        for said in attempt(stage, attacks, room):
            assert set(said) == set(attacks), said
            through = {name: what for name, what in said.items() if not what.startswith("held")}
            assert through == {}
