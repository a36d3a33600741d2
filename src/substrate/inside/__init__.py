"""`substrate` called by a command that runs in a world: answered outside, for that world only.

`broker` is the process that answers, started by the first call; `answering` handles one call in a
process of its own; `nested` writes down commands that run inside the world. docs/security.md says
what whoever is inside can and cannot get from it.
"""
