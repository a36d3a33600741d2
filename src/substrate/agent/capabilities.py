"""What this agent can do, and which strategies work on this machine."""

from __future__ import annotations

import substrate
from substrate.world.probe import finding
from substrate.world.protocol import STRATEGIES, TIERS

FEATURES = ("execute", "stream", "cancel", "pty", "trace", "doctor", "fs_diff")


def capabilities() -> dict[str, object]:
    return {
        "version": substrate.__version__,
        "api": ["v1"],
        "features": list(FEATURES),
        "tiers": list(TIERS),
        "strategies": [{"strategy": name, **_works(name)} for name in STRATEGIES],
    }


def _works(strategy: str) -> dict[str, object]:
    found = finding(strategy)
    works = found.works or strategy == "direct"
    return {"works": works, "why": "" if works else found.why, "fix": "" if works else found.fix}
