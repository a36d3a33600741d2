"""An argument parser that knows the global options and raises instead of exiting.

Kept apart from `arguments`, so that argparse is imported only when words are really parsed.
"""

from __future__ import annotations

import os
from argparse import (
    PARSER,
    REMAINDER,
    SUPPRESS,
    Action,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Sequence
from typing import Any, NoReturn

from substrate.cli.text import folded
from substrate.errors import UsageError
from substrate.system import environment

_USUAL_COLUMNS = 80


class HelpFormatter(RawDescriptionHelpFormatter):
    """As wide as the terminal is.

    argparse makes one for every argument that is added, to check it, and would load `shutil` and
    all that compresses to ask for the width.
    """

    def __init__(self, prog: str, **options: Any) -> None:
        options.setdefault("width", _columns() - 2)
        super().__init__(prog, **options)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return folded(super()._fill_text(text, width, indent), width + 2)


def _columns() -> int:
    said = environment.current().columns
    if said:
        return said
    try:
        return os.get_terminal_size(1).columns or _USUAL_COLUMNS
    except OSError:
        return _USUAL_COLUMNS


class Parser(ArgumentParser):
    """Nested parsers (`checkpoint list`) are of this class too: argparse makes them so.

    The global options have no default here: what stood before the verb must survive a
    nested parser that did not meet the option.
    """

    # argparse's own keyword arguments: handed through unseen.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        # A verb may word a global option's help for itself.
        kwargs.setdefault("conflict_handler", "resolve")
        super().__init__(*args, **kwargs)
        self._mixes = False
        shared = self.add_argument_group("global options")
        shared.add_argument(
            "--json", action="store_true", default=SUPPRESS, help="one JSON document on stdout"
        )
        shared.add_argument(
            "--session", metavar="ID", default=SUPPRESS, help="the session to act in or look at"
        )
        shared.add_argument("--agent-id", metavar="ID", default=SUPPRESS, help="who is acting")
        shared.add_argument(
            "-C", "--workspace", metavar="DIR", default=SUPPRESS, help="act as if started in DIR"
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Words of the verb may stand around options: `world apply --dry-run ID`.

        argparse alone gives the first run of words to all positionals and is then out of them.
        """
        start = Namespace(**vars(namespace)) if namespace is not None else None
        read, left_over = super().parse_known_args(args, namespace)
        if self._mixes or not left_over or not self._takes_several_words():
            return read, left_over
        self._mixes = True
        try:
            return self.parse_known_intermixed_args(args, start)
        finally:
            self._mixes = False

    def _takes_several_words(self) -> bool:
        words = self._get_positional_actions()
        return len(words) > 1 and not any(word.nargs in (PARSER, REMAINDER) for word in words)

    def _check_value(self, action: Action, value: Any) -> None:
        """A word that is none of those there are, said in our words."""
        if action.choices is None or value in action.choices:
            return
        there_are = ", ".join(str(choice) for choice in action.choices)
        what = f"{action.option_strings[-1]}: " if action.option_strings else ""
        raise UsageError(
            f"{what}unknown word: {value}",
            hint=f"one of {there_are}; {self.prog} --help shows how it is used",
        )

    def error(self, message: str) -> NoReturn:
        from substrate.cli.wrong_words import in_our_words

        hint = f"{self.prog} --help shows how it is used"
        raise UsageError(in_our_words(message), hint=hint)
