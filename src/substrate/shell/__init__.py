"""The interactive shell: the user's own, in a world; each of its lines is a recorded command.

hooks         the bash code that reports when a line starts and ends
zsh_hooks     the same for zsh
program       finds the user's own shell
channel       the two pipes between the shell and us
directory     the directory that holds the pipes
turn          the messages of one line, from its start to the next prompt
lines         the world of the shell: a view for each line
line_world    one line as a world: it runs in the shell that is already running
shell_broker  answers calls of `substrate` from inside the shell
terminal      which process group owns the terminal and gets its signals
session       from the first prompt to the last
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.shell.session import Surroundings as Surroundings
    from substrate.shell.session import run_shell as run_shell

__getattr__ = lazy_names(
    __name__,
    {
        "session": "Surroundings, run_shell",
    },
)
