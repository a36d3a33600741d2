"""The words that an agent typed, out of what its own shell wraps around them: for people to read.

Records keep the whole of it. Claude Code's looks like this, and fills a line of any list:

    source /…/snapshot-bash-….sh 2>/dev/null || true && eval 'make test' && pwd -P >| /tmp/…-cwd
"""

from __future__ import annotations

import re
import shlex

_EVAL, _DIRECTORY = "eval ", " && pwd -P >| "
#: All that may stand before and after it: whatever else is done there must not be hidden, be it
#: that a file of the project is read as a script, or written over.
_CWD_FILE = re.compile(r"(/[\w.-]+)*/(claude-[\w.-]+-cwd|claude[\w.-]*/cwd-[\w-]+)")
_PREPARES = re.compile(
    r"source (/[\w.-]+)*/\.claude/shell-snapshots/snapshot-[\w.-]+ 2>/dev/null \|\| true"
    r"|(shopt -u extglob|setopt NO_EXTENDED_GLOB( NO_BARE_GLOB_QUAL)?) 2>/dev/null \|\| true"
    r"|export( TE?MP=[\w/.-]+)+"
    r"|export BUN_OPTIONS=\"--smol\$\{BUN_OPTIONS:\+ \$BUN_OPTIONS\}\""
)


def typed(command: str) -> str:
    """What stands in the middle; the command itself if nobody wrapped it in a way known here."""
    head, found, file = command.rpartition(_DIRECTORY)
    if not found or not _CWD_FILE.fullmatch(file):
        return command
    before, found, words = head.partition(_EVAL)
    if not found or not all(_PREPARES.fullmatch(part) for part in before.split(" && ")[:-1]):
        return command
    if before and not before.endswith(" && "):
        return command
    try:
        first, *others = shlex.split(words)
    except ValueError:
        return command
    # Of several lines a list shows the first: it must be the one that the shell begins with.
    if not first.split("\n", 1)[0].strip() or first.count("\\\n") != words.count("\\\n"):
        return command
    # Its input is nothing, at most: anything else would be left out of what one reads.
    return first if "".join(others) in ("", "<", "</dev/null") else command
