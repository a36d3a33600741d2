"""Files: atomic writes, syncs, renames, extended attributes."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system.files import files as files
    from substrate.system.files import name_folding as name_folding
    from substrate.system.files import xattrs as xattrs
    from substrate.system.files.fd_budget import share as share
    from substrate.system.files.files import TEMPORARY as TEMPORARY
    from substrate.system.files.files import fsync_dir as fsync_dir
    from substrate.system.files.files import fsync_fd as fsync_fd
    from substrate.system.files.files import fsync_file as fsync_file
    from substrate.system.files.files import make_directory as make_directory
    from substrate.system.files.files import read_bytes_or_none as read_bytes_or_none
    from substrate.system.files.files import real_path as real_path
    from substrate.system.files.files import remove_tree as remove_tree
    from substrate.system.files.files import sync_filesystem as sync_filesystem
    from substrate.system.files.files import write_all as write_all
    from substrate.system.files.files import write_atomic as write_atomic
    from substrate.system.files.name_folding import folded as folded
    from substrate.system.files.name_folding import folds_names as folds_names
    from substrate.system.files.parallel_fsync import ManySyncs as ManySyncs
    from substrate.system.files.renames import exchange as exchange
    from substrate.system.files.renames import rename_new as rename_new
    from substrate.system.files.scratch_directory import private_scratch as private_scratch
    from substrate.system.files.sqlite_mmap_check import fill_holes as fill_holes
    from substrate.system.files.sqlite_mmap_check import leaves_holes as leaves_holes
    from substrate.system.files.sqlite_mmap_check import may_map as may_map
    from substrate.system.files.xattrs import ACL_ACCESS as ACL_ACCESS
    from substrate.system.files.xattrs import CAPABILITY as CAPABILITY
    from substrate.system.files.xattrs import RECORDED as RECORDED
    from substrate.system.files.xattrs import Xattrs as Xattrs
    from substrate.system.files.xattrs import read_xattrs as read_xattrs
    from substrate.system.files.xattrs import write_what_can_be as write_what_can_be
    from substrate.system.files.xattrs import write_xattrs as write_xattrs

__getattr__ = lazy_names(
    __name__,
    {
        "fd_budget": "share",
        "files": (
            "TEMPORARY, fsync_dir, fsync_fd, fsync_file, make_directory, "
            "read_bytes_or_none, real_path, remove_tree, sync_filesystem, write_all, "
            "write_atomic"
        ),
        "name_folding": "folded, folds_names",
        "parallel_fsync": "ManySyncs",
        "renames": "exchange, rename_new",
        "scratch_directory": "private_scratch",
        "sqlite_mmap_check": "fill_holes, leaves_holes, may_map",
        "xattrs": (
            "ACL_ACCESS, CAPABILITY, RECORDED, Xattrs, read_xattrs, write_what_can_be, write_xattrs"
        ),
    },
)
