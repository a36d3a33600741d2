"""What others changed before a command begins, as far as the agent's watcher knows."""

from __future__ import annotations

import os

from substrate.errors import WorkspaceError
from substrate.history import outside
from substrate.history.store import HistoryStore
from substrate.model.paths import RelPath
from substrate.recorder.place import Place
from substrate.system import agent_place, watch_talk

#: More is not compared on the way of a command: the watcher does it when all is quiet.
_MOST_ENTRIES = 256
_MOST_BYTES = 4 << 20


def catch_up(
    store: HistoryStore, question: watch_talk.Question | None, *, records: bool = True
) -> bool:
    """Record the outside edits that are known of. Inside the lock.

    Whether there can be no others: the base of what comes next is known, because watched. Unless
    it `records`, what turns out to be news is left to whoever asks next.
    """
    if question is None:
        return False
    answer = question.answer()
    try:
        if answer.why_not or store.tip_commit is None:
            return False
        if not answer.suspects:
            return True
        suspects = {RelPath(path): deep for path, deep in answer.suspects.items()}
        if not outside.is_little(store, suspects, _MOST_ENTRIES, _MOST_BYTES):
            return False
        compare = outside.record_suspects if records else outside.are_no_news
        if not compare(store, suspects):
            return False
        answer.done()
        return True
    except (WorkspaceError, OSError):
        return False  # a command is not refused because somebody's file cannot be recorded
    finally:
        answer.close()


def ask(place: Place) -> watch_talk.Question | None:
    """Ask before the answer is needed; None where there is no agent to ask.

    What others change from now on is met when the command's own change arrives.
    """
    if not place.environment.agent_enabled or not hasattr(os, "geteuid"):
        return None
    variables = place.environment.variables
    names = ("SUBSTRATE_SOCKET", "SUBSTRATE_HOME", "HOME")
    socket = agent_place.socket_path(
        {os.fsencode(n): os.fsencode(variables[n]) for n in names if n in variables}
    )
    if socket is None:
        return None
    directory = agent_place.directory(socket)
    if not agent_place.is_ours(directory):
        return None
    return watch_talk.Question(
        agent_place.watch(directory), os.fsencode(place.workspace.root),
        os.fsencode(place.environment.substrate_home),
    )  # fmt: skip
