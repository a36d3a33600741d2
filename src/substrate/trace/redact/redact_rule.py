"""What the redaction rules share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple


class Rule(NamedTuple):
    #: Lower-case texts; the rule is tried only if one of them occurs.
    triggers: tuple[str, ...]
    apply: Callable[[str], str]


@cache
def compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The compiled pattern, cached: rules compile their patterns on first use."""
    return re.compile(pattern, flags)
