"""The interactive shell: the user's own, in a world, each of its lines a recorded command.

hooks       what bash is given to say when a line starts and ends
zsh_hooks   the same for zsh
program     which of them is the user's own
channel     the two pipes by which it says so, and waits for us
directory   where those are
turn        one line as a conversation
lines       the world of the shell: a view for each line
line_world  one line as a world: it runs in the shell that is there already
inside      calls of `substrate` from within
terminal    whose the terminal is
session     from the first prompt to the last
"""

from __future__ import annotations
