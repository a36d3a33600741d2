"""The agent: a small process that forks one for each command, and an HTTP server when asked.

lifecycle   one agent per socket: directory, lock, sockets, handover
zygote      the small process: everything imported, nothing opened; forks
runner      the forked one: takes the caller's place and runs the command line
peer        whether the caller may be served at all
server      HTTP and WebSocket, in a process of its own, started by the first connection
"""

from __future__ import annotations
