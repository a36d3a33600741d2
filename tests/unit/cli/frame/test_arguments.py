"""Which verb is meant, and what it gets to read."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace

import pytest

from substrate.cli.frame.arguments import VERBS, load, overview, parse, split, wants_json
from substrate.cli.frame.parser import Parser
from substrate.errors import UsageError
from tests.unit.cli.conftest import SAMPLE_VERBS


def read(*argv: str) -> Namespace:
    invocation = split(argv, SAMPLE_VERBS)
    return parse(load(invocation.verb, SAMPLE_VERBS), invocation)


@pytest.mark.parametrize(
    "argv",
    [
        ("--json", "--session", "s-1", "--agent-id=bot", "-C", "x", "parrot", "--times", "3"),
        ("parrot", "--json", "--session=s-1", "--agent-id", "bot", "-Cx", "--times=3"),
        ("--times", "3", "--agent-id", "bot", "parrot", "--json", "--session", "s-1", "-C", "x"),
        ("--times=3", "-Cx", "--session", "s-1", "parrot", "--agent-id=bot", "--json"),
    ],
)
def test_options_go_before_or_after_the_verb(argv: tuple[str, ...]) -> None:
    args = read(*argv)
    assert (args.json, args.session, args.agent_id, args.workspace, args.times) == (
        True,
        "s-1",
        "bot",
        "x",
        3,
    )


def test_global_options_are_always_set() -> None:
    args = read("parrot")
    assert (args.json, args.session, args.agent_id, args.workspace) == (False, None, None, None)


@pytest.mark.parametrize(
    "argv",
    [
        ("--session", "s-1", "parrot", "softly", "--json"),
        ("parrot", "--json", "softly", "--session", "s-1"),
        ("--json", "parrot", "--session", "s-1", "softly"),
    ],
)
def test_a_nested_verb_keeps_what_came_before_it(argv: tuple[str, ...]) -> None:
    args = read(*argv)
    assert (args.mood, args.json, args.session) == ("softly", True, "s-1")


@pytest.mark.parametrize(
    "text", ["make test", "", "-x", "--json", "--", "a=b", "=", "-", "log", "l1\nl2", "\udcff"]
)
def test_the_text_behind_c_is_taken_as_it_is(text: str) -> None:
    args = read("-c", text)
    assert args.command == text
    assert args.json is False


def test_options_around_c_reach_run() -> None:
    args = read("--no-world", "--timeout", "5", "-c", "ls", "--session", "s-1")
    assert (args.command, args.no_world, args.timeout, args.session) == ("ls", True, 5.0, "s-1")
    assert read("-f", "-odd-name").file == "-odd-name"


@pytest.mark.parametrize(
    "argv", [["ls", "--json"], ["-x"], ["--"], ["a", "--", "-b", "--"], [""], ["--session", "x"]]
)
def test_what_follows_the_dashes_is_the_programs_own(argv: list[str]) -> None:
    args = read("run", "--no-world", "--", *argv)
    assert args.argv == argv
    assert (args.json, args.session) == (False, None)


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (("parot",), "unknown verb: parot", "did you mean: substrate parrot"),
        (("xyzzy",), "unknown verb: xyzzy", "substrate --help lists the verbs"),
        (("sh", "-c", "a b"), "unknown verb: sh", "substrate run -- sh -c 'a b'"),
        (("--bogus",), "unknown option: --bogus", "substrate --help lists the options"),
        (("-c",), "-c needs the command to run", "substrate -c 'make test'"),
        (("-f",), "-f needs the script to run", "substrate -f build.sh"),
        (("echo hi",), "unknown verb: echo hi", "substrate -c 'echo hi'"),
        (("parrot --twice",), "unknown verb: parrot", "without the quotes: substrate parrot --tw"),
        (("",), "unknown verb: ''", "substrate --help lists the verbs"),
        (("parrot", "--tims=3"), "unknown option: --tims=3", "did you mean --times? "),
        (("parrot", "--times"), "--times needs a value", "write it as --times TIMES; "),
        (("--session",), "--session needs a value", "substrate --help shows each option"),
        (("--", "ls"), "no verb before --", "to run a command: substrate run -- COMMAND …"),
        (("parrot", "--time=3"), "unknown option: --time=3", "substrate parrot --help"),
        (
            ("parrot", "--times", "x"),
            "--times takes a whole number, not 'x'",
            "substrate parrot --help",
        ),
        (("parrot", "gently"), "unknown word: gently", "substrate parrot --help"),
        (("parrot", "loudly"), "missing: word", "substrate parrot loudly --help"),
    ],
)
def test_wrong_words_get_a_hint(argv: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_help_is_a_word_too() -> None:
    assert split(["help"]).wants_help
    assert split(["help", "log"]) == split(["log", "--help"])._replace(wants_help=True)
    assert split(["log", "help"]).words == ("help",)


@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        (("log", "--json"), True),
        (("--json", "-c", "x"), True),
        (("-c", "x", "--json"), True),
        (("-c", "--json"), False),
        (("run", "--", "ls", "--json"), False),
        ((), False),
    ],
)
def test_json_is_recognised_before_parsing(argv: tuple[str, ...], answer: bool) -> None:
    assert wants_json(argv) is answer


def test_help_shows_every_verb_with_an_example() -> None:
    text = overview(SAMPLE_VERBS)
    for verb in SAMPLE_VERBS:
        command = load(verb, SAMPLE_VERBS)
        assert command.HELP in text
        assert command.EXAMPLE in text


def test_only_the_chosen_verb_is_imported() -> None:
    script = f"""
