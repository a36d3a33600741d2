"""Completion scripts for bash, zsh and fish, made from the parsers of the verbs.

A script knows the verbs, their sub-verbs and options. Ids come from the history of the current
directory: the script asks `substrate completion ids`.
"""

from __future__ import annotations

from argparse import ArgumentParser, _SubParsersAction
from typing import NamedTuple

from substrate.cli.frame.arguments import FOR_PROGRAMS, VERBS, load, parser_of

#: What an id can begin with; a word that begins so is completed from history.
ID_PREFIXES = ("c-", "s-", "p-", "spn_", "wld_", "@")


class Words(NamedTuple):
    """What can follow a verb."""

    verb: str
    help: str
    #: Sub-verbs, or the values of its first argument.
    actions: tuple[str, ...]
    options: tuple[str, ...]


def words() -> list[Words]:
    """Every verb that people type."""
    return [_words(verb) for verb in VERBS if verb not in FOR_PROGRAMS]


def _words(verb: str) -> Words:
    command = load(verb)
    parser = parser_of(command)
    positional = [one for one in parser._actions if not one.option_strings]
    actions = tuple(map(str, positional[0].choices or ())) if positional else ()
    options = {name for one in _parsers(parser) for name in _options(one)}
    return Words(verb, command.HELP, actions, tuple(sorted(options)))


def _parsers(parser: ArgumentParser) -> list[ArgumentParser]:
    """The verb's own, and those of its sub-verbs."""
    found = [parser]
    for one in parser._actions:
        if isinstance(one, _SubParsersAction):
            found += one.choices.values()
    return found


def _options(parser: ArgumentParser) -> list[str]:
    return [name for one in parser._actions for name in one.option_strings if name[:2] == "--"]


def script_for(shell: str) -> str:
    """The script; the user's shell reads it at its start."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return made(words())


_BASH = """\
# Completion of substrate for bash. In ~/.bashrc: eval "$(substrate completion bash)"
_substrate() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} verb= actions= options= at
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${{COMP_WORDS[at]}} in
            -C|--workspace|--session|--agent-id) ((at++)) ;;
            -*) ;;
            *) verb=${{COMP_WORDS[at]}}; break ;;
        esac
    done
    case $verb in
{cases}
        '') actions='{verbs}' options='--json --session --agent-id --workspace --version --help' ;;
    esac
    case $word in
        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
        {prefixes})
            COMPREPLY=($(compgen -W "$(substrate completion ids 2>/dev/null)" -- "$word")) ;;
        *) COMPREPLY=($(compgen -W "$actions" -- "$word")) ;;
    esac
}}
complete -o default -F _substrate substrate
"""


def _bash(found: list[Words]) -> str:
    return _BASH.format(
        cases=_cases(found),
        verbs=" ".join(one.verb for one in found),
        prefixes="|".join(f"{one}*" for one in ID_PREFIXES),
    )


def _cases(found: list[Words]) -> str:
    rows = ((one.verb, " ".join(one.actions), " ".join(one.options)) for one in found)
    return "\n".join(f"        {verb}) actions='{a}' options='{o}' ;;" for verb, a, o in rows)


_ZSH = """\
#compdef substrate
# Completion of substrate for zsh. In ~/.zshrc, after compinit: eval "$(substrate completion zsh)"
_substrate() {{
    local word=$words[CURRENT] verb= actions= options= at
    for ((at = 2; at < CURRENT; at++)); do
        case $words[at] in
            -C|--workspace|--session|--agent-id) ((at++)) ;;
            -*) ;;
            *) verb=$words[at]; break ;;
        esac
    done
    case $verb in
{cases}
        '') actions='{verbs}' options='--json --session --agent-id --workspace --version --help' ;;
    esac
    case $word in
        -*) compadd -- ${{=options}} ;;
        {prefixes}) compadd -- ${{(f)"$(substrate completion ids 2>/dev/null)"}} ;;
        *) compadd -- ${{=actions}}; _files ;;
    esac
}}
compdef _substrate substrate
"""


def _zsh(found: list[Words]) -> str:
    return _ZSH.format(
        cases=_cases(found),
        verbs=" ".join(one.verb for one in found),
        prefixes="|".join(f"{one}*" for one in ID_PREFIXES),
    )


def _fish(found: list[Words]) -> str:
    lines = [
        "# Completion of substrate for fish:",
        "#   substrate completion fish > ~/.config/fish/completions/substrate.fish",
    ]
    for one in found:
        offer = f"-f -a {one.verb} -d {_quoted(one.help)}"
        lines.append(f"complete -c substrate -n __fish_use_subcommand {offer}")
        seen = f"'__fish_seen_subcommand_from {one.verb}'"
        if one.actions:
            lines.append(f"complete -c substrate -n {seen} -a '{' '.join(one.actions)}'")
        lines += [f"complete -c substrate -n {seen} -l {name[2:]}" for name in one.options]
    ids = "'(substrate completion ids 2>/dev/null)'"
    lines.append(f"complete -c substrate -n 'not __fish_use_subcommand' -a {ids}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
