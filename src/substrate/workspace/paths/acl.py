"""POSIX ACLs beside a mode: what the mode means with one, and without it.

With an ACL the group bits of a mode are the ACL's mask, the most that named users and groups get.
Without it the same bits are the owning group's own rights. So setting a mode without its ACL can
let the group read what the ACL forbids.
"""

from __future__ import annotations

import os
import struct

from substrate.model import Node
from substrate.system.files import ACL_ACCESS, Xattrs

_ACCESS = os.fsencode(ACL_ACCESS)
_GROUP_BITS = 0o070
_ENTRY = struct.Struct("<HHI")
_HEADER_BYTES = 4
_GROUP_OBJ, _MASK = 0x04, 0x10


def access_of(xattrs: Xattrs) -> bytes:
    """The access ACL among the attributes; empty if there is none."""
    return next((value for name, value in xattrs if name == _ACCESS), b"")


def without(node: Node, refused: Xattrs) -> Node:
    """The node without attributes that cannot be set; its mode grants no more than with them."""
    left = node._replace(xattrs=tuple(one for one in node.xattrs if one not in refused))
    acl = access_of(refused)
    return left._replace(mode=_mode_alone(node.mode, acl)) if acl else left


def safe_mode(old: Node, new: Node) -> int:
    """A mode for the moment between two ACLs: only what both allow."""
    both = old.mode & new.mode
    for node in (old, new):
        acl = access_of(node.xattrs)
        both = _mode_alone(both, acl) if acl else both
    return both | 0o600


def _mode_alone(mode: int, acl: bytes) -> int:
    """The mode with the group bits that the ACL really gives to the owning group."""
    rights = dict.fromkeys((_GROUP_OBJ, _MASK), 0o7)
    body = acl[_HEADER_BYTES:]
    for tag, permissions, _ in _ENTRY.iter_unpack(body[: len(body) // _ENTRY.size * _ENTRY.size]):
        if tag in rights:
            rights[tag] = permissions & 0o7
    group = rights[_GROUP_OBJ] & rights[_MASK]
    return mode & ~_GROUP_BITS | mode & (group << 3)