import sys
from substrate.cli.frame.arguments import load, parse, split
assert "argparse" not in sys.modules, "argparse is imported before a verb is known"
load("parrot", {SAMPLE_VERBS!r})
loaded = [m for m in sys.modules if m.startswith("tests.unit.cli.sample_verbs.")]
assert loaded == ["tests.unit.cli.sample_verbs.parrot"], loaded
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_table_names_each_verb_after_its_module() -> None:
    # `try` is a word of Python's own.
    names = {verb: "try_" if verb == "try" else verb.replace("-", "_") for verb in VERBS}
    assert {v: f"substrate.cli.commands.{name}" for v, name in names.items()} == dict(VERBS)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("world apply --dry-run wld_1", {"action": "apply", "id": "wld_1", "dry_run": True}),
        ("world diff wld_1 --stat a b", {"id": "wld_1", "paths": ["a", "b"], "stat": True}),
        ("session --json start fix", {"action": "start", "id": "fix", "json": True}),
        ("session start --json fix", {"action": "start", "id": "fix", "json": True}),
        ("diff @ --stat a", {"id": "@", "paths": ["a"], "stat": True}),
        ("diff --stat -- @ -x", {"id": "@", "paths": ["-x"], "stat": True}),
        ("recover restore c-1 --dry-run a", {"ref": "c-1", "paths": ["a"], "dry_run": True}),
    ],
)
def test_options_go_among_the_words_too(line: str, wanted: dict[str, object]) -> None:
    invocation = split(line.split())
    args = vars(parse(load(invocation.verb), invocation))
    assert {name: args[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("world apply wld_1 --bogus", "unknown option: --bogus"),
        ("session start a --json b", "unexpected argument: b"),
        ("world", "missing: list|diff|apply|discard|compare|pick"),
        ("recover restore", "missing: REF"),
    ],
)
def test_words_that_are_wrong_or_missing_are_named_alone(line: str, wrong: str) -> None:
    invocation = split(line.split())
    with pytest.raises(UsageError) as caught:
        parse(load(invocation.verb), invocation)
    assert str(caught.value).endswith(wrong)


#: A wrong use of each kind that argparse tells apart, and what is said of it.
_WRONG = [
    ([], "missing: WORD"),
    (["w", "--count", "x"], "--count takes a whole number, not 'x'"),
    (["w", "--part", "x"], "--part takes a number, not 'x'"),
    (["w", "--count"], "--count needs a value"),
    (["w", "--many"], "--many needs a value"),
    (["w", "--flag=x"], "--flag takes no value, but was given 'x'"),
    (["w", "--flag", "--other"], "--other cannot be combined with --flag"),
    (["w", "--kind", "x"], "--kind: unknown word: x"),
    (["w", "--bogus", "y"], "unknown option: --bogus"),
    (["w", "v", "u"], "unexpected argument: v u"),
]


@pytest.mark.parametrize(("words", "said"), _WRONG)
def test_errors_of_argparse_are_reported_in_our_words(words: list[str], said: str) -> None:
    parser = Parser(prog="substrate test")
    parser.add_argument("word", metavar="WORD")
    parser.add_argument("--count", type=int)
    parser.add_argument("--part", type=float)
    parser.add_argument("--many", nargs="+")
    parser.add_argument("--kind", choices=("a", "b"))
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--flag", action="store_true")
    either.add_argument("--other", action="store_true")
    with pytest.raises(UsageError) as caught:
        parser.parse_args(words)
    assert caught.value.message == said
    assert "substrate test --help" in caught.value.hint


def test_one_of_several_may_be_needed() -> None:
    parser = Parser(prog="substrate test")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--one", action="store_true")
    either.add_argument("--two", action="store_true")
    with pytest.raises(UsageError, match="^missing: one of --one --two$"):
        parser.parse_args([])


def test_a_verbs_former_name_stays_valid() -> None:
    assert split(["--json", "agent", "status"]) == split(["--json", "daemon", "status"])
    assert "agent" not in VERBS
