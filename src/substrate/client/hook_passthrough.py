"""A coding agent's own hooks go straight through.

Claude Code puts its shell prefix (`substrate -c`) before its hooks, too. They are the user's own
programs, run by the agent's machinery and not by the model: they must see the real files, take no
longer than they do bare, and are nobody's commands. Who really wants one recorded says
`substrate run -- …` in it. `launcher/door.c` does the same.

Only the environment tells a hook, and files of the project (`.envrc`) may have a say in that. So it
does not go before `SUBSTRATE_WORLD`: who requires a world gets one for each call.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the agent says of who runs a command: ``claude-code_2-1-325_harness``, or ``…_agent``.
_VARIABLE, _OF_HOOKS = b"AI_AGENT", b"_harness"
#: Whatever else it says: a world is required, or `main` tells that it does not know the word.
_WORLD, _NOT_REQUIRED = b"SUBSTRATE_WORLD", (b"", b"disabled")


def is_hook(words: Sequence[str], env: Mapping[bytes, bytes]) -> bool:
    """With any option beside it, the call is not of the agent's making."""
    is_plain = len(words) == 2 and words[0] == "-c" and words[1] != ""
    is_free = env.get(_WORLD, b"").lower() in _NOT_REQUIRED
    return is_plain and is_free and env.get(_VARIABLE, b"").endswith(_OF_HOOKS)


def pass_through(words: Sequence[str]) -> None:
    """Become the shell that runs it, if it is a hook."""
    if sys.platform == "win32":  # no agent knows of a prefix there
        return
    import posix

    if not is_hook(words, posix.environ):
        return
    from substrate.system import process, spawn

    spawn.restore_dispositions()
    argv = process.shell_argv(words[1])
    try:
        posix.execve(argv[0], argv, posix.environ)
    except OSError:
        pass  # it is run all the same, and recorded
