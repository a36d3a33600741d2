"""Terminals: the foreground command, PTYs, standard streams."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system.terminal import foreground as foreground
    from substrate.system.terminal import pty_capture as pty_capture
    from substrate.system.terminal import standard_streams as standard_streams
    from substrate.system.terminal import terminal_group as terminal_group
    from substrate.system.terminal.pty_relay import run_on_terminal as run_on_terminal

__getattr__ = lazy_names(
    __name__,
    {
        "pty_relay": "run_on_terminal",
    },
)
