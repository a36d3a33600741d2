"""The store: ledger, settings, commit chain, and what opens and publishes them."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.store import commit_chain as commit_chain
    from substrate.history.store import history_store as history_store
    from substrate.history.store import messages as messages
    from substrate.history.store import pack_small_objects as pack_small_objects
    from substrate.history.store import setting_files as setting_files
    from substrate.history.store.commit_chain import Extension as Extension
    from substrate.history.store.commit_chain import subject_of as subject_of
    from substrate.history.store.commit_chain import trailers_of as trailers_of
    from substrate.history.store.commit_chain import write_attrs_commit as write_attrs_commit
    from substrate.history.store.commit_chain import write_commit as write_commit
    from substrate.history.store.config import MIB as MIB
    from substrate.history.store.config import Config as Config
    from substrate.history.store.config import load_config as load_config
    from substrate.history.store.history_store import LOCK_TIMEOUT_S as LOCK_TIMEOUT_S
    from substrate.history.store.history_store import UNFINISHED as UNFINISHED
    from substrate.history.store.history_store import HistoryStore as HistoryStore
    from substrate.history.store.history_store import check_trusted as check_trusted
    from substrate.history.store.history_store import interrupted_repair as interrupted_repair
    from substrate.history.store.history_store import is_index_lost as is_index_lost
    from substrate.history.store.history_store import make_store as make_store
    from substrate.history.store.intents import TO_MOVE as TO_MOVE
    from substrate.history.store.intents import UNREADABLE as UNREADABLE
    from substrate.history.store.intents import Intent as Intent
    from substrate.history.store.ledger import COUNTED_BY_AT as COUNTED_BY_AT
    from substrate.history.store.ledger import INDEXED_UPTO as INDEXED_UPTO
    from substrate.history.store.ledger import PROMPT_ID as PROMPT_ID
    from substrate.history.store.ledger import REVERSING_KINDS as REVERSING_KINDS
    from substrate.history.store.ledger import SESSION_KINDS as SESSION_KINDS
    from substrate.history.store.ledger import SQUASHED_KINDS as SQUASHED_KINDS
    from substrate.history.store.ledger import SQUASHED_SESSIONS as SQUASHED_SESSIONS
    from substrate.history.store.ledger import TO_TELL as TO_TELL
    from substrate.history.store.ledger import WHOLE_COMMANDS as WHOLE_COMMANDS
    from substrate.history.store.ledger import Detail as Detail
    from substrate.history.store.ledger import Entry as Entry
    from substrate.history.store.ledger import Ledger as Ledger
    from substrate.history.store.ledger import NewEntry as NewEntry
    from substrate.history.store.ledger import held_sessions as held_sessions
    from substrate.history.store.ledger import is_shared as is_shared
    from substrate.history.store.messages import ATTRS_REF as ATTRS_REF
    from substrate.history.store.messages import BRANCH as BRANCH
    from substrate.history.store.messages import RECOVERY_PREFIX as RECOVERY_PREFIX
    from substrate.history.store.messages import checked_session_id as checked_session_id
    from substrate.history.store.messages import compose as compose
    from substrate.history.store.messages import parse_trailers as parse_trailers
    from substrate.history.store.old_hold_texts import hold_causes_in as hold_causes_in
    from substrate.history.store.preopen import open_ahead as open_ahead
    from substrate.history.store.setting_files import SourcedSetting as SourcedSetting

__getattr__ = lazy_names(
    __name__,
    {
        "commit_chain": "Extension, subject_of, trailers_of, write_attrs_commit, write_commit",
        "config": "Config, MIB, load_config",
        "setting_files": "SourcedSetting",
        "history_store": (
            "HistoryStore, LOCK_TIMEOUT_S, UNFINISHED, check_trusted, interrupted_repair, "
            "is_index_lost, make_store"
        ),
        "intents": "Intent, TO_MOVE, UNREADABLE",
        "ledger": (
            "COUNTED_BY_AT, Detail, Entry, INDEXED_UPTO, TO_TELL, Ledger, NewEntry, "
            "PROMPT_ID, REVERSING_KINDS, SESSION_KINDS, SQUASHED_KINDS, SQUASHED_SESSIONS, "
            "WHOLE_COMMANDS, held_sessions, is_shared"
        ),
        "messages": (
            "ATTRS_REF, BRANCH, RECOVERY_PREFIX, checked_session_id, compose, parse_trailers"
        ),
        "old_hold_texts": "hold_causes_in",
        "preopen": "open_ahead",
    },
)
