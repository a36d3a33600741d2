"""Move a working copy to another commit, losing nothing: preserve, materialize, replay.

Everything is decided in memory first; the tree, the index and HEAD are touched last, in that order,
and only after the state they had is kept under a recovery ref. ``docs/rewrite.md`` says why.
"""
