"""The tools that a replay can use."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.tools import tree_state as tree_state
    from substrate.packs.tools.confined_tree import ConfinedTree as ConfinedTree
    from substrate.packs.tools.confined_tree import TreeError as TreeError
    from substrate.packs.tools.external_tools import own_tools as own_tools
    from substrate.packs.tools.registry import Limits as Limits
    from substrate.packs.tools.registry import Produced as Produced
    from substrate.packs.tools.registry import Registry as Registry
    from substrate.packs.tools.registry import ShellCall as ShellCall
    from substrate.packs.tools.registry import ShellDone as ShellDone
    from substrate.packs.tools.registry import Tool as Tool
    from substrate.packs.tools.registry import ToolContext as ToolContext
    from substrate.packs.tools.registry import ToolError as ToolError
    from substrate.packs.tools.registry import ToolResult as ToolResult
    from substrate.packs.tools.tool_names import BUILT_IN as BUILT_IN
    from substrate.packs.tools.tool_names import FILE_TOOLS as FILE_TOOLS
    from substrate.packs.tools.tool_names import SHELL_TOOLS as SHELL_TOOLS
    from substrate.packs.tools.tree_state import TreeState as TreeState
    from substrate.packs.tools.tree_state import change_json as change_json
    from substrate.packs.tools.tree_state import leaves as leaves

__getattr__ = lazy_names(
    __name__,
    {
        "confined_tree": "ConfinedTree, TreeError",
        "external_tools": "own_tools",
        "registry": (
            "Limits, Produced, Registry, ShellCall, ShellDone, Tool, ToolContext, "
            "ToolError, ToolResult"
        ),
        "tool_names": "BUILT_IN, FILE_TOOLS, SHELL_TOOLS",
        "tree_state": "TreeState, change_json, leaves",
    },
)
