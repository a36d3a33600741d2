"""The context graph: the files, symbols and edges of a commit, and how commits differ.

    parse      blob -> facts (symbols, imports, calls), independent of the path; cached by blob id
    grammars   what `parse` needs to know about each language (tree-sitter)
    resolve    facts of all files -> import and call edges
    index      commit -> snapshot: from scratch, or spliced from a neighbour; the files below
               .ctx/graph; two snapshots -> delta
    query      symbols, dependents, a context within a budget
    diagram    drawings of modules and changes

Nothing here uses command history; `recorder.code_graph` combines the two. See docs/graph.md.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.check_graph import damage as damage

__getattr__ = lazy_names(
    __name__,
    {
        "check_graph": "damage",
    },
)
