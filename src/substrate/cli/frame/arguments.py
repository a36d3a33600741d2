"""From words to a verb: the table of verbs, the global options, one parser per call.

Only the chosen verb's module is imported, and argparse only once a verb is known. The words
before the verb are split by hand, because argparse would need every verb's parser to do it:

    substrate --session s-1 --limit 3 log --json
              └─ global ──┘ └─ log's ┘     └─ global, after the verb
    substrate --no-world -c 'make test'        is the verb `run`, with `command` set
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from substrate.errors import NothingToRunError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

_COMMANDS = "substrate.cli.commands."

#: Every verb and its module, in the order `--help` lists them.
VERBS: Mapping[str, str] = {
    "run": _COMMANDS + "run",
    "log": _COMMANDS + "log",
    "show": _COMMANDS + "show",
    "diff": _COMMANDS + "diff",
    "undo": _COMMANDS + "undo",
    "redo": _COMMANDS + "redo",
    "rollback": _COMMANDS + "rollback",
    "checkpoint": _COMMANDS + "checkpoint",
    "session": _COMMANDS + "session",
    "blame": _COMMANDS + "blame",
    "status": _COMMANDS + "status",
    "stats": _COMMANDS + "stats",
    "compact": _COMMANDS + "compact",
    "recover": _COMMANDS + "recover",
    "rewrite": _COMMANDS + "rewrite",
    "fsck": _COMMANDS + "fsck",
    "doctor": _COMMANDS + "doctor",
    "history": _COMMANDS + "history",
    "world": _COMMANDS + "world",
    "trace": _COMMANDS + "trace",
    "replay": _COMMANDS + "replay",
    "agent": _COMMANDS + "agent",
    "shell": _COMMANDS + "shell",
}

#: Global options that take a value, and the name the value has in the parsed arguments.
_GLOBAL_VALUES = {
    "--session": "session",
    "--agent-id": "agent_id",
    "--workspace": "workspace",
    "-C": "workspace",
}
#: Options without a value, and what each means.
_FLAGS = {"--json": "--json", "--help": "--help", "-h": "--help", "--version": "--version"}
#: Options that mean the verb `run`. Their value never passes through argparse, which would
#: balk at a command that starts with a dash and drop one that is `--`.
_RUN_OPTIONS = {"-c": "command", "-f": "file"}
_RUN_EXAMPLES = {"-c": "'make test'", "-f": "build.sh"}


#: What the pages for people are written for.
_USUAL_COLUMNS = 80


class Command(Protocol):
    """The shape of a module in `cli/commands/`."""

    NAME: str
    #: One line, without a full stop: what the verb does.
    HELP: str
    #: A call worth copying, whole: `substrate undo --dry-run`.
    EXAMPLE: str

    def configure(self, parser: ArgumentParser) -> None:
        """Add the verb's own options and words; the global options are there already."""
        ...

    def run(self, args: Namespace, context: Context) -> int:
        """Do it; return the exit status."""
        ...

    def __hash__(self) -> int: ...


class Invocation(NamedTuple):
    """The words of one call, sorted."""

    #: "" when none was given.
    verb: str
    #: What the verb's parser is to read.
    words: tuple[str, ...]
    #: Global options met before the verb.
    session: str | None = None
    agent_id: str | None = None
    workspace: str | None = None
    json: bool = False
    #: The values of `-c` and `-f`.
    command: str | None = None
    file: str | None = None
    wants_help: bool = False
    wants_version: bool = False


def split(
    argv: Sequence[str], verbs: Mapping[str, str] = VERBS, program: str = "substrate"
) -> Invocation:
    """Find the verb in `argv` and sort the words around it; `UsageError` if there is no such verb.

    Before the verb stand global options and options of the verb itself. Whether one of the
    latter takes a value is not known yet: a word behind it that is no verb is taken for one.
    """
    found: dict[str, str] = {}
    flags: set[str] = set()
    early: list[str] = []
    verb = ""
    at = 0
    while at < len(argv) and not verb:
        word = argv[at]
        name, has_value, value = word.partition("=")
        if name in _GLOBAL_VALUES and (has_value or word == name):
            if not has_value:
                at += 1
                value = _value_of(name, argv, at, program)
            found[_GLOBAL_VALUES[name]] = value
        elif word.startswith("-C") and len(word) > 2:
            found["workspace"] = word[2:]
        elif word in _FLAGS or (word == "help" and not early):
            flags.add(_FLAGS.get(word, "--help"))
        elif word in _RUN_OPTIONS and "run" in verbs:
            verb = "run"
            at += 1
            found[_RUN_OPTIONS[word]] = _value_of(word, argv, at, program)
        elif word == "--replay" and "replay" in verbs:
            verb = "replay"
            at += 1
            early.append(_value_of(word, argv, at, program))
        elif word == "--":
            raise UsageError(
                "no verb before --", hint="to run a command: substrate run -- COMMAND …"
            )
        elif word.startswith("-"):
            early.append(word)
        elif word in verbs:
            verb = word
        elif early and early[-1].startswith("-") and "=" not in early[-1]:
            early.append(word)
        else:
            raise _unknown_verb(argv[at:], verbs, program)
        at += 1
    if not verb and early:
        raise UsageError(f"unknown option: {early[0]}", hint=f"{program} --help lists the options")
    if verb and "--help" in flags:
        early.insert(0, "--help")
    return Invocation(
        verb=verb,
        words=(*early, *argv[at:]),
        json="--json" in flags,
        wants_help="--help" in flags,
        wants_version="--version" in flags,
        **found,
    )


