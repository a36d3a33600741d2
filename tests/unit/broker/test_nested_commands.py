"""Commands inside a command, as the broker writes them down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from substrate.broker import nested_commands
from substrate.broker.nested_commands import State
from substrate.errors import RefusedError, SubstrateError
from substrate.recorder.command.nested_requests import Scene
from substrate.recorder.session_context import Place
from substrate.system import environment
from substrate.world.interface import Isolation

_ISOLATION = Isolation("overlay", "guarded", "off", "")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    place = Place.at(tmp_path, environment.parse({"SUBSTRATE_HOME": str(tmp_path / "home")}))
    return Scene(place, "s-1", "c-1", "spn_outer", _ISOLATION)


def written(scene: Scene) -> list[dict[str, object]]:
    path = scene.place.environment.trace_path
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def begin(scene: Scene, state: State, *words: bytes) -> nested_commands.Begun:
    begun = nested_commands.begin(scene, state, [b"", b"", *words], Path("/"))
    state.add(begun)
    return begun


def test_a_long_line_is_shown_in_part(scene: Scene) -> None:
    state = State()
    begun = begin(scene, state, b"c", b"x" * 100_000)
    argv = begin(scene, state, b"v", b"a", b"y" * 100_000, b"never")
    assert begun.size < 5000 and argv.size < 5000
    assert len(argv.argv) == 2
    assert all(len(str(span["command"])) < 6000 for span in written(scene))


def test_one_world_cannot_fill_the_trace(scene: Scene) -> None:
    state = State()
    begin(scene, state, b"c", b"true")
    state.text_bytes = nested_commands.MOST_TEXT_BYTES
    with pytest.raises(RefusedError):
        begin(scene, state, b"c", b"true")
    state.text_bytes = 0
    state.spans = ["spn"] * nested_commands.MOST_SPANS
    with pytest.raises(RefusedError):
        begin(scene, state, b"c", b"true")
    assert len(written(scene)) == 1


def test_secrets_are_redacted_as_everywhere(scene: Scene) -> None:
    begin(scene, State(), b"c", b"curl -H 'Authorization: Bearer abcdefghijklmnop0123456789'")
    assert "abcdefghijklmnop" not in str(written(scene))


@pytest.mark.parametrize(
    ("tier", "can"),
    [
        ("", True),
        ("none", True),
        ("workspace", True),
        ("guarded", True),
        ("full", False),
        ("moon", False),
    ],
)
def test_as_much_isolation_as_there_is(scene: Scene, tier: str, can: bool) -> None:
    words = [tier.encode(), b"", b"c", b"true"]
    if can:
        nested_commands.begin(scene, State(), words, Path("/"))
    else:
        with pytest.raises(RefusedError):
            nested_commands.begin(scene, State(), words, Path("/"))
        assert written(scene) == []


def test_an_end_is_believed_once_and_within_bounds(scene: Scene) -> None:
    state = State()
    begun = begin(scene, state, b"c", b"true")
    span = begun.span_id.encode()
    for bad in ([span], [span, b"-1", b"0", b"1"], [span, b"x", b"0", b"1"], [b"spn_", b"0"]):
        with pytest.raises(SubstrateError):
            nested_commands.end(scene, state, bad)
    state.end(nested_commands.end(scene, state, [span, b"9" * 40, b"0", b"9" * 40]))
    with pytest.raises(SubstrateError):
        nested_commands.end(scene, state, [span, b"0", b"0", b"1"])
    last = written(scene)[-1]
    assert (last["exit"], last["outcome"]) == (255, "completed")
    assert nested_commands.close_all(scene, state) == (begun.span_id,)
    assert len(written(scene)) == 2
