"""Phase two for paths that keep their inode: mode and extended attributes."""

from __future__ import annotations

import os
import stat

from substrate.model import Kind, Node
from substrate.system.files import fsync_fd, read_xattrs, write_xattrs
from substrate.workspace.apply.apply_context import Item, Mismatch, OnItem, Site, Step
from substrate.workspace.apply.staging import passing_mode
from substrate.workspace.paths import (
    SEARCH,
    Directory,
    Seen,
    acl,
    look,
    open_to_read,
    read_open_file,
)


def retouch(site: Site, item: Item) -> list[Step]:
    """Change mode and attributes of the present entry, keeping the inode."""
    parent, name = site.walker.parent_of(item.path, SEARCH)
    with parent:
        if item.become.kind is Kind.DIRECTORY:
            found = site.look(parent, name, item.path).node
            if found != item.seen.node:
                raise Mismatch(found, "changed while the operation was under way")
        else:
            site.recheck(item, parent, name)
        _retouch(site, item, parent, name, item.become)
    return [Retouched(item)]


class Retouched(OnItem):
    def undo(self, site: Site) -> None:
        parent, name = site.walker.parent_of(self.item.path, SEARCH)
        with parent:
            _retouch(site, self.item, parent, name, self.item.seen.node)


def _retouch(site: Site, item: Item, parent: Directory, name: bytes, node: Node) -> None:
    if node.kind is Kind.FILE:
        _retouch_file(site, item, parent, name, node)
    elif node.kind is Kind.DIRECTORY:
        retouch_directory(site, item, parent, name, node)
    else:
        parent.chmod(name, node.mode)


def _retouch_file(site: Site, item: Item, parent: Directory, name: bytes, node: Node) -> None:
    fd = open_to_read(parent, name)
    try:
        seen: Seen | None = item.seen
        if not (item.seen.is_settled and item.seen.same_inode_untouched(os.fstat(fd))):
            seen = read_open_file(fd, site.most_bytes)
        if seen is None or seen.node.oid != node.oid:
            raise Mismatch(look(parent, name, site.most_bytes).node, "changed in the last moment")
        set_attributes(fd, seen.node, node)
        if not site.is_synced_later(os.fstat(fd).st_dev):
            fsync_fd(fd)
    except BaseException:
        os.close(fd)
        raise
    site.let_go(fd)
    if not hasattr(os, "fchmod"):
        parent.chmod(name, node.mode)


def set_attributes(fd: int, old: Node, new: Node) -> None:
    if old.xattrs != new.xattrs:
        if acl.access_of(old.xattrs) != acl.access_of(new.xattrs):
            os.fchmod(fd, acl.safe_mode(old, new))  # the new mode without the ACL could grant more
        elif not old.mode & 0o200:
            os.fchmod(fd, old.mode | 0o600)  # changing attributes needs write permission
        write_xattrs(fd, new.xattrs, old.xattrs)
    # A write clears set-id bits.
    is_so = old.mode == new.mode and not new.mode & (stat.S_ISUID | stat.S_ISGID)
    if hasattr(os, "fchmod") and not (is_so and old.xattrs == new.xattrs):
        os.fchmod(fd, new.mode)


def retouch_directory(site: Site, item: Item, parent: Directory, name: bytes, node: Node) -> None:
    """Set the mode last, because it may lock us out; such a mode is set when all else is done."""
    for_now = passing_mode(node.mode)
    if for_now != node.mode:
        site.openings.promise(item.path, for_now, node.mode)
        parent.chmod(name, for_now)
    site.touch_directory(item.path)
    with parent.child(name) as child:
        found = read_xattrs(child.itself()) if child.is_readable else node.xattrs
        if acl.access_of(found) != acl.access_of(node.xattrs):
            parent.chmod(name, acl.safe_mode(item.seen.node, node) | 0o700)
        write_xattrs(child.itself(), node.xattrs, found)
    if for_now == node.mode:
        parent.chmod(name, node.mode)
        site.openings.forget(item.path)
