"""The thin client: hands a command to the agent, and starts one when there is none."""

from __future__ import annotations
