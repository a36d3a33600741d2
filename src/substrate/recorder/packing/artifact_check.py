"""Verify an artifact: what packs say of it, and which recorded command wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history.ledger import Entry
from substrate.history.store import HistoryStore
from substrate.packs import refs, signatures
from substrate.packs.store import Store
from substrate.packs.verify import Artifact, Verdict, verify
from substrate.recorder.ask import changes_of
from substrate.recorder.place import Place


class Verified(NamedTuple):
    verdict: Verdict
    #: The entry of history after which these very bytes stood there; None if none is known.
    written_by: Entry | None
    #: None: no signature was asked for.
    signatures: list[signatures.Checked] | None

    @property
    def holds(self) -> bool:
        signed = self.signatures is None or any(found.valid for found in self.signatures)
        return self.verdict.verified and signed


class Wanted(NamedTuple):
    """What the caller asks for besides the artifact."""

    #: Compare with this pack, whatever the sidecar says.
    pack: str | None = None
    allowed_signers: Path | None = None
    identity: str | None = None


def verify_artifact(store: Store, path: Path, place: Place, wanted: Wanted) -> Verified:
    """The whole check; nothing is written anywhere."""
    named = refs.load(store, wanted.pack) if wanted.pack else None
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
    """The newest entry after which the artifact's bytes stood at its path.

    History may be missing, refused or damaged here: then nobody is known, which is no failure of
    the artifact.
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
