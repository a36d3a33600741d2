"""Reaching and reading single paths without following symlinks."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.workspace.paths import acl as acl
    from substrate.workspace.paths import temporary_chmod as temporary_chmod
    from substrate.workspace.paths.change_times import Stamp as Stamp
    from substrate.workspace.paths.change_times import changed_since as changed_since
    from substrate.workspace.paths.change_times import holds_newer as holds_newer
    from substrate.workspace.paths.change_times import new_moment as new_moment
    from substrate.workspace.paths.change_times import stamp as stamp
    from substrate.workspace.paths.change_times import stamp_of as stamp_of
    from substrate.workspace.paths.content_compare import same_content as same_content
    from substrate.workspace.paths.entry_reader import KindChangedError as KindChangedError
    from substrate.workspace.paths.entry_reader import KnownBlob as KnownBlob
    from substrate.workspace.paths.entry_reader import TooLargeError as TooLargeError
    from substrate.workspace.paths.entry_reader import has_content as has_content
    from substrate.workspace.paths.entry_reader import is_racy as is_racy
    from substrate.workspace.paths.entry_reader import known_entry as known_entry
    from substrate.workspace.paths.entry_reader import read_entry as read_entry
    from substrate.workspace.paths.entry_reader import settled_before_ns as settled_before_ns
    from substrate.workspace.paths.entry_reader import stored as stored
    from substrate.workspace.paths.move_entry import copy as copy
    from substrate.workspace.paths.move_entry import discard as discard
    from substrate.workspace.paths.move_entry import move as move
    from substrate.workspace.paths.move_entry import rename_whatever_mode as rename_whatever_mode
    from substrate.workspace.paths.nofollow_listing import UNKNOWN as UNKNOWN
    from substrate.workspace.paths.nofollow_listing import ListedDirectory as ListedDirectory
    from substrate.workspace.paths.nofollow_listing import Listing as Listing
    from substrate.workspace.paths.nofollow_listing import RawEntry as RawEntry
    from substrate.workspace.paths.nofollow_listing import Tree as Tree
    from substrate.workspace.paths.nofollow_listing import signature_of as signature_of
    from substrate.workspace.paths.nofollow_path import ALL as ALL
    from substrate.workspace.paths.nofollow_path import BY_DESCRIPTOR as BY_DESCRIPTOR
    from substrate.workspace.paths.nofollow_path import CHANGE as CHANGE
    from substrate.workspace.paths.nofollow_path import SEARCH as SEARCH
    from substrate.workspace.paths.nofollow_path import Directory as Directory
    from substrate.workspace.paths.nofollow_path import Walker as Walker
    from substrate.workspace.paths.owner_access import READ as READ
    from substrate.workspace.paths.owner_access import WRITE as WRITE
    from substrate.workspace.paths.owner_access import is_shut as is_shut
    from substrate.workspace.paths.owner_access import with_owner_bits as with_owner_bits
    from substrate.workspace.paths.owner_change import change_owner as change_owner
    from substrate.workspace.paths.owner_change import may_be_planted as may_be_planted
    from substrate.workspace.paths.read_node import NOT_THERE as NOT_THERE
    from substrate.workspace.paths.read_node import Seen as Seen
    from substrate.workspace.paths.read_node import SeenRow as SeenRow
    from substrate.workspace.paths.read_node import as_row as as_row
    from substrate.workspace.paths.read_node import blob_id as blob_id
    from substrate.workspace.paths.read_node import from_row as from_row
    from substrate.workspace.paths.read_node import kind_of as kind_of
    from substrate.workspace.paths.read_node import let_others_in as let_others_in
    from substrate.workspace.paths.read_node import look as look
    from substrate.workspace.paths.read_node import nobody_writes as nobody_writes
    from substrate.workspace.paths.read_node import open_to_read as open_to_read
    from substrate.workspace.paths.read_node import read_open_file as read_open_file
    from substrate.workspace.paths.read_node import shut_out_others as shut_out_others
    from substrate.workspace.paths.read_node import stat_id as stat_id
    from substrate.workspace.paths.read_paths import node_at as node_at
    from substrate.workspace.paths.read_paths import observe as observe
    from substrate.workspace.paths.read_paths import still_so as still_so
    from substrate.workspace.paths.scrub_files import scrub_tree as scrub_tree
    from substrate.workspace.paths.temporary_chmod import Openings as Openings
    from substrate.workspace.paths.temporary_chmod import open_up as open_up

__getattr__ = lazy_names(
    __name__,
    {
        "owner_change": "change_owner, may_be_planted",
        "change_times": "Stamp, changed_since, holds_newer, new_moment, stamp, stamp_of",
        "content_compare": "same_content",
        "entry_reader": (
            "KindChangedError, KnownBlob, TooLargeError, has_content, is_racy, "
            "known_entry, read_entry, settled_before_ns, stored"
        ),
        "move_entry": "copy, discard, move, rename_whatever_mode",
        "nofollow_listing": "ListedDirectory, Listing, RawEntry, Tree, UNKNOWN, signature_of",
        "nofollow_path": "ALL, BY_DESCRIPTOR, CHANGE, Directory, SEARCH, Walker",
        "owner_access": "READ, WRITE, is_shut, with_owner_bits",
        "read_node": (
            "NOT_THERE, Seen, SeenRow, as_row, blob_id, from_row, kind_of, let_others_in, "
            "look, nobody_writes, open_to_read, read_open_file, shut_out_others, stat_id"
        ),
        "read_paths": "node_at, observe, still_so",
        "scrub_files": "scrub_tree",
        "temporary_chmod": "Openings, open_up",
    },
)
