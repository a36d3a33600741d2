"""What goes over the daemon's sockets: the command line's protocol, and the shapes of HTTP."""

from __future__ import annotations
