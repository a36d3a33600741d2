"""Which step changes a path, by its present and its wanted kind.

Each case is tested by its label: tests/unit/workspace/apply/test_apply_cases.py fails when one has
no test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from substrate.model import Kind
from substrate.workspace.apply import apply_metadata, apply_steps, directory_steps, rewrite_in_place
from substrate.workspace.apply.apply_context import Item, Site, Step
from substrate.workspace.apply.staging import Stage

Handler = Callable[[Site, Item, Stage], list[Step]]


class Case(NamedTuple):
    label: str
    handler: Handler


def _nothing(site: Site, item: Item, late: Stage) -> list[Step]:
    return []


def _create(site: Site, item: Item, late: Stage) -> list[Step]:
    return apply_steps.create(site, item)


def _remove(site: Site, item: Item, late: Stage) -> list[Step]:
    return apply_steps.remove(site, item)


def _remove_directory(site: Site, item: Item, late: Stage) -> list[Step]:
    return directory_steps.remove_directory(site, item)


def _swap(site: Site, item: Item, late: Stage) -> list[Step]:
    return apply_steps.swap(site, item)


def _replace_directory(site: Site, item: Item, late: Stage) -> list[Step]:
    return directory_steps.replace_directory(site, item)


def _change(site: Site, item: Item, late: Stage) -> list[Step]:
    """The same kind before and after: make the smallest change that is enough."""
    if item.is_whole_directory:
        return apply_steps.replace_whole(site, item)
    if item.is_rewrite:
        return rewrite_in_place.rewrite(site, item, late.write_late)
    if item.is_retouch:
        return apply_metadata.retouch(site, item)
    return apply_steps.swap(site, item)


_CLASSES = ("absent", "file", "symlink", "directory", "special")


def _class_of(kind: Kind) -> str:
    return kind.value if kind.value in _CLASSES else "special"


def _handler_for(old: str, new: str) -> Handler:
    if old == new:
        return _nothing if old == "absent" else _change
    if old == "absent":
        return _create
    if old == "directory":
        return _remove_directory if new == "absent" else _replace_directory
    return _remove if new == "absent" else _swap


#: (present kind, wanted kind) -> the step.
CASES: dict[tuple[str, str], Case] = {
    (old, new): Case(f"{old}->{new}", _handler_for(old, new))
    for old in _CLASSES
    for new in _CLASSES
}
#: The same kind before and after can differ in several ways; each is a separate case.
_SAME_KIND = (
    *("file->file content", "file->file mode", "file->file xattrs", "file->file all"),
    *("file->file in place", "directory->directory mode", "directory->directory xattrs"),
)
LABELS: tuple[str, ...] = tuple(case.label for case in CASES.values()) + _SAME_KIND


_HANDLERS = {
    (old, new): CASES[_class_of(old), _class_of(new)].handler for old in Kind for new in Kind
}


def handler_of(item: Item) -> Handler:
    return _HANDLERS[item.seen.node.kind, item.become.kind]
