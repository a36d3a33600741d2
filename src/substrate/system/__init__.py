"""The only door to the operating system.

Each thing has one home here: subprocesses (`process`), environment variables (`environment`),
the wall clock (`clock`), ids (`ids`), atomic file work (`files`), locks (`locks`), ``user.*``
attributes (`xattrs`), boots and pids (`platform`), the renames Python lacks (`renames`).
"""
