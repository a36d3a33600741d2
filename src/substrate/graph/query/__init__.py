"""Queries on a snapshot: symbols, dependents, a context that fits a budget."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.query.budget import Context as Context
    from substrate.graph.query.budget import fill as fill
    from substrate.graph.query.symbol_dependents import Reason as Reason
    from substrate.graph.query.symbol_dependents import dependents as dependents
    from substrate.graph.query.symbol_queries import Use as Use
    from substrate.graph.query.symbol_queries import find_symbols as find_symbols
    from substrate.graph.query.symbol_queries import find_uses as find_uses
    from substrate.graph.query.symbol_queries import kinds as kinds
    from substrate.graph.query.symbol_queries import named as named

__getattr__ = lazy_names(
    __name__,
    {
        "budget": "Context, fill",
        "symbol_dependents": "Reason, dependents",
        "symbol_queries": "Use, find_symbols, find_uses, kinds, named",
    },
)
