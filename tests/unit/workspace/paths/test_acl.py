"""What a mode means without the ACL that belongs to it."""

from __future__ import annotations

import os

import pytest

from substrate.model.nodes import Kind, Node
from substrate.system.files.xattrs import ACL_ACCESS, CAPABILITY
from substrate.workspace.paths import acl
from tests.e2e.test_acls import CLOSED_TO_GROUP, INHERITED

ACCESS = (os.fsencode(ACL_ACCESS), CLOSED_TO_GROUP)
OTHER = (b"user.note", b"1")


def test_a_mode_without_its_acl_grants_no_more() -> None:
    node = Node(Kind.FILE, 0o640, b"", (ACCESS, OTHER))
    assert acl.without(node, (ACCESS,)) == Node(Kind.FILE, 0o600, b"", (OTHER,))


def test_a_mode_without_a_capability_stays() -> None:
    capability = (os.fsencode(CAPABILITY), b"\1")
    node = Node(Kind.FILE, 0o755, b"", (capability,))
    assert acl.without(node, (capability,)) == Node(Kind.FILE, 0o755)


@pytest.mark.parametrize("damaged", [b"", b"\2", CLOSED_TO_GROUP[:-3]])
def test_an_acl_that_is_cut_off_is_read_as_far_as_it_goes(damaged: bytes) -> None:
    node = Node(Kind.FILE, 0o640, b"", ((os.fsencode(ACL_ACCESS), damaged),))
    assert acl.without(node, node.xattrs).mode | 0o040 == 0o640


def test_between_two_acls_no_user_gets_what_only_one_allows() -> None:
    old = Node(Kind.FILE, 0o640, b"", (ACCESS,))
    new = Node(Kind.FILE, 0o674, b"", ((os.fsencode(ACL_ACCESS), INHERITED),))
    assert acl.safe_mode(old, new) == acl.safe_mode(new, old) == 0o600
