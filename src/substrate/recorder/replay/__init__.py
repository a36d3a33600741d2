"""Run a recorded command or a pack again, and compare."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.recorder.replay import tool_versions as tool_versions
    from substrate.recorder.replay.pack_replay import Replayed as Replayed
    from substrate.recorder.replay.pack_replay import ReplayOptions as ReplayOptions
    from substrate.recorder.replay.pack_replay import replay_pack as replay_pack
    from substrate.recorder.replay.span_replay import ReplayedSpan as ReplayedSpan
    from substrate.recorder.replay.span_replay import replay_span as replay_span
    from substrate.recorder.replay.tool_versions import Drift as Drift

__getattr__ = lazy_names(
    __name__,
    {
        "pack_replay": "ReplayOptions, Replayed, replay_pack",
        "span_replay": "ReplayedSpan, replay_span",
        "tool_versions": "Drift",
    },
)
