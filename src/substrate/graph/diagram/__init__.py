"""Diagrams of the graph."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.diagram.diagram_model import Picture as Picture
    from substrate.graph.diagram.diagram_model import of_change as of_change
    from substrate.graph.diagram.diagram_model import of_modules as of_modules
    from substrate.graph.diagram.diagram_output import to_dot as to_dot
    from substrate.graph.diagram.diagram_output import to_html as to_html
    from substrate.graph.diagram.diagram_output import to_svg as to_svg

__getattr__ = lazy_names(
    __name__,
    {
        "diagram_model": "Picture, of_change, of_modules",
        "diagram_output": "to_dot, to_html, to_svg",
    },
)
