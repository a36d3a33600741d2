"""Every verb keeps the frame's promises: a line of help, an example that works, light to load."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from substrate.cli.frame.arguments import FOR_PROGRAMS, VERBS, load, overview, parse, split


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_the_shape_of_a_command(verb: str) -> None:
    command = load(verb)
    assert verb == command.NAME
    assert command.HELP
    assert "\n" not in command.HELP
    assert not command.HELP.endswith(".")


@pytest.mark.parametrize("verb", VERBS)
def test_each_example_is_a_call_that_parses(verb: str) -> None:
    program, *words = shlex.split(load(verb).EXAMPLE)
    assert program == "substrate"
    invocation = split(words)
    assert invocation.verb == verb
    parse(load(verb), invocation)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_takes_the_global_options(verb: str) -> None:
    words = shlex.split(load(verb).EXAMPLE)[1:]
    args = parse(load(verb), split(["--session", "s-1", "-C", "x", "--json", *words]))
    assert (args.session, args.workspace, args.json) == ("s-1", "x", True)


def test_help_lists_every_verb() -> None:
    text = overview()
    for verb in VERBS:
        assert (load(verb).EXAMPLE in text) == (verb not in FOR_PROGRAMS)


def test_help_fits_a_narrow_terminal() -> None:
    """But for the examples, which are to be copied."""
    examples = {load(verb).EXAMPLE for verb in VERBS}
    text = overview(columns=40)
    lines = [line for line in text.splitlines() if line.strip() not in examples]
    assert max(map(len, lines)) <= 40
    assert len(lines) == len(text.splitlines()) - len(VERBS.keys() - FOR_PROGRAMS)


def test_the_installed_program_answers() -> None:
    """By `python -m`; scripts/test and scripts/tour meet the console script itself."""
    done = subprocess.run(
        [sys.executable, "-m", "substrate", "--help"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: substrate")
