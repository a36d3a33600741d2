"""The interactive shell: the user's own bash, each of its lines a recorded command.

hooks       what bash is given to say when a line starts and ends
channel     the two pipes by which it says so, and waits for us
line_world  one line as a world: it runs in the shell that is there already
session     from the first prompt to the last
"""

from __future__ import annotations
