"""The options of `diff` and `undo` that choose more than one command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.errors import UsageError
from substrate.recorder import prompt_named, resolve, scopes, sessions

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from substrate.recorder import HistoryStore, Place, Scope

#: `--prompt` without an id.
_NEWEST = "newest"
_WAYS = ("--prompt", "--whole-session", "--since")


def add_scope_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--prompt", nargs="?", const=_NEWEST, metavar="P",
        help="what one prompt of a coding agent led to (default: the newest prompt)",
    )  # fmt: skip
    parser.add_argument(
        "--whole-session", metavar="S", help="all commands of session S (its full id)"
    )
    parser.add_argument(
        "--since", metavar="X",
        help="what came after a command, a checkpoint or a time (2026-01-31T08:00, 90m, 2h, 3d),"
        " or with a prompt and after it",
    )  # fmt: skip
    parser.add_argument("--agent", metavar="A", help="only what this agent did, e.g. claude-code")


def has_scope_option(args: Namespace) -> bool:
    """Whether an option chooses the commands, so that no id is needed."""
    named = (args.prompt, args.whole_session, args.since, args.agent)
    return any(one is not None for one in named) or getattr(args, "external", False)


def scope_finder(args: Namespace, place: Place) -> Callable[[HistoryStore], Scope] | None:
    """What finds the scope that is meant; None if one command is."""
    is_range = args.id is not None and scopes.is_range(args.id)
    if not has_scope_option(args) and not is_range:
        return None
    given = [
        way for way, value in zip(_WAYS, (args.prompt, args.whole_session, args.since), strict=True)
        if value is not None
    ]  # fmt: skip
    if len(given) + (args.id is not None) > 1:
        words = " and ".join([*([args.id] if args.id is not None else []), *given])
        raise UsageError(
            f"{words} do not go together: name one command, prompt, session, range or start,"
            " not several",
            hint="substrate diff --since 2h; substrate undo --prompt P; substrate undo A..B",
        )
    if getattr(args, "external", False):
        return _external(args, place)

    def find(store: HistoryStore) -> Scope:
        found = _chosen(args, place, store)
        return found if args.agent is None else scopes.by_agent(store, found, args.agent)

    return find


def _external(args: Namespace, place: Place) -> Callable[[HistoryStore], Scope]:
    if args.agent is not None or args.prompt is not None or args.whole_session is not None:
        raise UsageError(
            "--external is about edits that no agent, prompt or session made",
            hint="it goes with --since X or A..B",
        )
    return lambda store: scopes.external(store, args.since or args.id, place.session)


def _chosen(args: Namespace, place: Place, store: HistoryStore) -> Scope:
    if args.prompt is not None:
        named = None if args.prompt == _NEWEST else args.prompt
        return scopes.of_prompt(store, prompt_named(place, store, named))
    if args.whole_session is not None:
        return _session(store, args.whole_session)
    if args.since is not None:
        return scopes.since(store, args.since, place.session)
    if args.id is None:
        return scopes.everything(store, place.session)
    if scopes.is_range(args.id):
        return scopes.of_range(store, args.id, place.session)
    raise UsageError(
        f"--agent does not go with one command: {args.id}",
        hint="it goes with --since X or A..B, or alone",
    )


def scope_of_id(store: HistoryStore, text: str, session: str | None) -> Scope | None:
    """The scope that a prompt's or a session's id names; None for any other id."""
    if not text.startswith(("p-", "s-")):
        return None
    target = resolve(store, text, session)
    if target.prompt is not None:
        return scopes.of_prompt(store, target.prompt)
    return _session(store, text) if target.session is not None else None


def _session(store: HistoryStore, text: str) -> Scope:
    return scopes.of_session(store, sessions.whole(store.ledger, text).session_id)