def _value_of(option: str, argv: Sequence[str], at: int, program: str) -> str:
    if at >= len(argv) and option in _RUN_OPTIONS:
        raise NothingToRunError(
            f"{option} needs a value", hint=f"substrate {option} {_RUN_EXAMPLES[option]}"
        )
    if at >= len(argv):
        raise UsageError(f"{option} needs a value", hint=f"{program} --help shows each option")
    return argv[at]


def _unknown_verb(words: Sequence[str], verbs: Mapping[str, str], program: str) -> UsageError:
    from difflib import get_close_matches
    from shlex import join
    from shutil import which

    near = get_close_matches(words[0], verbs, n=1)
    hint = f"did you mean: {program} {near[0]}" if near else f"{program} --help lists the verbs"
    if not near and "run" in verbs and which(words[0]):
        hint = f"to run a program: {program} run -- {join(words)}"
    return UsageError(f"unknown verb: {words[0]}", hint=hint)


def wants_json(argv: Sequence[str]) -> bool:
    """Whether `--json` stands among our own words: for errors met before they are parsed."""
    before = ""
    for word in argv:
        if word == "--":
            return False
        if word == "--json" and before not in _RUN_OPTIONS:
            return True
        before = word
    return False


def load(verb: str, verbs: Mapping[str, str] = VERBS) -> Command:
    """Import the verb's module, and no other."""
    return cast(Command, import_module(verbs[verb]))


def parse(command: Command, invocation: Invocation, program: str = "substrate") -> Namespace:
    """Read the verb's words. `session`, `agent_id`, `workspace` and `json` are always set.

    For `run`, `command` or `file` is set beforehand where `-c` or `-f` stood for the verb.
    """
    from argparse import Namespace

    start = Namespace(
        session=invocation.session,
        agent_id=invocation.agent_id,
        workspace=invocation.workspace,
        json=invocation.json,
    )
    if invocation.command is not None:
        start.command = invocation.command
    if invocation.file is not None:
        start.file = invocation.file
    if invocation.words:
        return parser_of(command, program).parse_args(invocation.words, start)
    return Namespace(**{**_defaults_of(command, program), **vars(start)})


@cache
def _defaults_of(command: Command, program: str) -> dict[str, object]:
    """What is read where nothing is said: the same each time, for `-c` most of all."""
    return vars(parser_of(command, program).parse_args([]))


@cache
def parser_of(command: Command, program: str = "substrate") -> ArgumentParser:
    """The verb's parser; making it takes longer than using it, so the agent makes it ahead."""
    from substrate.cli.parser import HelpFormatter, Parser

    parser = Parser(
        prog=f"{program} {command.NAME}",
        description=command.HELP[:1].upper() + command.HELP[1:] + ".",
        epilog=f"example:\n  {command.EXAMPLE}",
        formatter_class=HelpFormatter,
    )
    command.configure(parser)
    return parser


def overview(
    verbs: Mapping[str, str] = VERBS, usage: str | None = None, columns: int = _USUAL_COLUMNS
) -> str:
    """The text of `--help`: every verb with its line and its example."""
    from substrate.cli.text import folded

    commands = [load(verb, verbs) for verb in verbs]
    width = max(len(command.NAME) for command in commands)
    margin = width + 4 if columns >= _USUAL_COLUMNS else 4
    listing = "\n".join(
        f"  {command.NAME:<{width}}  {command.HELP}\n{'':<{margin}}  {command.EXAMPLE}"
        for command in commands
    )
    text = f"{usage or _USAGE}\nverbs:\n{listing}\n\n{_OPTIONS}"
    return text if columns >= _USUAL_COLUMNS else folded(text, columns)


_USAGE = """\
usage: substrate                       your own shell, each line a recorded command
       substrate -c COMMAND            run a shell command and record what it changes
       substrate -f FILE               run a script the same way
       substrate run -- PROGRAM ARG…   run a program without a shell between
       substrate VERB …                look at what was recorded, or take it back
"""

_OPTIONS = """\
options, before or after the verb:
  --json               one JSON document on stdout, for programs
  --session ID         the session to record in, or to look at
  --agent-id ID        who is acting
  -C, --workspace DIR  act as if started in DIR
  --version, --help
"""
