"""Recorded history as Context Packs, and artifacts checked against them."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.drift import ContentDiff as ContentDiff
    from substrate.packs.drift import Drift as Drift
    from substrate.packs.drift import DriftReport as DriftReport
    from substrate.packs.drift import Line as Line
    from substrate.packs.drift import compare as compare
    from substrate.packs.exchange import MAX_BYTES as MAX_BYTES
    from substrate.packs.exchange import Written as Written
    from substrate.packs.exchange import envelope as envelope
    from substrate.packs.exchange import export as export
    from substrate.packs.exchange import import_bundle as import_bundle
    from substrate.packs.exchange import sidecar_of as sidecar_of
    from substrate.packs.exchange import signatures as signatures
    from substrate.packs.exchange import statement as statement
    from substrate.packs.exchange import wants_sidecars as wants_sidecars
    from substrate.packs.exchange import write_sidecars as write_sidecars
    from substrate.packs.format import NO_TIME as NO_TIME
    from substrate.packs.format import SHOWN as SHOWN
    from substrate.packs.format import Content as Content
    from substrate.packs.format import Manifest as Manifest
    from substrate.packs.format import Pack as Pack
    from substrate.packs.format import Step as Step
    from substrate.packs.format import fields as fields
    from substrate.packs.format import hex_of as hex_of
    from substrate.packs.format import is_ref as is_ref
    from substrate.packs.format import short as short
    from substrate.packs.format import step_fields as step_fields
    from substrate.packs.format import uri_of as uri_of
    from substrate.packs.replay import MATCHED as MATCHED
    from substrate.packs.replay import OutputReport as OutputReport
    from substrate.packs.replay import StepReport as StepReport
    from substrate.packs.replay import first_divergence as first_divergence
    from substrate.packs.store import LogFile as LogFile
    from substrate.packs.store import Objects as Objects
    from substrate.packs.store import Store as Store
    from substrate.packs.store import StoreFinding as StoreFinding
    from substrate.packs.store import check_store as check_store
    from substrate.packs.store import collect as collect
    from substrate.packs.store import drafts as drafts
    from substrate.packs.store import finalize as finalize
    from substrate.packs.store import find_draft as find_draft
    from substrate.packs.store import find_store as find_store
    from substrate.packs.store import fork as fork
    from substrate.packs.store import lineage as lineage
    from substrate.packs.store import load as load
    from substrate.packs.store import pack_log as pack_log
    from substrate.packs.store import pack_refs as pack_refs
    from substrate.packs.transcripts import TranscriptReport as TranscriptReport
    from substrate.packs.transcripts import sentences as sentences
    from substrate.recorder.packing.artifact_check import Verified as Verified
    from substrate.recorder.packing.artifact_check import Wanted as Wanted
    from substrate.recorder.packing.artifact_check import verify_artifact as verify_artifact
    from substrate.recorder.packing.pack_secrets import Found as Found
    from substrate.recorder.packing.pack_secrets import find_secrets as find_secrets
    from substrate.recorder.packing.pack_secrets import publish_redacted as publish_redacted
    from substrate.recorder.packing.pack_secrets import redacted_bytes as redacted_bytes
    from substrate.recorder.packing.pack_secrets import redacted_pack as redacted_pack
    from substrate.recorder.packing.session_steps import SessionBuilder as SessionBuilder
    from substrate.recorder.packing.session_to_pack import build as build
    from substrate.recorder.packing.session_to_pack import pack_session as pack_session
    from substrate.recorder.packing.transcript_trees import (
        pack_agent_transcript as pack_agent_transcript,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "substrate.packs.drift": "ContentDiff, Drift, DriftReport, Line, compare",
        "substrate.packs.exchange": (
            "MAX_BYTES, Written, envelope, export, import_bundle, sidecar_of, signatures, "
            "statement, wants_sidecars, write_sidecars"
        ),
        "substrate.packs.format": (
            "Content, Manifest, NO_TIME, Pack, SHOWN, Step, fields, hex_of, is_ref, short, "
            "step_fields, uri_of"
        ),
        "substrate.packs.replay": "MATCHED, OutputReport, StepReport, first_divergence",
        "substrate.packs.store": (
            "LogFile, Objects, Store, StoreFinding, check_store, collect, drafts, "
            "finalize, find_draft, find_store, fork, lineage, load, pack_log, pack_refs"
        ),
        "substrate.packs.transcripts": "TranscriptReport, sentences",
        "artifact_check": "Verified, Wanted, verify_artifact",
        "pack_secrets": "Found, find_secrets, publish_redacted, redacted_bytes, redacted_pack",
        "session_steps": "SessionBuilder",
        "session_to_pack": "build, pack_session",
        "transcript_trees": "pack_agent_transcript",
    },
)
