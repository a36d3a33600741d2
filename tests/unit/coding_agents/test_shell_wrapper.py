"""A list shows what an agent typed, not what its shell wraps around it."""

from __future__ import annotations

import pytest

from substrate.coding_agents.shell_wrapper import typed

_SNAPSHOT = "source /home/u/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true"
_CWD = "pwd -P >| /tmp/claude-1f2e-cwd"
_GROUP = (
    "{ \\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL; }"
    " >/dev/null 2>&1 || true"
)
#: Recorded from 2.1.325.
_REAL_GROUP = (
    "{ \\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL"
    " NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true"
)
_UNALIAS = "{ \\builtin unalias -- 'ls'; \\builtin unset -f -- 'ls'; } >/dev/null 2>&1 || true"


@pytest.mark.parametrize(
    ("wrapped", "words"),
    [
        (f"{_SNAPSHOT} && eval 'make test' && {_CWD}", "make test"),
        (f"{_SNAPSHOT} && eval 'make test' < /dev/null && {_CWD}", "make test"),
        (f"{_SNAPSHOT} && eval 'make test' \\< /dev/null && {_CWD}", "make test"),
        (f"{_SNAPSHOT} && export TEMP=/t TMP=/t && eval ls && {_CWD}", "ls"),
        (f"eval 'echo '\"'\"'a && b'\"'\"'' && {_CWD}", "echo 'a && b'"),
        (f"{_SNAPSHOT} && eval 'one\ntwo' && {_CWD}", "one\ntwo"),
        (f"{_SNAPSHOT} && eval 'one \\\ntwo' && {_CWD}", "one \\\ntwo"),
        (f"{_SNAPSHOT} && {_GROUP} && eval 'make test' < /dev/null && {_CWD}", "make test"),
        (f"{_SNAPSHOT} && {_GROUP} && {_UNALIAS} && \\builtin eval ls && \\builtin {_CWD}", "ls"),
        (f"{_SNAPSHOT} && {_GROUP.replace(chr(92) + 'builtin ', '')} && eval ls && {_CWD}", "ls"),
        (f"{_SNAPSHOT} && {_REAL_GROUP} && {_UNALIAS} && eval ls < /dev/null && {_CWD}", "ls"),
        (f"{_SNAPSHOT} && eval ls && pwd -P >| /private/tmp/claude-501/cwd-1f2e", "ls"),
        (f"{_SNAPSHOT} && eval 'x && pwd -P >| y' && {_CWD}", "x && pwd -P >| y"),
    ],
)
def test_what_was_typed(wrapped: str, words: str) -> None:
    assert typed(wrapped) == words


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "",
        "eval 'make test'",
        f"make && {_CWD}",
        f"{_SNAPSHOT} && eval 'never closed && {_CWD}",
        f"{_SNAPSHOT} && eval 'one' 'two' && {_CWD}",
        f"rm -rf / ; eval 'ls' && {_CWD}",
        f"rm -rf / && eval 'ls' && {_CWD}",
        f"source evil.sh 2>/dev/null || true && eval 'ls' && {_CWD}",
        f"source $(x)/shell-snapshots/snapshot-a;x 2>/dev/null || true && eval 'ls' && {_CWD}",
        f"export TEMP=$(x) && eval 'ls' && {_CWD}",
        f"{_GROUP.replace('extglob', 'extglob; rm -rf /')} && eval 'ls' && {_CWD}",
        f"{_REAL_GROUP.replace('NO_BRACE', 'x;NO_BRACE')} && eval 'ls' && {_CWD}",
        f"{_UNALIAS.replace('; }', '; rm x; }')} && eval 'ls' && {_CWD}",
        f"{_SNAPSHOT} && eval 'ls' && pwd -P >| $(x)",
        f"{_SNAPSHOT} && eval 'ls' && {_CWD} && rm -rf /",
        f"{_SNAPSHOT} && eval 'ls' && pwd -P >| src/main.py",
        f"{_SNAPSHOT} && eval 'ls' && pwd -P >| /home/u/project/main.py",
        f"source ./x/shell-snapshots/snapshot-a.sh 2>/dev/null || true && eval 'ls' && {_CWD}",
        f"source /p/shell-snapshots/snapshot-a.sh 2>/dev/null || true && eval 'ls' && {_CWD}",
        f"{_SNAPSHOT} && eval '\nrm -rf /' && {_CWD}",
        f"{_SNAPSHOT} && eval ls\\\n;rm && {_CWD}",
    ],
)
def test_whatever_else_stays_as_it_is(command: str) -> None:
    assert typed(command) == command
