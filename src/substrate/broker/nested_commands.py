"""Commands that run inside a world by `substrate -c`: their own spans, below the outer one.

The exit status and the words come from inside the world, so the outer command could invent them;
the span says so. What nested commands change is part of the outer command's change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError
from substrate.recorder.command import Scene, UndoWish
from substrate.system import clock, ids
from substrate.trace import FsDiff, TraceWriter, spans
from substrate.world import TIERS

#: All commands share the trace: one world must not fill it.
MOST_SPANS = 5000
MOST_TEXT_BYTES = 4 * 1024 * 1024
_SHOWN_BYTES = 4096
_LONGEST_MS = 10**12


class Begun(NamedTuple):
    """A command that has begun and not ended yet."""

    span_id: str
    parent_span: str
    cwd: str
    #: Only one of `argv` and `shell` is set.
    argv: tuple[bytes, ...]
    shell: bytes
    started_ns: int

    @property
    def size(self) -> int:
        return len(self.shell) + sum(map(len, self.argv))


class State:
    """What the calls have requested and reported so far."""

    def __init__(self) -> None:
        self.undos: list[UndoWish] = []
        self.checkpoints = 0
        self.begun: dict[str, Begun] = {}
        self.spans: list[str] = []
        self.text_bytes = 0

    def add(self, begun: Begun) -> None:
        self.begun[begun.span_id] = begun
        self.spans.append(begun.span_id)
        self.text_bytes += begun.size

    def end(self, span_id: str) -> None:
        self.begun.pop(span_id, None)


def begin(scene: Scene, state: State, words: list[bytes], cwd: Path) -> Begun:
    """Words: the requested tier (or nothing), the parent's span, c or v, then its own words."""
    if len(words) < 4 or words[2] not in (b"c", b"v"):
        raise SubstrateError("the call was not understood")
    tier, parent, kind, *own = words
    _refuse_more_than_there_is(scene, tier.decode("ascii", "replace"))
    if len(state.spans) >= MOST_SPANS or state.text_bytes >= MOST_TEXT_BYTES:
        raise RefusedError(
            f"more than {MOST_SPANS} commands inside one are not written down",
            hint="they still run, as a part of the command around them",
        )
    known = parent.decode("ascii", "replace")
    shown = _shown(own)
    begun = Begun(
        ids.new_id("spn"), known if known in state.begun else scene.span_id, os.fspath(cwd),
        tuple(shown) if kind == b"v" else (), shown[0] if kind == b"c" else b"", clock.now_ns(),
    )  # fmt: skip
    start = spans.command_start(
        _command(scene, begun), begun.started_ns, _isolation(scene), _part_of(scene)
    )
    TraceWriter.of(scene.place.environment).append(start)
    return begun


def end(scene: Scene, state: State, words: list[bytes]) -> str:
    """Words: the span, the exit status, the signal or 0, and the duration."""
    span_id = words[0].decode("ascii", "replace") if words else ""
    begun = state.begun.get(span_id)
    if begun is None or len(words) != 4 or not all(word.isdigit() for word in words[1:]):
        raise SubstrateError("no such command has begun in here")
    status, signum, took_ms = (int(word[:15]) for word in words[1:])
    outcome = "killed" if signum else "completed"
    _complete(scene, begun, min(status, 255), min(took_ms, _LONGEST_MS), outcome)
    return span_id


def close_all(scene: Scene, state: State) -> tuple[str, ...]:
    """Complete the spans of commands that never reported their end: they ended with the outer
    command, or outlive it. Returns all spans that were made."""
    now_ns = clock.now_ns()
    for begun in state.begun.values():
        _complete(scene, begun, None, (now_ns - begun.started_ns) // 1_000_000, "unknown")
    return tuple(state.spans)


def _complete(scene: Scene, begun: Begun, status: int | None, ms: int, outcome: str) -> None:
    completion = spans.Completion(
        clock.now_ns(), status, ms, FsDiff(), _isolation(scene), None, None, outcome,
        extra=_part_of(scene),
    )  # fmt: skip
    command = _command(scene, begun)
    context = spans.replay_context(command, {}, umask=0, stdin="unknown")
    del context["umask"], context["env"]  # unknown out here
    span = spans.command_complete(command, completion, context)
    TraceWriter.of(scene.place.environment).append(span)


def _refuse_more_than_there_is(scene: Scene, tier: str) -> None:
    have = scene.isolation.tier
    if tier and (tier not in TIERS or TIERS.index(tier) > TIERS.index(have)):
        raise RefusedError(
            f"--isolate {tier} cannot be had inside a world of the tier {have}",
            hint=f"run the outer command with --isolate {tier}",
        )


def _command(scene: Scene, begun: Begun) -> spans.Command:
    place = scene.place
    return spans.Command(
        scene.session_id, scene.command_id, begun.span_id, begun.parent_span, place.agent_id,
        place.workspace.root, Path(begun.cwd), begun.argv, begun.shell,
    )  # fmt: skip


def _isolation(scene: Scene) -> spans.Isolation:
    strategy, tier, network, reason = scene.isolation
    inside = f"inside the world of {scene.command_id}: its changes are part of that command's"
    return strategy, tier, network, f"{inside}; {reason}" if reason else inside


def _part_of(scene: Scene) -> dict[str, object]:
    return {"nested": True, "part_of": scene.command_id, "told_by": "the world"}


def _shown(words: list[bytes]) -> list[bytes]:
    """The words, shortened for the trace."""
    shown, room = [], _SHOWN_BYTES
    for word in words:
        if len(word) > room:
            shown.append(word[:room] + " …".encode())
            break
        shown.append(word)
        room -= len(word)
    return shown
