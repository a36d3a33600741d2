"""Calls of `substrate` from inside the shell, in its lines and between them.

Calls during a line are answered for that line. Calls after it (from the prompt or a completion)
are answered as if the last line had made them.
"""

from __future__ import annotations

from collections.abc import Callable

from substrate.recorder.command import Inside, NestedRequest, Scene, carry_out

#: Makes the object that answers for one command.
Make = Callable[[], Inside]


class OfLine:
    """Implements `recorder.command.Inside`, and remembers the scene it answers for."""

    def __init__(self, make: Make) -> None:
        self._inside = make()
        self.scene: Scene | None = None

    def open(self, scene: Scene) -> None:
        self.scene = scene
        self._inside.open(scene)

    def on_call(self, listener: int, init_pid: int) -> None:
        self._inside.on_call(listener, init_pid)

    def finish(self) -> NestedRequest:
        return self._inside.finish()


class BetweenLines:
    """Answers calls after one line has ended, until the next line begins."""

    def __init__(self, make: Make, scene: Scene) -> None:
        # The scene has the history that the shell holds open; the broker must not inherit it.
        self._scene = scene
        self._inside = make()
        self._inside.open(self._scene)

    @property
    def on_call(self) -> Callable[[int, int], None]:
        return self._inside.on_call

    def finish(self) -> list[str]:
        """Do what the calls asked for; returns sentences about it for the user."""
        return carry_out(self._scene.place, self._inside.finish().undos, is_held=False)
