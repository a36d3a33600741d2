"""All rules, in the order in which they are tried."""

from __future__ import annotations

from substrate.trace import redact_names, redact_programs, redact_shapes, redact_urls

#: Shapes come first: what they replace cannot confuse the rules that look for a value's end.
RULES = (
    *redact_shapes.RULES,
    *redact_urls.RULES,
    *redact_names.RULES,
    *redact_programs.RULES,
)
