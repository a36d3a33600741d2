"""The trace: one JSON object a line about every command, secrets left out.

`spans` builds the objects, `writer` appends them, `reader` gets them back, `redact` keeps secrets
out of them, and `fs_diff` sorts a command's changes into written, modified and deleted.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.trace import forget as forget
    from substrate.trace import spans as spans
    from substrate.trace import writer as writer
    from substrate.trace.follow import TraceFollower as TraceFollower
    from substrate.trace.fs_diff_record import FsDiff as FsDiff
    from substrate.trace.fs_diff_record import fs_diff as fs_diff
    from substrate.trace.reader import TraceReader as TraceReader
    from substrate.trace.spans import REPLAYED_VARIABLES as REPLAYED_VARIABLES
    from substrate.trace.spans import fs_denied_fields as fs_denied_fields
    from substrate.trace.writer import TraceWriter as TraceWriter

__getattr__ = lazy_names(
    __name__,
    {
        "follow": "TraceFollower",
        "fs_diff_record": "FsDiff, fs_diff",
        "reader": "TraceReader",
        "spans": "REPLAYED_VARIABLES, fs_denied_fields",
        "writer": "TraceWriter",
    },
)
