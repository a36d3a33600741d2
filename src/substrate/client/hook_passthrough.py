"""A coding agent's own hooks run directly, without Substrate.

Claude Code puts its shell prefix (`substrate -c`) before its hooks, too. Hooks are the user's own
programs, started by the coding agent's harness and not by the model: they must see the real files,
must not become slower, and are not commands of the model. To record one anyway, put
`substrate run -- …` in the hook. `launcher/client.c` does the same.

Only the environment identifies a hook, and files of the project (`.envrc`) can set variables. So
`SUBSTRATE_WORLD` has precedence: if it requires a world, every call gets one.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How the coding agent labels what runs a command: ``claude-code_2-1-325_harness``, ``…_agent``.
_VARIABLE, _OF_HOOKS = b"AI_AGENT", b"_harness"
#: With any other value a world is required, or `main` reports that it does not know the value.
_WORLD, _NOT_REQUIRED = b"SUBSTRATE_WORLD", (b"", b"disabled")


def is_hook(words: Sequence[str], env: Mapping[bytes, bytes]) -> bool:
    """With any other option, the call is not one that the coding agent's harness makes."""
    is_plain = len(words) == 2 and words[0] == "-c" and words[1] != ""
    is_free = env.get(_WORLD, b"").lower() in _NOT_REQUIRED
    return is_plain and is_free and env.get(_VARIABLE, b"").endswith(_OF_HOOKS)


def pass_through(words: Sequence[str]) -> None:
    """If the call is a hook, become the shell that runs it."""
    if sys.platform == "win32":  # no coding agent supports a prefix there
        return
    import posix

    if not is_hook(words, posix.environ):
        return
    from substrate.system.process import process, spawn

    spawn.restore_dispositions()
    argv = process.shell_argv(words[1])
    try:
        process.become(argv[0], argv, posix.environ)
    except OSError:
        pass  # then run it like any other command, and record it
