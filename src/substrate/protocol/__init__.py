"""What goes over the agent's sockets: the door of the command line, and the shapes of HTTP."""

from __future__ import annotations
