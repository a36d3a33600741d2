"""Doors of rooms: what a package offers to other packages, imported when it is first asked for.

A room is a package with one purpose. Its ``__init__`` lists the names that other rooms may use; all
else in it is private. The names are looked up lazily, because each verb imports only what it needs.
``tests/unit/test_rooms.py`` checks that no import reaches past a door.
"""

from __future__ import annotations

from sys import modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(room: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A module's ``__getattr__``: `homes` says, module by module, which names come from it.

    A home is a module of the room, or the full name of a room whose door offers the same name.
    """
    names: dict[str, str] = {}
    for home, offered in homes.items():
        module = home if home.startswith("substrate.") else f"{room}.{home}"
        for name in offered.split(", "):
            names[name] = module

    def __getattr__(name: str) -> object:  # noqa: N807
        try:
            module = names[name]
        except KeyError:
            raise AttributeError(f"module {room!r} has no attribute {name!r}") from None
        try:
            return getattr(modules[module], name)
        except (KeyError, AttributeError):  # not imported yet, or by another thread right now
            return getattr(__import__(module, fromlist=(name,)), name)

    return __getattr__
