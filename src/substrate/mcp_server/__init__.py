"""The MCP server: a coding agent asks for history and takes back its own work.

Each tool calls the command line (``substrate … --json``) as any program does, so that a tool and
its verb cannot disagree. The official SDK is an extra (``substrate-recorder[mcp]``): recording
does not import it.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.mcp_server.stdio_server import serve as serve

__getattr__ = lazy_names(__name__, {"stdio_server": "serve"})
