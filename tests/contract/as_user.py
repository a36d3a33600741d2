"""Do something as another user: in a forked child, so that nothing is imported again."""

from __future__ import annotations

import importlib
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import pytest

from substrate.world.capabilities.machine_probe import probe

NOBODY = 65534

T = TypeVar("T")


@cache
def _import_all() -> None:
    """Making a world imports what making a world imports; the other user could not."""
    importlib.import_module("resource")
    # Not in the home of the test that comes first: it would be ours, and shut to the other user.
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBSTRATE_HOME", home)
        probe(fresh=True)


def as_user(uid: int, work: Callable[[], T]) -> T:
    """What `work` returns, done by a child that became `uid`."""
    # What is imported late might lie where the other user may not look.
    _import_all()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if uid != os.geteuid():
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            answer: tuple[bool, object] = (True, work())
        except BaseException as error:  # noqa: BLE001 (it is told, in the parent)
            answer = (False, f"{traceback.format_exc()}\n{error}")
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    good, value = pickle.loads(said)
    assert good, value
    return value
