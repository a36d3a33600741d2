"""Packs outside their store: bundles, signatures, in-toto statements, sidecars."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.exchange import signatures as signatures
    from substrate.packs.exchange.bundle import export as export
    from substrate.packs.exchange.bundle_read import MAX_BYTES as MAX_BYTES
    from substrate.packs.exchange.bundle_read import import_bundle as import_bundle
    from substrate.packs.exchange.intoto import envelope as envelope
    from substrate.packs.exchange.intoto import statement as statement
    from substrate.packs.exchange.sidecars import Written as Written
    from substrate.packs.exchange.sidecars import is_sidecar as is_sidecar
    from substrate.packs.exchange.sidecars import sidecar_of as sidecar_of
    from substrate.packs.exchange.sidecars import wants_sidecars as wants_sidecars
    from substrate.packs.exchange.sidecars import write_sidecars as write_sidecars
    from substrate.packs.exchange.signatures import signatures_dir as signatures_dir
    from substrate.packs.exchange.verify_bytes import Artifact as Artifact
    from substrate.packs.exchange.verify_bytes import Verdict as Verdict
    from substrate.packs.exchange.verify_bytes import verify as verify

__getattr__ = lazy_names(
    __name__,
    {
        "bundle": "export",
        "bundle_read": "MAX_BYTES, import_bundle",
        "intoto": "envelope, statement",
        "sidecars": "Written, is_sidecar, sidecar_of, wants_sidecars, write_sidecars",
        "signatures": "signatures_dir",
        "verify_bytes": "Artifact, Verdict, verify",
    },
)
