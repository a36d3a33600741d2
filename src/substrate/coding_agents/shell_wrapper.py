"""Extract the command that an agent typed from its shell wrapper, for display.

Records keep the whole text. That of Claude Code looks like this and fills a line of any list:

    source /…/snapshot-bash-….sh 2>/dev/null || true && eval 'make test' && pwd -P >| /tmp/…-cwd
"""

from __future__ import annotations

import re
import shlex

_EVAL, _DIRECTORY, _BUILTIN = "eval ", "pwd -P >| ", "\\builtin "
#: The only texts allowed before and after the command. Anything else must stay visible, for
#: example reading a project file as a script, or overwriting it.
_CWD_FILE = re.compile(r"(/[\w.-]+)*/(claude-[\w.-]+-cwd|claude[\w.-]*/cwd-[\w-]+)")
_PREPARES = re.compile(
    r"(\\builtin )?source (/[\w.-]+)*/\.claude/shell-snapshots/snapshot-[\w.-]+"
    r" 2>/dev/null \|\| true"
    r"|(shopt -u extglob|setopt NO_EXTENDED_GLOB( NO_BARE_GLOB_QUAL)?) 2>/dev/null \|\| true"
    # Since 2.1.325: a group for both shells, which also removes aliases and functions.
    r"|\{ (\\builtin )?shopt -u extglob"
    r" \|\| (\\builtin )?setopt NO_EXTENDED_GLOB( NO_[A-Z_]+)*; \}"
    r" (>/dev/null 2>&1|2>/dev/null) \|\| true"
    r"|\{ \\builtin unalias -- '[\w-]+'; \\builtin unset -f -- '[\w-]+'; \}"
    r" >/dev/null 2>&1 \|\| true"
    r"|export( TE?MP=[\w/.-]+)+"
    r"|export BUN_OPTIONS=\"--smol\$\{BUN_OPTIONS:\+ \$BUN_OPTIONS\}\""
)


def typed(command: str) -> str:
    """The command inside the wrapper; the whole text if it has no known wrapper."""
    head, found, file = command.rpartition(_DIRECTORY)
    head = head.removesuffix(_BUILTIN)
    if not found or not _CWD_FILE.fullmatch(file) or not head.endswith(" && "):
        return command
    before, found, words = head.removesuffix(" && ").partition(_EVAL)
    before = before.removesuffix(_BUILTIN)
    if not found or not all(_PREPARES.fullmatch(part) for part in before.split(" && ")[:-1]):
        return command
    if before and not before.endswith(" && "):
        return command
    try:
        first, *others = shlex.split(words)
    except ValueError:
        return command
    # A list shows only the first of several lines: it must be the first that the shell runs.
    if not first.split("\n", 1)[0].strip() or first.count("\\\n") != words.count("\\\n"):
        return command
    # Only an empty input may follow: anything else would be hidden from the reader.
    return first if "".join(others) in ("", "<", "</dev/null") else command
