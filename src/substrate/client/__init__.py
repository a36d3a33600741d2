"""The thin client: hands a command to the daemon, and starts a daemon when there is none."""

from __future__ import annotations
