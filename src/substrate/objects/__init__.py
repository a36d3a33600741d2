"""Git objects without git: the object store, snapshots, the user's index, and git itself.

    store         loose objects, packs, refs; every object is verified when it is read
    snapshots     trees and commits as states of a workspace, with exact modes in the attrs record
    index         the user's git index, read and compared
    import_user   first use in a git repository: take over what its index and objects already say
    git           the git program, with every option pinned

Nothing here knows about commands or history; `ObjectStore` reads and `Batch` writes.
"""
