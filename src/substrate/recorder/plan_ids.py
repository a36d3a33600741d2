"""The id of a plan: a hash of what a reversal would do and of every state that it expects.

A preview shows it, and the call that carries the plan out names it. If anything that the preview
relied on has changed since, the plan made at that moment has another id.
"""

from __future__ import annotations

import hashlib
import json

from substrate.errors import StalePlanError
from substrate.history.reversal import Outcome

_DIGITS = 32


def plan_id(outcome: Outcome) -> str:
    """Of a dry run's outcome. The plan has the present and the wanted node of each path."""
    relied_on = [
        outcome.what,
        outcome.plan.to_json(),
        list(outcome.besides),
        sorted([path.hex(), why] for path, why in outcome.conflicts.items()),
        sorted(path.hex() for path in (*outcome.merged, *outcome.kept)),
        list(outcome.undone),
    ]
    return "pl-" + hashlib.sha256(json.dumps(relied_on).encode()).hexdigest()[:_DIGITS]


def check_plan(outcome: Outcome, expected: str) -> None:
    """Raise `StalePlanError` if the plan is another one."""
    if plan_id(outcome) != expected:
        raise StalePlanError(
            "the preview is out of date: files or history changed since; nothing was changed",
            hint="look at the plan again with --dry-run --json, which shows its plan_id",
        )
