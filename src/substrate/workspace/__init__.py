"""The user's tree: find it, know what is left out, see what changed, and change it safely.

    locate        which directory is the workspace, and which git repository it belongs to
    exclude       what history leaves out, and why (ignore_rules: the gitignore language)
    scan          what differs from the last look: listing, reading, compare, scan_workers
    stat_cache    what the last look saw
    observe       the present state of named paths
    plan, apply   changing paths, each checked first

Nothing here knows about object stores: bytes go to a `BlobWriter` and come from a `BlobReader`.
"""
