"""The user's git index: read, compare, merge, splice and replace it, and its ``index.lock``.

Nothing outside this room knows the format of an index or makes an ``index.lock``.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.objects.index import index_file as index_file
    from substrate.objects.index import index_lock as index_lock
    from substrate.objects.index import index_splice as index_splice
    from substrate.objects.index.git_index import IndexEntry as IndexEntry
    from substrate.objects.index.git_index import UnusualIndexError as UnusualIndexError
    from substrate.objects.index.git_index import parse_index as parse_index
    from substrate.objects.index.index_by_directory import NO_COLUMNS as NO_COLUMNS
    from substrate.objects.index.index_by_directory import ROW_ID as ROW_ID
    from substrate.objects.index.index_by_directory import Columns as Columns
    from substrate.objects.index.index_by_directory import IndexTable as IndexTable
    from substrate.objects.index.index_by_directory import Row as Row
    from substrate.objects.index.index_by_directory import columns as columns
    from substrate.objects.index.index_by_directory import read_table as read_table
    from substrate.objects.index.index_equal import FileStat as FileStat
    from substrate.objects.index.index_equal import Fresh as Fresh
    from substrate.objects.index.index_equal import fresh_stat as fresh_stat
    from substrate.objects.index.index_file import Stages as Stages
    from substrate.objects.index.index_file import entries_in as entries_in
    from substrate.objects.index.index_file import read_index as read_index
    from substrate.objects.index.index_file import write_like as write_like
    from substrate.objects.index.index_lock import ARRIVAL as ARRIVAL
    from substrate.objects.index.index_lock import REWRITE as REWRITE
    from substrate.objects.index.index_lock import IndexLock as IndexLock
    from substrate.objects.index.index_merge import put_together as put_together
    from substrate.objects.index.index_splice import Glance as Glance
    from substrate.objects.index.index_splice import glance as glance
    from substrate.objects.index.index_splice import with_change_times as with_change_times

__getattr__ = lazy_names(
    __name__,
    {
        "git_index": "IndexEntry, UnusualIndexError, parse_index",
        "index_by_directory": ("Columns, IndexTable, NO_COLUMNS, ROW_ID, Row, columns, read_table"),
        "index_equal": "FileStat, Fresh, fresh_stat",
        "index_file": "Stages, entries_in, read_index, write_like",
        "index_lock": "ARRIVAL, IndexLock, REWRITE",
        "index_merge": "put_together",
        "index_splice": "Glance, glance, with_change_times",
    },
)
