"""The page of `substrate ui`: its server on loopback, and the static files that a browser loads.

A process of its own. It reads, previews and carries out plans; it never runs commands.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.page.exported_page import export_html as export_html
    from substrate.page.page_server import PageServer as PageServer

__getattr__ = lazy_names(
    __name__,
    {
        "exported_page": "export_html",
        "page_server": "PageServer",
    },
)
