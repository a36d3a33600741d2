"""What part of history a request means, in one text, and the words of the command line for it.

c-…            a command (or any id of an entry)     p-…   a prompt     s-…   a session
c-1..c-9       after c-1, up to c-9                  since:X            what came after X
external       edits made outside Substrate          external:X         those since X, or in A..B
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from substrate.errors import UsageError
from substrate.recorder import HistoryStore, Place, Scope, prompt_named, scopes, sessions

#: Ids, times, tags and prefixes of them: none of these begins like an option.
_NAME = re.compile(r"[A-Za-z0-9@][A-Za-z0-9_@~./:+-]{0,199}")
_HINT = "scope is an id, A..B, since:X or external"


class Meant(NamedTuple):
    find: Callable[[HistoryStore], Scope]
    #: The words of `diff` and `undo` that mean the same.
    words: tuple[str, ...]
    #: The id of one command: `undo` decides what it can do with it.
    single: str | None = None


def scope_meant(text: str, place: Place) -> Meant:
    """Read the text; whether an id exists is found out later."""
    way, colon, name = text.partition(":")
    if way == "external" and (not colon or _NAME.fullmatch(name)):
        words = ("--external", *(["--since", name] if name else []))
        return Meant(lambda store: scopes.external(store, name or None, place.session), words)
    if way == "since" and _NAME.fullmatch(name):
        return Meant(lambda store: scopes.since(store, name, place.session), ("--since", name))
    if not _NAME.fullmatch(text):
        raise UsageError(f"not a scope: {text[:80]!r}", hint=_HINT)
    if scopes.is_range(text):
        return Meant(lambda store: scopes.of_range(store, text, place.session), (text,))
    if text.startswith("p-"):
        return Meant(
            lambda store: scopes.of_prompt(store, prompt_named(place, store, text)),
            ("--prompt", text),
        )
    if text.startswith("s-"):
        return Meant(
            lambda store: scopes.of_session(store, sessions.whole(store.ledger, text).session_id),
            ("--whole-session", text),
        )
    return Meant(lambda store: scopes.of_command(store, text, place.session), (text,), text)
