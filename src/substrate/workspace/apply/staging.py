"""Phase one: read every path, and write the wanted entries into the scratch directory.

Errors for lack of space or of an object happen here, before the user's tree is touched.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Collection, Mapping

from substrate.errors import DamagedStoreError
from substrate.model import ABSENT, Kind, Node, RelPath, ancestors, parent
from substrate.system.files import (
    ManySyncs,
    read_xattrs,
    sync_filesystem,
    write_all,
    write_what_can_be,
)
from substrate.workspace.apply.apply_context import (
    Conflict,
    Item,
    Noted,
    Site,
    State,
    matches,
)
from substrate.workspace.apply.folded_names import Twins
from substrate.workspace.apply.plan import How
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import (
    NOT_THERE,
    Seen,
    acl,
    blob_id,
    copy,
    discard,
    kind_of,
    open_to_read,
)

#: A socket belongs to a running process; device nodes are not ours to make.
NEVER_MADE = frozenset({Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE})
_TEMPORARY = b".part"
#: A write that is cut off ends at a multiple of this size.
PAGE_BYTES = 4096

#: From this many new files on, one sync of the whole file system is faster than one per file.
_WHOLE_FILE_SYSTEM = 256


class Stage:
    """Reads each item's path in turn and decides what happens to it."""

    def __init__(
        self,
        site: Site,
        items: list[Item],
        *,
        resuming: bool = False,
        may_open: bool = False,
        others: Collection[RelPath] = (),
        seen: Mapping[RelPath, Seen] | None = None,
    ) -> None:
        self._site = site
        self._items = items
        self._by_path = {item.path: item for item in items}
        self._resuming = resuming
        self._others = others
        #: Read a moment ago.
        self._seen = seen or {}
        #: The second phase may open directories that their mode closes to us; the first only reads.
        self._walker = site.walker if may_open else site.reader
        #: For a directory, the nearest existing ancestor or itself: needed for each file in it.
        self._nearest: dict[RelPath, os.stat_result | None] = {}
        #: For paths that the file system may treat as the same.
        self._twins = Twins(self._by_path)
        self.conflicts: list[Conflict] = []
        self.cannot: list[Noted] = []

    def look_at_all(self) -> None:
        for item in self._items:
            self.look_at(item)
        self._twins.forget_listings()

    def look_at(self, item: Item) -> None:
        """Set the item's state from the present entry at its path."""
        item.unseen = False
        reason = self._judge(item)
        if reason:
            item.state = State.CONFLICT
            self.conflicts.append(Conflict(item.path, item.op.expect, item.seen.node, reason))

    def _judge(self, item: Item) -> str:
        """Set the item's state; a non-empty result is the reason of a conflict."""
        op = item.op
        try:
            item.seen = self._look(item.path)
            item.was_looked_at = True
        except PermissionError as error:
            if any(above in self._by_path for above in ancestors(item.path)):
                item.unseen = True  # its directory's own operation may make it accessible
                return ""
            return f"cannot be read: {error.strerror}"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        found = item.seen.node
        if op.path in self._others:
            return "changed by another process since"
        if op.how is How.FROM_LAYER:
            item.in_layer = self._lies_in_layer(item)
        if item.is_whole_directory:
            return self._judge_whole(item)
        if found == op.become:
            item.state = State.ALREADY
            return ""
        if op.become.kind in NEVER_MADE and found.kind is not op.become.kind:
            item.state = State.CANNOT
            self.cannot.append(Noted(item.path, f"a {op.become.kind.value} cannot be made again"))
            return ""
        excluded = None
        if item.seen.stat is not None:
            excluded = self._site.excluded(item.path, item.seen.stat)
            item.keep = Kept(TrashReason.EXCLUDED, excluded) if excluded else None
            if not excluded and found.kind is Kind.FILE and not (found.oid or op.expect.oid):
                item.keep = Kept(TrashReason.UNREADABLE)
        if not (matches(op.expect, found) or excluded or self._is_half_done(item, found)):
            return _difference(op.expect, found)
        is_there = item.seen.stat is not None
        return "" if op.become == ABSENT or is_there else self._missing_directory(item)

    def _lies_in_layer(self, item: Item) -> bool:
        layer = self._site.layer
        if layer is None or not layer.is_beside(self._site.scratch):
            return False
        place = layer.place(item.path)
        if place is None or not place[0].exists(place[1]):
            return False
        return kind_of(place[0].lstat(place[1])) is item.op.become.kind

    def _judge_whole(self, item: Item) -> str:
        """A directory that comes as a whole: onto a free name, or in place of a trashed entry."""
        found = item.seen.node
        if not item.in_layer and not self._may_copy(item):
            item.state = State.ALREADY  # an earlier attempt brought it in
            return "" if found.kind is Kind.DIRECTORY else "it is gone from the world's layer"
        if item.seen.stat is not None:
            excluded = self._site.excluded(item.path, item.seen.stat)
            item.keep = Kept(TrashReason.EXCLUDED, excluded) if excluded else None
        if found != ABSENT and not item.keep and not matches(item.op.expect, found):
            return _difference(item.op.expect, found)
        if found.kind is Kind.DIRECTORY and not item.keep:
            return "a directory is there already"
        return self._missing_directory(item)

    def _may_copy(self, item: Item) -> bool:
        """The layer is on another file system: its files are copied, and stay there."""
        layer = self._site.layer
        if layer is None or layer.is_beside(self._site.scratch):
            return False
        return item.op.how is How.FROM_LAYER and layer.holds(item.path)

    def _look(self, path: RelPath) -> Seen:
        seen = self._seen.get(path)
        if seen is not None:
            return seen
        maker = self._by_path.get(parent(path))
        if maker is not None and maker.is_to_be_made and self._walker is self._site.reader:
            return NOT_THERE  # so is its directory; it is put there only if the name is free
        try:
            if not self._twins.has_this_spelling(path, self._walker):
                return NOT_THERE
            directory, name = self._walker.parent_of(path)
        except (FileNotFoundError, NotADirectoryError):
            return NOT_THERE
        with directory:
            return self._site.look(directory, name, path)

    def _missing_directory(self, item: Item) -> str:
        above = parent(item.path)
        maker = self._by_path.get(above)
        if maker is not None and maker.op.become.kind is Kind.DIRECTORY:
            stuck = maker.state in (State.CONFLICT, State.CANNOT)
            is_there = maker.seen.node.kind is Kind.DIRECTORY
            return "the directory above could not be made" if stuck and not is_there else ""
        try:
            self._walker.directory(above).close()
        except FileNotFoundError:
            return "the directory above is missing"
        except NotADirectoryError:
            return "something above is a link or a file, not a directory"
        except PermissionError:
            return ""  # closed to us: the second phase opens it, or reports that it cannot
        return ""

    def _is_half_done(self, item: Item, found: Node) -> bool:
        """After a crash only: a state that our own earlier attempt can have left behind."""
        op = item.op
        if not self._resuming or found.kind is not op.become.kind:
            # A directory that had to be replaced was removed, and its successor is not there yet.
            return self._resuming and found == ABSENT and op.expect.kind is Kind.DIRECTORY
        if found.oid == op.expect.oid == op.become.oid:
            modes = {op.expect.mode, op.become.mode, op.expect.mode | 0o600}
            modes |= {acl.safe_mode(op.expect, op.become), acl.safe_mode(op.become, op.expect)}
            pairs = {*op.expect.xattrs, *op.become.xattrs}
            return found.mode in modes and pairs.issuperset(found.xattrs)
        return item.torn and op.how is How.IN_PLACE and self._is_torn(item)

    def _is_torn(self, item: Item) -> bool:
        """Whether each page has the old content or the new: then only we have written to it."""
        directory, name = self._walker.parent_of(item.path)
        with directory:
            fd = open_to_read(directory, name)
        with os.fdopen(fd, "rb") as file:
            found = file.read()
        old = self._site.blobs.read_blob(item.op.expect.oid)
        new = self._site.blobs.read_blob(item.op.become.oid)
        if len(found) not in (len(old), len(new)):
            return False
        for at in range(0, len(found), PAGE_BYTES):
            page = found[at : at + PAGE_BYTES]
            size = len(page)
            written = new[at : at + size]
            # Where the new content ends within a page, the rest of the old one is not cut off yet.
            written += old[at + len(written) : at + size]
            known = old[at : at + size].ljust(size, b"\0"), new[at : at + size], written
            # Zeroes: written, but not flushed yet when the power failed.
            if page not in known and page.strip(b"\0"):
                return False
        return True

    # ---------------------------------------------------------------- writing

    def write_all(self) -> None:
        """Make everything that will be put into the tree, exact and durable, in scratch."""
        made = [item for item in self._items if self.needs_staging(item)]
        for item in made:
            self._write(item)
        self._sync(made)
        for item in made:
            self._finish(item)
        if made:
            self._site.scratch.sync()

    @staticmethod
    def needs_staging(item: Item) -> bool:
        if item.state is not State.TODO or item.unseen or item.become.kind is Kind.ABSENT:
            return False
        if item.in_layer:
            return False
        return not (item.is_rewrite or item.is_retouch)

    def write_late(self, item: Item) -> None:
        """For an item that in the second phase turns out to need a new file after all."""
        self._write(item)
        self._sync([item])
        self._finish(item)

    def _finish(self, item: Item) -> None:
        # An entry named by the bare number is complete: after a crash only those are used.
        scratch = self._site.scratch
        scratch.rename_new(item.scratch_name(_TEMPORARY), scratch, item.scratch_name())

    def _write(self, item: Item) -> None:
        if self._may_copy(item):
            self._copy_from_layer(item)
            return
        at = item.seen.stat
        if _is_root() and not (at and stat.S_ISREG(at.st_mode)):
            self._drop_borrowed_rights(item)
        wanted = item.become
        write_node(self._site, item, item.scratch_name(_TEMPORARY), self._owner_of(item))
        lost = [name for name, _ in wanted.xattrs if name not in dict(item.become.xattrs)]
        if lost:
            names = ", ".join(map(os.fsdecode, lost))
            why = f"its attributes {names}: not possible for you or on this file system"
            self.cannot.append(Noted(item.path, why))

    def _drop_borrowed_rights(self, item: Item) -> None:
        """Owners are not recorded: a file of alice's must not come back as setuid root.

        If only the directory's owner can make files in it, the file belonged to that owner.
        """
        node = item.become
        if node.kind is not Kind.FILE or not node.mode & (stat.S_ISUID | stat.S_ISGID):
            return
        at = self._nearest_directory(item)
        if at is None or at.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            item.become = node._replace(mode=node.mode & ~(stat.S_ISUID | stat.S_ISGID))
            self.cannot.append(
                Noted(item.path, "its setuid and setgid bits: whose file it was is not recorded")
            )

    def _copy_from_layer(self, item: Item) -> None:
        layer, scratch = self._site.layer, self._site.scratch
        place = layer.place(item.path) if layer is not None else None
        assert place is not None, "it was there a moment ago"
        name = item.scratch_name(_TEMPORARY)
        discard(scratch, name)
        copy(*place, scratch, name)

    def _sync(self, made: list[Item]) -> None:
        scratch = self._site.scratch
        if len(made) >= _WHOLE_FILE_SYSTEM and sys.platform == "linux" and scratch.fd is not None:
            sync_filesystem(scratch.fd)
            return
        syncs = ManySyncs()
        try:
            for item in made:
                if item.become.kind is Kind.FILE:
                    syncs.add(open_to_read(scratch, item.scratch_name(_TEMPORARY)))
        finally:
            syncs.finish()

    def _owner_of(self, item: Item) -> tuple[int, int]:
        """The new entry's owner: that of the entry it replaces, else of the nearest directory."""
        at = item.seen.stat
        if at is not None:
            return at.st_uid, at.st_gid
        at = self._nearest_directory(item)
        if at is None:
            return -1, -1
        inherits = bool(at.st_mode & stat.S_ISGID) or _is_root()
        return at.st_uid, at.st_gid if inherits else -1

    def _nearest_directory(self, item: Item) -> os.stat_result | None:
        """The nearest directory above it that exists."""
        above = parent(item.path)
        if above not in self._nearest:
            self._nearest[above] = self._look_for_nearest(item)
        return self._nearest[above]

    def _look_for_nearest(self, item: Item) -> os.stat_result | None:
        for above in [*ancestors(item.path), RelPath(b"")]:
            try:
                with self._walker.directory(above) as directory:
                    return directory.own_stat()
            except OSError:
                continue
        return None


