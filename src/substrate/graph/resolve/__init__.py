"""From the facts of all files to edges between them.

    project_view     what the project's files define: kept in memory, or looked up one by one
    resolve_imports  what an import statement's module is, by language
    resolve_names    what a name means in a file: its own, imported, re-exported, inherited
    resolve_calls    what a call calls, and how certain that is
    edges            the records

Resolution queries the view only by name. Every name that it looks up for a file is among the
file's mentioned names (`path_section`), so that a change elsewhere shows which files to resolve
again.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.resolve.edges import EdgeMaker as EdgeMaker
    from substrate.graph.resolve.edges import Edges as Edges
    from substrate.graph.resolve.project_view import MANY as MANY
    from substrate.graph.resolve.project_view import Definition as Definition
    from substrate.graph.resolve.project_view import Places as Places
    from substrate.graph.resolve.project_view import ProjectView as ProjectView
    from substrate.graph.resolve.project_view import TreeView as TreeView
    from substrate.graph.resolve.project_view import definitions_in as definitions_in
    from substrate.graph.resolve.resolve_imports import FAMILIES as FAMILIES
    from substrate.graph.resolve.resolve_names import Names as Names

__getattr__ = lazy_names(
    __name__,
    {
        "edges": "EdgeMaker, Edges",
        "resolve_imports": "FAMILIES",
        "resolve_names": "Names",
        "project_view": "Definition, MANY, Places, TreeView, ProjectView, definitions_in",
    },
)
