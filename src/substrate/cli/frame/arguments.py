"""From arguments to a verb: the table of verbs, the global options, one parser per call.

Only the chosen verb's module is imported, and argparse only once the verb is known. The arguments
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

    from substrate.cli.frame.context import Context

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
    "pause": _COMMANDS + "pause",
    "resume": _COMMANDS + "resume",
    "compact": _COMMANDS + "compact",
    "recover": _COMMANDS + "recover",
    "forget": _COMMANDS + "forget",
    "rewrite": _COMMANDS + "rewrite",
    "fsck": _COMMANDS + "fsck",
    "doctor": _COMMANDS + "doctor",
    "history": _COMMANDS + "history",
    "projects": _COMMANDS + "projects",
    "config": _COMMANDS + "config",
    "completion": _COMMANDS + "completion",
    "world": _COMMANDS + "world",
    "try": _COMMANDS + "try_",
    "trace": _COMMANDS + "trace",
    "replay": _COMMANDS + "replay",
    "connect": _COMMANDS + "connect",
    "disconnect": _COMMANDS + "disconnect",
    "uninstall": _COMMANDS + "uninstall",
    "daemon": _COMMANDS + "daemon",
    "mcp": _COMMANDS + "mcp",
    "ui": _COMMANDS + "ui",
    "export-html": _COMMANDS + "export_html",
    "shell": _COMMANDS + "shell",
    "hook": _COMMANDS + "hook",
}

#: Verbs that programs use; `--help` does not list them.
FOR_PROGRAMS = frozenset({"hook"})

#: Former names of verbs, which stay valid.
_FORMER = {"agent": "daemon"}

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
#: reject a command that starts with a dash and drop the command `--`.
_RUN_OPTIONS = {"-c": "command", "-f": "file"}
#: What each of them needs, and an example of it.
_RUN_EXAMPLES = {
    "-c": ("the command to run, in quotes", "'make test'"),
    "-f": ("the script to run", "build.sh"),
}


#: The width that help pages are written for.
_USUAL_COLUMNS = 80


class Command(Protocol):
    """The shape of a module in `cli/commands/`."""

    NAME: str
    #: One line, without a full stop: what the verb does.
    HELP: str
    #: A call worth copying, whole: `substrate undo --dry-run`.
    EXAMPLE: str

    def configure(self, parser: ArgumentParser) -> None:
        """Add the verb's own options and arguments; the global options are already added."""
        ...

    def run(self, args: Namespace, context: Context) -> int:
        """Run the verb; return the exit status."""
        ...

    def __hash__(self) -> int: ...


class Invocation(NamedTuple):
    """The arguments of one call, grouped."""

    #: "" when none was given.
    verb: str
    #: The arguments for the verb's parser.
    words: tuple[str, ...]
    #: Global options found before the verb.
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
    """Find the verb in `argv` and group the arguments; `UsageError` if there is no such verb.

    Global options and the verb's own options may precede the verb. Whether one of the verb's own
    options takes a value is not known yet: the next argument counts as its value unless it is a
    verb.
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
        elif _FORMER.get(word, word) in verbs:
            verb = _FORMER.get(word, word)
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
        what, example = _RUN_EXAMPLES[option]
        raise NothingToRunError(
            f"{option} needs {what}", hint=f"for example: substrate {option} {example}"
        )
    if at >= len(argv):
        raise UsageError(f"{option} needs a value", hint=f"{program} --help shows each option")
    return argv[at]


def _unknown_verb(words: Sequence[str], verbs: Mapping[str, str], program: str) -> UsageError:
    from difflib import get_close_matches
    from shlex import join, quote
    from shutil import which

    near = get_close_matches(words[0], verbs, n=1)
    first, *more = words[0].split(None, 1) or [""]
    hint = f"{program} --help lists the verbs"
    if more and first in verbs:
        hint = f"without the quotes: {program} {' '.join(words)}"
    elif near:
        hint = f"did you mean: {program} {near[0]}"
    elif more and "run" in verbs:
        hint = f"to run a shell command: {program} -c {quote(' '.join(words))}"
    elif "run" in verbs and words[0] and which(words[0]):
        hint = f"to run a program: {program} run -- {join(words)}"
    return UsageError(f"unknown verb: {words[0] or repr(words[0])}", hint=hint)


def wants_json(argv: Sequence[str]) -> bool:
    """Whether `--json` is among our own arguments: for errors before they are parsed."""
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
    """Parse the verb's arguments. `session`, `agent_id`, `workspace` and `json` are always set.

    For `run`, `command` or `file` is already set if `-c` or `-f` replaced the verb.
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
        return _checked(parser_of(command, program).parse_args(invocation.words, start))
    _checked(start)
    return Namespace(**{**_defaults_of(command, program), **vars(start)})


def _checked(args: Namespace) -> Namespace:
    """Refuse an empty value: an unset variable must not mean "any session" or "this directory"."""
    for option, name in _GLOBAL_VALUES.items():
        if getattr(args, name) == "":
            raise UsageError(
                f"{option} needs a value, but got an empty one", hint="or leave it out"
            )
    return args


@cache
def _defaults_of(command: Command, program: str) -> dict[str, object]:
    """The defaults of a verb without arguments, cached: mostly for `-c`."""
    return vars(parser_of(command, program).parse_args([]))


@cache
def parser_of(command: Command, program: str = "substrate") -> ArgumentParser:
    """The verb's parser; making it takes longer than using it, so the daemon makes it early."""
    from substrate.cli.frame.parser import HelpFormatter, Parser

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
    from substrate.cli.frame.terminal_text import folded

    commands = [load(verb, verbs) for verb in verbs if verb not in FOR_PROGRAMS]
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