def write_node(site: Site, item: Item, name: bytes, owner: tuple[int, int]) -> None:
    """Make `item.become` at `name` in scratch: kind, content, owner, attributes, exact mode."""
    scratch, node = site.scratch, item.become
    discard(scratch, name)
    if node.kind is Kind.SYMLINK:
        scratch.symlink(read_verified(site, node.oid), name)
        _give_away(site, name, owner)
    elif node.kind is Kind.FIFO:
        scratch.mkfifo(name)
        _give_away(site, name, owner)
        scratch.chmod(name, node.mode)
    elif node.kind is Kind.DIRECTORY:
        scratch.mkdir(name)
        _give_away(site, name, owner)
        with scratch.child(name) as child:
            _write_xattrs(item, child.itself())
        # Not the exact mode yet if that would keep us from filling it: see `Openings`.
        scratch.chmod(name, passing_mode(item.become.mode))
    else:
        _write_file(site, item, name, owner)


def read_verified(site: Site, oid: bytes) -> bytes:
    data = site.blobs.read_blob(oid)
    if blob_id(data) != oid:
        raise DamagedStoreError(
            f"object {oid.hex()} does not hold what its name says", hint="run substrate fsck"
        )
    return data


def passing_mode(mode: int) -> int:
    """A directory's mode while there is still work to do in it."""
    return mode if _is_root() or os.name == "nt" else mode | 0o700


