"""The hook formats of the coding agents, one module each."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.coding_agents.hook_payloads.fields import Payload as Payload
    from substrate.coding_agents.hook_payloads.fields import mapping as mapping
    from substrate.coding_agents.hook_payloads.fields import text as text
    from substrate.coding_agents.hook_payloads.payloads import parse as parse

__getattr__ = lazy_names(__name__, {"fields": "Payload, mapping, text", "payloads": "parse"})
