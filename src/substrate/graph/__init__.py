"""The context graph: which files, symbols and edges a commit holds, and what differs.

    layout    where things lie below .ctx/graph, and when a snapshot may be believed
    facts     what one blob says, whatever its path; cached by blob id
    extract   blob -> facts (tree-sitter, one module per language in `grammars`)
    records   the JSONL records of the seed
    resolve   facts of all files -> import and call edges
    index     commit -> snapshot: cold, or spliced from a neighbour
    delta     two snapshots -> what was added, changed, deleted, moved, invalidated

Nothing here knows of command history; `recorder.impact` puts the two together.
"""

from __future__ import annotations
