"""The frame around every verb: arguments, output, errors, exit status."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.cli.frame import arguments as arguments
    from substrate.cli.frame.arguments import VERBS as VERBS
    from substrate.cli.frame.arguments import Invocation as Invocation
    from substrate.cli.frame.arguments import load as load
    from substrate.cli.frame.arguments import overview as overview
    from substrate.cli.frame.arguments import parse as parse
    from substrate.cli.frame.arguments import split as split
    from substrate.cli.frame.arguments import wants_json as wants_json
    from substrate.cli.frame.context import Context as Context
    from substrate.cli.frame.crash_report import write_report as write_report
    from substrate.cli.frame.hunk_choice import APPLY as APPLY
    from substrate.cli.frame.hunk_choice import RESTORE as RESTORE
    from substrate.cli.frame.hunk_choice import choose_hunks as choose_hunks
    from substrate.cli.frame.hunk_choice import hunk_json as hunk_json
    from substrate.cli.frame.hunk_choice import show_hunk as show_hunk
    from substrate.cli.frame.interruption_notice import announce_interrupted as announce_interrupted
    from substrate.cli.frame.interruption_notice import may_be_reading as may_be_reading
    from substrate.cli.frame.nested_call import answer as answer
    from substrate.cli.frame.output import Output as Output
    from substrate.cli.frame.output import Piece as Piece
    from substrate.cli.frame.output import Style as Style
    from substrate.cli.frame.output import Styled as Styled
    from substrate.cli.frame.output import open_output as open_output
    from substrate.cli.frame.reversal_options import add_choice_options as add_choice_options
    from substrate.cli.frame.reversal_options import add_git_options as add_git_options
    from substrate.cli.frame.reversal_options import choice_of as choice_of
    from substrate.cli.frame.reversal_options import deciding_branches as deciding_branches
    from substrate.cli.frame.scope_options import add_scope_options as add_scope_options
    from substrate.cli.frame.scope_options import has_scope_option as has_scope_option
    from substrate.cli.frame.scope_options import scope_finder as scope_finder
    from substrate.cli.frame.scope_options import scope_of_id as scope_of_id
    from substrate.cli.frame.shell_completion import script_for as script_for
    from substrate.cli.frame.terminal_text import clip as clip
    from substrate.cli.frame.terminal_text import plural as plural
    from substrate.cli.frame.terminal_text import safe as safe
    from substrate.cli.frame.terminal_text import width as width

__getattr__ = lazy_names(
    __name__,
    {
        "arguments": "Invocation, VERBS, load, overview, parse, split, wants_json",
        "context": "Context",
        "crash_report": "write_report",
        "hunk_choice": "APPLY, RESTORE, choose_hunks, hunk_json, show_hunk",
        "interruption_notice": "announce_interrupted, may_be_reading",
        "nested_call": "answer",
        "output": "Output, Piece, Style, Styled, open_output",
        "reversal_options": "add_choice_options, add_git_options, choice_of, deciding_branches",
        "scope_options": "add_scope_options, has_scope_option, scope_finder, scope_of_id",
        "shell_completion": "script_for",
        "terminal_text": "clip, plural, safe, width",
    },
)
