"""An argument parser that knows the global options and raises instead of exiting.

Separate from `arguments`, so that argparse is imported only when arguments are really parsed.
"""

from __future__ import annotations

import os
import sys
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

from substrate.cli.frame.output import reporting_unwritable
from substrate.cli.frame.terminal_text import folded
from substrate.errors import UsageError
from substrate.system import environment

_USUAL_COLUMNS = 80


class HelpFormatter(RawDescriptionHelpFormatter):
    """A help formatter as wide as the terminal.

    argparse creates one for every added argument, to check it. Its own would import `shutil`, and
    with it the compression modules, to get the width.
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
    """The parser of a verb. argparse makes nested parsers (`checkpoint list`) of this class, too.

    The global options have no default here: a value given before the verb must survive a nested
    parser that does not see the option.
    """

    # argparse's own keyword arguments: passed through unchanged.
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        # A verb may have its own help text for a global option.
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
        """The verb's arguments may surround options: `world apply --dry-run ID`.

        argparse alone fills all positionals from the first run of arguments and accepts no more.
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
        """Report an invalid choice with our own message."""
        if action.choices is None or value in action.choices:
            return
        from substrate.cli.frame.usage_errors import did_you_mean

        there_are = ", ".join(str(choice) for choice in action.choices)
        what = f"{action.option_strings[-1]}: " if action.option_strings else ""
        raise UsageError(
            f"{what}unknown word: {value}",
            hint=did_you_mean(value, action.choices)
            + f"one of {there_are}; {self.prog} --help shows how it is used",
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse ignores a write error: a help page that is not there would count as shown."""
        with reporting_unwritable():
            (file or sys.stdout).write(message)

    def error(self, message: str) -> NoReturn:
        from substrate.cli.frame.usage_errors import in_our_words, option_hint

        hint = option_hint(message, {name: self._shown(name) for name in self._names()})
        raise UsageError(
            in_our_words(message), hint=f"{hint}{self.prog} --help shows how it is used"
        )

    def _names(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def _shown(self, name: str) -> str:
        """An option as it is typed, with its value."""
        action = self._option_string_actions[name]
        takes_value = action.nargs != 0
        return f"{name} {action.metavar or action.dest.upper()}" if takes_value else name
