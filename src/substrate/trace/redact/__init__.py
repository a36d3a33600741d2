"""Which texts are secrets, and how they are replaced."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.trace.redact.redact_text import REDACTED as REDACTED
    from substrate.trace.redact.redact_text import redact as redact
    from substrate.trace.redact.redact_text import redact_argv as redact_argv
    from substrate.trace.redact.secret_shapes import redact_shapes as redact_shapes

__getattr__ = lazy_names(
    __name__,
    {
        "redact_text": "REDACTED, redact, redact_argv",
        "secret_shapes": "redact_shapes",
    },
)
