"""First use in a git repository: take over what the user's index and objects already say."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.objects.import_user import import_user_index as import_user_index
    from substrate.objects.import_user.bulk_baseline import (
        WORTH_FORKING_FILES as WORTH_FORKING_FILES,
    )
    from substrate.objects.import_user.bulk_baseline import FirstLook as FirstLook
    from substrate.objects.import_user.bulk_baseline import first_look as first_look
    from substrate.objects.import_user.bulk_baseline import is_large as is_large
    from substrate.objects.import_user.copy_user_objects import move_pack_in as move_pack_in
    from substrate.objects.import_user.import_user_index import borrow_index as borrow_index

__getattr__ = lazy_names(
    __name__,
    {
        "bulk_baseline": "FirstLook, WORTH_FORKING_FILES, first_look, is_large",
        "copy_user_objects": "move_pack_in",
        "import_user_index": "borrow_index",
    },
)
