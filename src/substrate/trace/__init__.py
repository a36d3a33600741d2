"""The trace: one JSON object a line about every command, secrets left out.

`spans` builds the objects, `writer` appends them, `reader` gets them back, `redact` keeps secrets
out of them, and `fs_diff` sorts a command's changes into written, modified and deleted.
"""
