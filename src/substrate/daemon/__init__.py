"""The daemon: a small process that forks one process per command, and an HTTP server on demand.

server/lifecycle        one daemon per socket: directory, lock, sockets, handover
server/fork_server      the fork server: everything imported, nothing opened; forks
server/runner           the forked process: takes the caller's place and runs the command line
server/caller_identity  whether the caller may be served at all
prefork                 a process forked before its call arrives
watcher                 watches workspaces, in its own process
http                    HTTP and WebSocket, in its own process, started by the first connection
"""

from __future__ import annotations
