"""Queries on the code graph about recorded changes and tasks."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph import damage as damage
    from substrate.graph.diagram import Picture as Picture
    from substrate.graph.diagram import of_change as of_change
    from substrate.graph.diagram import of_modules as of_modules
    from substrate.graph.diagram import to_dot as to_dot
    from substrate.graph.diagram import to_html as to_html
    from substrate.graph.diagram import to_svg as to_svg
    from substrate.graph.index import Delta as Delta
    from substrate.graph.index import Layout as Layout
    from substrate.graph.index import Place as Place
    from substrate.graph.index import Snapshot as Snapshot
    from substrate.graph.index import SymbolRecord as SymbolRecord
    from substrate.graph.query import Reason as Reason
    from substrate.graph.query import Use as Use
    from substrate.graph.query import find_symbols as find_symbols
    from substrate.graph.query import find_uses as find_uses
    from substrate.graph.query import kinds as kinds
    from substrate.graph.query import named as named
    from substrate.recorder.code_graph import graph_location as graph_location
    from substrate.recorder.code_graph import impact as impact
    from substrate.recorder.code_graph import task_context as task_context
    from substrate.recorder.code_graph.graph_location import Indexed as Indexed
    from substrate.recorder.code_graph.impact import Impact as Impact
    from substrate.recorder.code_graph.line_symbols import symbols_by_line as symbols_by_line

__getattr__ = lazy_names(
    __name__,
    {
        "substrate.graph": "damage",
        "substrate.graph.diagram": "Picture, of_change, of_modules, to_dot, to_html, to_svg",
        "substrate.graph.index": "Delta, Layout, Place, Snapshot, SymbolRecord",
        "substrate.graph.query": "Reason, Use, find_symbols, find_uses, kinds, named",
        "graph_location": "Indexed",
        "impact": "Impact",
        "line_symbols": "symbols_by_line",
    },
)
