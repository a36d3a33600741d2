"""Queries on history: ids, changes, blame."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.query import line_authors as line_authors
    from substrate.history.query import line_blame as line_blame
    from substrate.history.query import line_hunks as line_hunks
    from substrate.history.query import resolve_id as resolve_id
    from substrate.history.query import scopes as scopes
    from substrate.history.query import touched_paths as touched_paths
    from substrate.history.query.describe_changes import FileChange as FileChange
    from substrate.history.query.describe_changes import file_changes as file_changes
    from substrate.history.query.line_authors import Author as Author
    from substrate.history.query.line_authors import BrokenIndexError as BrokenIndexError
    from substrate.history.query.line_authors import LineHistory as LineHistory
    from substrate.history.query.line_authors import Record as Record
    from substrate.history.query.line_blame import BlamedLine as BlamedLine
    from substrate.history.query.resolve_id import Target as Target
    from substrate.history.query.resolve_id import one_of as one_of
    from substrate.history.query.resolve_id import present_commit as present_commit
    from substrate.history.query.resolve_id import resolve as resolve
    from substrate.history.query.scopes import Scope as Scope
    from substrate.history.query.touched_paths import Touch as Touch

__getattr__ = lazy_names(
    __name__,
    {
        "describe_changes": "FileChange, file_changes",
        "line_authors": "Author, BrokenIndexError, LineHistory, Record",
        "line_blame": "BlamedLine",
        "resolve_id": "Target, one_of, present_commit, resolve",
        "scopes": "Scope",
        "touched_paths": "Touch",
    },
)
