"""Context Packs: the `.ctx` object store, manifests, diff, verify, fork, bundles."""

from __future__ import annotations
