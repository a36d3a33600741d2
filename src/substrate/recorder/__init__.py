"""The use cases. Read `command.record_command` first: the pipeline of one command.

command               run a command and record what it changed
reversals             undo, redo, rollback, restore: change the tree back, with a way forward
checkpoints_sessions  checkpoints, sessions, compaction
working_copy_rewrite  move a git working copy to another commit, keeping the work in it
agent_events          what coding agents report by their hooks
recover               every snapshot: list, search, restore, prune
timeline              the rows of history, by index
queries               log, show, diff, blame: queries that change nothing
maintenance           status, check, repair, reset
api                   the same for Python programs: `from substrate import History`
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.arrival import Held as Held
    from substrate.history.maintenance import Decision as Decision
    from substrate.history.maintenance import Problem as Problem
    from substrate.history.maintenance import Range as Range
    from substrate.history.maintenance import disk_bytes as disk_bytes
    from substrate.history.maintenance import disk_cap as disk_cap
    from substrate.history.maintenance import metrics as metrics
    from substrate.history.query import BlamedLine as BlamedLine
    from substrate.history.query import FileChange as FileChange
    from substrate.history.query import Scope as Scope
    from substrate.history.query import Target as Target
    from substrate.history.query import resolve as resolve
    from substrate.history.query import scopes as scopes
    from substrate.history.record import Checkpoint as Checkpoint
    from substrate.history.record import Prompt as Prompt
    from substrate.history.record import Session as Session
    from substrate.history.record import checkpoints as checkpoints
    from substrate.history.record import record_entry as record_entry
    from substrate.history.record import sessions as sessions
    from substrate.history.reversal import Branches as Branches
    from substrate.history.reversal import ChangeHunk as ChangeHunk
    from substrate.history.reversal import Choice as Choice
    from substrate.history.reversal import Outcome as Outcome
    from substrate.history.reversal import rollback as rollback
    from substrate.history.store import WHOLE_COMMANDS as WHOLE_COMMANDS
    from substrate.history.store import Entry as Entry
    from substrate.history.store import HistoryStore as HistoryStore
    from substrate.history.store import SourcedSetting as SourcedSetting
    from substrate.history.store import load_config as load_config
    from substrate.objects.snapshots import Take as Take
    from substrate.objects.snapshots import snapshot as snapshot
    from substrate.recorder import interrupted_operations as interrupted_operations
    from substrate.recorder import queries as queries
    from substrate.recorder import session_context as session_context
    from substrate.recorder.api import History as History
    from substrate.recorder.api import MarkedCommit as MarkedCommit
    from substrate.recorder.api import RecordedCommand as RecordedCommand
    from substrate.recorder.checkpoints_sessions import close_session as close_session
    from substrate.recorder.checkpoints_sessions import compact_history as compact_history
    from substrate.recorder.checkpoints_sessions import mark_checkpoint as mark_checkpoint
    from substrate.recorder.checkpoints_sessions import preview_compaction as preview_compaction
    from substrate.recorder.checkpoints_sessions import start_session as start_session
    from substrate.recorder.forget_content import Forgotten as Forgotten
    from substrate.recorder.forget_content import forget as forget
    from substrate.recorder.interrupted_operations import find as find
    from substrate.recorder.interrupted_operations import finish_all as finish_all
    from substrate.recorder.maintenance import Status as Status
    from substrate.recorder.maintenance import accept_outside as accept_outside
    from substrate.recorder.maintenance import adopt_history as adopt_history
    from substrate.recorder.maintenance import check_store as check_store
    from substrate.recorder.maintenance import repair_store as repair_store
    from substrate.recorder.maintenance import reset_history as reset_history
    from substrate.recorder.maintenance import status as status
    from substrate.recorder.plan_ids import plan_id as plan_id
    from substrate.recorder.projects import Project as Project
    from substrate.recorder.projects import all_projects as all_projects
    from substrate.recorder.projects import prune_projects as prune_projects
    from substrate.recorder.repeat_call import typed_path as typed_path
    from substrate.recorder.reversals import prompt_named as prompt_named
    from substrate.recorder.reversals import recovery_hunks as recovery_hunks
    from substrate.recorder.reversals import redo_command as redo_command
    from substrate.recorder.reversals import restore_recovery as restore_recovery
    from substrate.recorder.reversals import roll_back as roll_back
    from substrate.recorder.reversals import scope_to_undo as scope_to_undo
    from substrate.recorder.reversals import undo_command as undo_command
    from substrate.recorder.reversals import undo_hunks as undo_hunks
    from substrate.recorder.reversals import undo_scope as undo_scope
    from substrate.recorder.session_context import Kept as Kept
    from substrate.recorder.session_context import Place as Place
    from substrate.recorder.settings import settings_of as settings_of
    from substrate.recorder.settings import write_setting as write_setting
    from substrate.recorder.shown_changes import ShownHunk as ShownHunk
    from substrate.recorder.shown_changes import shown_hunks as shown_hunks
    from substrate.recorder.timeline import Row as Row
    from substrate.recorder.timeline import Timeline as Timeline
    from substrate.recorder.timeline import Wanted as Wanted
    from substrate.recorder.uninstall import Leftovers as Leftovers
    from substrate.recorder.uninstall import check_purge as check_purge
    from substrate.recorder.uninstall import leftovers as leftovers
    from substrate.recorder.uninstall import purge as purge
    from substrate.recorder.working_copy_rewrite import rewrite_working_copy as rewrite_working_copy
    from substrate.rewrite.execute import Request as Request
    from substrate.rewrite.execute import RewriteOutcome as RewriteOutcome
    from substrate.rewrite.snapshots import BroughtBack as BroughtBack
    from substrate.rewrite.snapshots import Match as Match
    from substrate.rewrite.snapshots import Policy as Policy
    from substrate.rewrite.snapshots import RestoreChoice as RestoreChoice
    from substrate.rewrite.snapshots import Tombstone as Tombstone
    from substrate.rewrite.snapshots import pattern as pattern
    from substrate.trace import TraceFollower as TraceFollower
    from substrate.trace import TraceReader as TraceReader
    from substrate.trace.redact import redact as redact
    from substrate.trace.redact import redact_argv as redact_argv
    from substrate.workspace import find_ctx as find_ctx
    from substrate.workspace import pause as pause
    from substrate.workspace import resume as resume
    from substrate.world import Network as Network
    from substrate.world import ResourceLimits as ResourceLimits
    from substrate.world import RunRequest as RunRequest
    from substrate.world.capabilities import Finding as Finding
    from substrate.world.capabilities import probe as probe
    from substrate.world.capabilities import promises as promises
    from substrate.world.network import network_for as network_for
    from substrate.world.strategies import DirectWorld as DirectWorld

__getattr__ = lazy_names(
    __name__,
    {
        "substrate.history.arrival": "Held",
        "substrate.history.maintenance": (
            "Decision, Problem, Range, disk_bytes, disk_cap, metrics"
        ),
        "substrate.history.query": "BlamedLine, FileChange, Scope, Target, resolve, scopes",
        "substrate.history.record": (
            "Checkpoint, Prompt, Session, checkpoints, record_entry, sessions"
        ),
        "substrate.history.reversal": "Branches, ChangeHunk, Choice, Outcome, rollback",
        "substrate.history.store": (
            "Entry, HistoryStore, SourcedSetting, WHOLE_COMMANDS, load_config"
        ),
        "substrate.objects.snapshots": "Take, snapshot",
        "api": "History, MarkedCommit, RecordedCommand",
        "checkpoints_sessions": (
            "close_session, compact_history, mark_checkpoint, preview_compaction, start_session"
        ),
        "forget_content": "Forgotten, forget",
        "interrupted_operations": "find, finish_all",
        "maintenance": (
            "Status, accept_outside, adopt_history, check_store, repair_store, reset_history, "
            "status"
        ),
        "plan_ids": "plan_id",
        "projects": "Project, all_projects, prune_projects",
        "repeat_call": "typed_path",
        "reversals": (
            "prompt_named, recovery_hunks, redo_command, restore_recovery, roll_back, "
            "scope_to_undo, undo_command, undo_hunks, undo_scope"
        ),
        "session_context": "Kept, Place",
        "shown_changes": "ShownHunk, shown_hunks",
        "timeline": "Row, Timeline, Wanted",
        "settings": "settings_of, write_setting",
        "uninstall": "Leftovers, check_purge, leftovers, purge",
        "working_copy_rewrite": "rewrite_working_copy",
        "substrate.rewrite.execute": "Request, RewriteOutcome",
        "substrate.rewrite.snapshots": (
            "BroughtBack, Match, Policy, RestoreChoice, Tombstone, pattern"
        ),
        "substrate.trace": "TraceFollower, TraceReader",
        "substrate.trace.redact": "redact, redact_argv",
        "substrate.workspace": "find_ctx, pause, resume",
        "substrate.world": "Network, ResourceLimits, RunRequest",
        "substrate.world.capabilities": "Finding, probe, promises",
        "substrate.world.network": "network_for",
        "substrate.world.strategies": "DirectWorld",
    },
)
