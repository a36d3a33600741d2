"""Execute a rewrite: attempts, journal, locks."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.rewrite.execute import carry_out as carry_out
    from substrate.rewrite.execute import journal as journal
    from substrate.rewrite.execute.background_status import Sweep as Sweep
    from substrate.rewrite.execute.background_status import list_directories as list_directories
    from substrate.rewrite.execute.journal import HeadMove as HeadMove
    from substrate.rewrite.execute.journal import Intent as Intent
    from substrate.rewrite.execute.operation_scope import UnderWay as UnderWay
    from substrate.rewrite.execute.operation_scope import needs_settling as needs_settling
    from substrate.rewrite.execute.operation_scope import under_way as under_way
    from substrate.rewrite.execute.run_rewrite import Request as Request
    from substrate.rewrite.execute.run_rewrite import RewriteOutcome as RewriteOutcome
    from substrate.rewrite.execute.run_rewrite import rewrite as rewrite
    from substrate.rewrite.execute.working_copy import OWN_DIRECTORIES as OWN_DIRECTORIES
    from substrate.rewrite.execute.working_copy import RECOVERY_PREFIX as RECOVERY_PREFIX
    from substrate.rewrite.execute.working_copy import WorkingCopy as WorkingCopy
    from substrate.rewrite.execute.working_copy import check_ready as check_ready
    from substrate.rewrite.execute.working_copy import open_working_copy as open_working_copy

__getattr__ = lazy_names(
    __name__,
    {
        "background_status": "Sweep, list_directories",
        "journal": "HeadMove, Intent",
        "operation_scope": "UnderWay, needs_settling, under_way",
        "run_rewrite": "Request, RewriteOutcome, rewrite",
        "working_copy": (
            "OWN_DIRECTORIES, RECOVERY_PREFIX, WorkingCopy, check_ready, open_working_copy"
        ),
    },
)
