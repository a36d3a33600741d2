"""A word that a verb does not use is a usage error, in every verb and sub-verb of both programs.

`world apply W x.txt` once applied everything. The walk goes over the parsers themselves: a new verb
is walked, too, and a new sub-verb without a row in `SUB_VERBS` fails.
"""

from __future__ import annotations

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from substrate.cli import ctx
from substrate.cli.frame.arguments import VERBS, load, parser_of
from tests.contract.program import Program

SURPLUS = "surplus-word"
#: Verbs that take any number of words, and use all of them.
TAKE_ALL = {
    *("run", "diff", "recover restore", "ctx replay", "ctx export", "connect", "disconnect"),
    *("world diff", "world apply", "world discard", "world compare", "try"),
}
#: The words that each sub-verb takes behind its name, where one parser serves several of them.
SUB_VERBS: Mapping[str, Mapping[str, int]] = {
    "daemon": {"serve": 0, "status": 0, "stop": 0},
    "checkpoint": {"create": 0, "list": 0},
    "history": {"reset": 0, "adopt": 0},
    "projects": {"list": 0, "prune": 0},
    "completion": {"bash": 0, "zsh": 0, "fish": 0, "ids": 0},
    "config": {"get": 1, "set": 2, "list": 0},
    "session": {"start": 1, "close": 1, "list": 0, "current": 0},
    "world": {"list": 0, "diff": 1, "apply": 1, "discard": 1, "compare": 2, "pick": 1},
}


def walk(program: str, verbs: Mapping[str, str]) -> Iterator[list[str]]:
    """Every verb and sub-verb, with as many words as it takes."""
    for verb in verbs:
        command = load(verb, verbs)
        own = [command.NAME]
        yield from _of_parser(program, own, parser_of(command, program))


def _of_parser(program: str, own: list[str], parser: ArgumentParser) -> Iterator[list[str]]:
    words = [one for one in parser._actions if not one.option_strings]
    nested = next((one for one in words if isinstance(one, _SubParsersAction)), None)
    if nested is not None:
        for name, below in nested.choices.items():
            yield from _of_parser(program, [*own, name], below)
        return
    first = words[0] if words else None
    if first is not None and first.choices is not None:
        assert set(first.choices) == set(SUB_VERBS[own[0]]), f"{own[0]}: a row for each sub-verb"
        for name, count in SUB_VERBS[own[0]].items():
            yield [*own, name, *["x"] * count]
        return
    needed = [
        one.option_strings[0] for one in parser._actions if one.option_strings and one.required
    ]
    options = [f"{option}=1" for option in needed]
    yield [*own, *options, *["x"] * sum(map(_most, words))]


def _most(word: Action) -> int:
    return word.nargs if isinstance(word.nargs, int) else 1


def _name(program: str, words: list[str]) -> str:
    named = [word for word in words if word != "x"]
    return " ".join(named if program == "substrate" else [program, *named])


CALLS = [
    (program, words)
    for program, verbs in (("substrate", VERBS), ("ctx", ctx.VERBS))
    for words in walk(program, verbs)
    if _name(program, words) not in TAKE_ALL
]


@pytest.mark.parametrize(
    ("program", "words"), CALLS, ids=lambda one: one if isinstance(one, str) else " ".join(one)
)
def test_a_surplus_word_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    program: str, words: list[str],
) -> None:  # fmt: skip
    from substrate.cli.main import substrate

    monkeypatch.chdir(tmp_path)
    start = substrate if program == "substrate" else ctx.ctx
    status = start([*words, SURPLUS])
    said = capfd.readouterr()
    # A coding agent would take a status of 2 of its hook as an order to stop.
    assert status == (0 if words[0] == "hook" else 2), said.err
    assert SURPLUS in said.err and said.out == ""
    assert list(tmp_path.iterdir()) == [], "nothing was done"


@pytest.mark.needs("world-overlay")
def test_a_part_of_a_world_is_not_taken_for_all_of_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    program = Program(project)
    program("--hold", "-c", "echo 1 > x.txt; echo 2 > y.txt").went_well()
    [world] = program.json("world", "list")["worlds"]
    world_id = world["world_id"]
    for action in ("apply", "discard"):
        program("world", action, world_id, SURPLUS).is_clear(4, f"no change in {SURPLUS}")
    assert not (project / "x.txt").exists()
    assert "y.txt" not in program("world", "diff", world_id, "x.txt").went_well().text
    program("world", "apply", world_id, "x.txt").went_well()
    assert (project / "x.txt").read_text() == "1\n" and not (project / "y.txt").exists()
