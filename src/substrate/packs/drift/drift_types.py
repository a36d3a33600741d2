"""What a comparison of two packs found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from substrate.packs.drift.content_diff import ContentDiff

#: A recorded command's own id, as `ctx pack --session` notes it beside its parameters.
_COMMAND_ID = re.compile(r"c-[0-9a-z]{13}\Z")

DriftType = Literal[
    "prompt_drift",
    "model_drift",
    "input_drift",
    "environment_drift",
    "tool_drift",
    "param_drift",
    "reasoning_drift",
    "output_drift",
]


class Drift(NamedTuple):
    """One difference. `step` is the step's index in A, or in B if A lacks the step."""

    type: DriftType
    description: str
    step: int | None = None
    a: object = None
    b: object = None
    content: ContentDiff | None = None

    def fields(self) -> dict[str, object]:
        out: dict[str, object] = {
            "type": self.type,
            "description": self.description,
            "step_index": self.step,
            "pack_a": self.a,
            "pack_b": self.b,
        }
        if self.content is not None:
            out["content_diff"] = self.content.unified()
        return out


class DriftReport(NamedTuple):
    ref_a: str
    ref_b: str
    entries: tuple[Drift, ...]

    @property
    def has_drift(self) -> bool:
        return bool(self.entries)

    def fields(self) -> dict[str, object]:
        first = next((drift.step for drift in self.entries if drift.step is not None), None)
        return {
            "pack_hash_a": self.ref_a,
            "pack_hash_b": self.ref_b,
            "has_drift": self.has_drift,
            "first_divergence": first,
            "entries": [drift.fields() for drift in self.entries],
        }


def compared(parameters: Mapping[str, object]) -> Mapping[str, object]:
    """A step's parameters without the id of the recorded command.

    Every recording has new ids; two runs of the same commands must not differ because of them.
    """
    found = parameters.get("command_id")
    if isinstance(found, str) and _COMMAND_ID.match(found):
        return {name: value for name, value in parameters.items() if name != "command_id"}
    return parameters