def _write_file(site: Site, item: Item, name: bytes, owner: tuple[int, int]) -> None:
    node = item.become
    data = read_verified(site, node.oid)
    fd = site.scratch.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        write_all(fd, data)
        _give_away(site, name, owner)
        _write_xattrs(item, fd)
        if hasattr(os, "fchmod"):
            os.fchmod(fd, item.become.mode)
    finally:
        os.close(fd)


def _write_xattrs(item: Item, target: int | bytes) -> None:
    # A new file may have got a default ACL from its directory that the recorded file never had.
    refused = write_what_can_be(target, item.become.xattrs, read_xattrs(target))
    if refused:
        item.become = acl.without(item.become, refused)


def _give_away(site: Site, name: bytes, owner: tuple[int, int]) -> None:
    """Call this before setting the mode: changing the owner clears setuid bits."""
    uid, gid = owner if _is_root() else (-1, owner[1])
    if (uid, gid) == (-1, -1):
        return
    try:
        site.scratch.chown(name, uid, gid)
    except PermissionError:
        if _is_root():
            raise  # not root: a group we are not in; our own group must do


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _difference(expect: Node, found: Node) -> str:
    if found.kind is not expect.kind:
        there = "nothing is there" if found == ABSENT else f"a {found.kind.value} is there"
        return f"{there}, expected {'nothing' if expect == ABSENT else 'a ' + expect.kind.value}"
    if found.oid != expect.oid:
        return "its content is not as expected"
    if found.mode != expect.mode:
        return f"its mode is {found.mode:04o}, expected {expect.mode:04o}"
    return "its extended attributes are not as expected"
