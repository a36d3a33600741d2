"""The object store: loose objects, packs, refs."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.objects.store import loose as loose
    from substrate.objects.store import refs as refs
    from substrate.objects.store.batch import Batch as Batch
    from substrate.objects.store.loose import HINT as HINT
    from substrate.objects.store.loose import damaged as damaged
    from substrate.objects.store.loose import loose_path as loose_path
    from substrate.objects.store.loose import object_id as object_id
    from substrate.objects.store.object_store import ObjectDir as ObjectDir
    from substrate.objects.store.object_store import ObjectStore as ObjectStore
    from substrate.objects.store.object_store import with_alternates as with_alternates
    from substrate.objects.store.packfile import Pack as Pack
    from substrate.objects.store.packwriter import PackWriter as PackWriter
    from substrate.objects.store.packwriter import ready_blob as ready_blob
    from substrate.objects.store.refs import check_ref_name as check_ref_name
    from substrate.objects.store.refs import is_ref_name as is_ref_name
    from substrate.objects.store.refs import read_ref as read_ref
    from substrate.objects.store.scratch_store import objects_aside as objects_aside

__getattr__ = lazy_names(
    __name__,
    {
        "batch": "Batch",
        "loose": "HINT, damaged, loose_path, object_id",
        "object_store": "ObjectDir, ObjectStore, with_alternates",
        "packfile": "Pack",
        "packwriter": "PackWriter, ready_blob",
        "refs": "check_ref_name, is_ref_name, read_ref",
        "scratch_store": "objects_aside",
    },
)
