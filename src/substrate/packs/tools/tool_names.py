"""The names that agents use for the same few tools, and for their parameters."""

from __future__ import annotations

#: Built-in name -> the names under which agents call it.
ALIASES: dict[str, tuple[str, ...]] = {
    "read_file": ("Read", "read", "view", "View", "read_file"),
    "write_file": ("Write", "write", "create_file", "write_file"),
    "edit_file": ("Edit", "edit", "MultiEdit", "str_replace", "replace", "edit_file"),
    "list_dir": ("LS", "ls", "list_directory", "list_dir"),
    "glob": ("Glob", "glob", "find_files"),
    "search": ("Grep", "grep", "search_file_content", "grep_search", "search"),
    "apply_patch": ("apply_patch",),
    "apply_changes": ("apply_changes",),
    "shell": (
        *("Bash", "bash", "shell", "local_shell", "local_shell_call", "container.exec"),
        *("exec_command", "shell_command", "run_shell_command"),
    ),
}

#: Any of those names -> the built-in it means.
BUILT_IN: dict[str, str] = {
    alias: name for name, aliases in ALIASES.items() for alias in (name, *aliases)
}
SHELL_TOOLS = frozenset(ALIASES["shell"])
FILE_TOOLS = frozenset(BUILT_IN) - SHELL_TOOLS
#: Tools whose answer is only an acknowledgement, in the agent's own words.
WRITING = frozenset({"write_file", "edit_file", "apply_patch"})
