"""Verify an artifact: what packs say about it, and which recorded command wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history.store import Entry, HistoryStore
from substrate.packs.exchange import Artifact, Verdict, signatures, verify
from substrate.packs.store import Store, pack_refs
from substrate.recorder.queries import changes_of
from substrate.recorder.session_context import Place


class Verified(NamedTuple):
    verdict: Verdict
    #: The history entry that put exactly these bytes there; None if not known.
    written_by: Entry | None
    #: None: no signature was asked for.
    signatures: list[signatures.Checked] | None

    @property
    def holds(self) -> bool:
        signed = self.signatures is None or any(found.valid for found in self.signatures)
        return self.verdict.verified and signed


class Wanted(NamedTuple):
    """What the caller wants checked besides the artifact."""

    #: Compare with this pack, whatever the sidecar says.
    pack: str | None = None
    allowed_signers: Path | None = None
    identity: str | None = None


def verify_artifact(store: Store, path: Path, place: Place, wanted: Wanted) -> Verified:
    """The whole check; writes nothing."""
    named = pack_refs.load(store, wanted.pack) if wanted.pack else None
    verdict = verify(store, path, named)
    checked = None
    if wanted.allowed_signers is not None:
        checked = []
        if verdict.pack is not None:
            checked = signatures.check(
                store, verdict.pack.ref, wanted.allowed_signers, wanted.identity
            )
    return Verified(verdict, writer_of(place, verdict.artifact), checked)


def writer_of(place: Place, artifact: Artifact) -> Entry | None:
    """The newest entry that put the artifact's bytes at its path.

    None if the history is missing, refused or damaged: that is no failure of the artifact.
    """
    try:
        with place.existing_history() as history:
            return _writer(history, place, artifact)
    except SubstrateError:
        return None


def _writer(history: HistoryStore, place: Place, artifact: Artifact) -> Entry | None:
    path = place.rel_path(str(artifact.path))
    for entry in history.ledger.iterate_live(None):
        for change in changes_of(history, entry, path):
            if change.path == path and change.new.oid == artifact.blob_oid:
                return entry
    return None
