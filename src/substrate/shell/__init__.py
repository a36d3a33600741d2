"""The interactive shell: the user's own, in a world; each of its lines is a recorded command.

bash_hooks      the bash code that reports when a line starts and ends
zsh_hooks       the same for zsh
find_shell      finds the user's own shell
channel         the two pipes between the shell and us
pipe_directory  the directory that holds the pipes
shell_line      the messages of one line, from its start to the next prompt
shell_world     the world of the shell: a view for each line
line_world      one line as a world: it runs in the shell that is already running
shell_broker    answers calls of `substrate` from inside the shell
terminal        which process group owns the terminal and gets its signals
session         from the first prompt to the last
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
