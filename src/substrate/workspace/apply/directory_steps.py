"""Phase two for directories to remove: only if empty, or if the rest is excluded."""

from __future__ import annotations

import errno

from substrate.model import Kind
from substrate.workspace.apply.apply_context import Item, Mismatch, Noted, Site, Step, matches
from substrate.workspace.apply.apply_steps import remove, rmdir, swap
from substrate.workspace.apply.plan import shown
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import ALL, Directory


def remove_directory(site: Site, item: Item) -> list[Step]:
    """Remove an empty directory; a directory that still holds anything stays, and is reported."""
    if item.keep:
        return remove(site, item)
    parent, name = site.walker.parent_of(item.path)
    with parent:
        _recheck_directory(site, item, parent, name)
        try:
            return rmdir(site, item, parent, name)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                raise
            site.kept_directories.append(Noted(item.path, _why_kept(site, item, error)))
            return []


def replace_directory(site: Site, item: Item) -> list[Step]:
    """Replace a directory by a file or symlink: only if just excluded files are left in it."""
    if not item.keep:
        strangers, reason = site.strangers_below(item.path)
        if strangers:
            held = ", ".join(shown(path) for path in strangers)
            raise Mismatch(item.seen.node, f"the directory still holds {held}")
        item.keep = Kept(TrashReason.ONLY_EXCLUDED_INSIDE, reason) if reason else None
    site.walker.directory(item.path, ALL).close()  # to move it, its owner needs write permission
    parent, name = site.walker.parent_of(item.path)
    with parent:
        _recheck_directory(site, item, parent, name)
    steps = swap(site, item)
    site.openings.forget(item.path)
    return steps


def _recheck_directory(site: Site, item: Item, parent: Directory, name: bytes) -> None:
    found = site.look(parent, name, item.path).node
    if found.kind is not Kind.DIRECTORY or not (item.keep or matches(item.op.expect, found)):
        raise Mismatch(found, "changed while the operation was under way")


def _why_kept(site: Site, item: Item, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return "it is in use (something is mounted there)"
    strangers, reason = site.strangers_below(item.path)
    if strangers:
        return "it still holds " + ", ".join(shown(path) for path in strangers)
    return f"it still holds what is excluded from history ({reason})" if reason else "not empty"
