"""Immutable values that several packages share. Nothing here does I/O."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.model.common_subsequence import Pair as Pair
    from substrate.model.common_subsequence import common as common
    from substrate.model.common_subsequence import gaps as gaps
    from substrate.model.forget_rule import PLACEHOLDER as PLACEHOLDER
    from substrate.model.forget_rule import SHORTEST_SECRET as SHORTEST_SECRET
    from substrate.model.forget_rule import ForgetRule as ForgetRule
    from substrate.model.hold_causes import Hold as Hold
    from substrate.model.hold_causes import HoldCause as HoldCause
    from substrate.model.hold_causes import cause_words as cause_words
    from substrate.model.hold_causes import hold_causes_from as hold_causes_from
    from substrate.model.hold_causes import hold_causes_json as hold_causes_json
    from substrate.model.hold_causes import hold_words as hold_words
    from substrate.model.hold_causes import is_of_both_sides as is_of_both_sides
    from substrate.model.nodes import ABSENT as ABSENT
    from substrate.model.nodes import BlobReader as BlobReader
    from substrate.model.nodes import BlobWriter as BlobWriter
    from substrate.model.nodes import Change as Change
    from substrate.model.nodes import Kind as Kind
    from substrate.model.nodes import ManyBlobWriter as ManyBlobWriter
    from substrate.model.nodes import Node as Node
    from substrate.model.nodes import ReadyBlob as ReadyBlob
    from substrate.model.patch_format import PatchError as PatchError
    from substrate.model.patch_format import patch_changes as patch_changes
    from substrate.model.patch_format import patch_parts as patch_parts
    from substrate.model.paths import ROOT as ROOT
    from substrate.model.paths import RelPath as RelPath
    from substrate.model.paths import ancestors as ancestors
    from substrate.model.paths import display as display
    from substrate.model.paths import from_text as from_text
    from substrate.model.paths import is_within as is_within
    from substrate.model.paths import join as join
    from substrate.model.paths import name_fields as name_fields
    from substrate.model.paths import parent as parent
    from substrate.model.paths import rel_path as rel_path
    from substrate.model.paths import split as split
    from substrate.model.paths import to_text as to_text
    from substrate.model.reported_edit import CannotEditError as CannotEditError
    from substrate.model.reported_edit import Content as Content
    from substrate.model.reported_edit import FileBefore as FileBefore
    from substrate.model.reported_edit import ReportedEdit as ReportedEdit
    from substrate.model.reported_edit import replaced as replaced

__getattr__ = lazy_names(
    __name__,
    {
        "common_subsequence": "Pair, common, gaps",
        "forget_rule": "ForgetRule, PLACEHOLDER, SHORTEST_SECRET",
        "hold_causes": (
            "Hold, HoldCause, cause_words, hold_causes_from, hold_causes_json, hold_words, "
            "is_of_both_sides"
        ),
        "nodes": "ABSENT, BlobReader, BlobWriter, Change, Kind, ManyBlobWriter, Node, ReadyBlob",
        "patch_format": "PatchError, patch_changes, patch_parts",
        "paths": (
            "ROOT, RelPath, ancestors, display, from_text, is_within, join, name_fields, parent, "
            "rel_path, split, to_text"
        ),
        "reported_edit": "CannotEditError, Content, FileBefore, ReportedEdit, replaced",
    },
)
