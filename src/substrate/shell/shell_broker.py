"""Calls of `substrate` from inside the shell, in its lines and between them.

A line's calls are answered for that line. What the prompt asks afterwards, or a completion, is
answered as if the last line asked it.
"""

from __future__ import annotations

from collections.abc import Callable

from substrate.recorder.inside import Asked, Inside, Scene, carry_out

#: Makes what answers for one command.
Make = Callable[[], Inside]


class OfLine:
    """Implements `recorder.inside.Inside`, and remembers for whom it answered."""

    def __init__(self, make: Make) -> None:
        self._inside = make()
        self.scene: Scene | None = None

    def open(self, scene: Scene) -> None:
        self.scene = scene
        self._inside.open(scene)

    def on_call(self, listener: int, init_pid: int) -> None:
        self._inside.on_call(listener, init_pid)

    def finish(self) -> Asked:
        return self._inside.finish()


class BetweenLines:
    """Until the next line begins."""

    def __init__(self, make: Make, scene: Scene) -> None:
        # With the history that the shell has open: whoever answers must not inherit it.
        self._scene = scene
        self._inside = make()
        self._inside.open(self._scene)

    @property
    def on_call(self) -> Callable[[int, int], None]:
        return self._inside.on_call

    def finish(self) -> list[str]:
        """Do what was asked for; sentences about it, for the user."""
        return carry_out(self._scene.place, self._inside.finish().undos, "")
