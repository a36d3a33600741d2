"""A list shows what an agent typed, not what its shell wraps around it."""

from __future__ import annotations

import pytest

from substrate.cli.typed import typed

_SNAPSHOT = "source /home/u/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true"
_CWD = "pwd -P >| /tmp/claude-1f2e-cwd"


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
