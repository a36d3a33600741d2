"""A typist and coding agents edit the same file: blame names the right author of every line.

The agents edit with their own tools, which report what they did, or by commands in worlds; the
typist just writes, also while a command runs. A scan may record the file at any moment, and reports
come late.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from substrate.history.maintenance import fsck
from substrate.history.record import agent_sessions, record_entry
from substrate.recorder import queries
from substrate.recorder.agent_events import take_report
from substrate.recorder.command.command_request import CommandRequest
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.session_context import Place
from substrate.system import environment
from tests.hook_reports import Claude, Codex, Gemini, Report, encoded
from tests.unit.history.workbench import Bench
from tests.unit.recorder.overlay_world import ScriptWorld

NAME = "notes.txt"
TYPIST = "typist"


class Page:
    """The file, with the author of each line; every line is unique."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.path, self.chance, self.count = root / NAME, chance, 0
        self.lines: list[tuple[str, str]] = []

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line, _ in self.lines)

    def change(self, author: str) -> tuple[str, str]:
        """Change a line or add one; returns the old and the new text, with the lines' ends."""
        self.count += 1
        line = f"{author} wrote line {self.count}"
        at = self.chance.randrange(len(self.lines)) if self.lines else 0
        deed = self.chance.choice(["replace", "after", "after"]) if self.lines else "first"
        old = "" if not self.lines else f"{self.lines[at][0]}\n"
        if deed == "replace":
            self.lines[at] = (line, author)
            new = f"{line}\n"
        else:
            self.lines.insert(at + (deed == "after"), (line, author))
            new = f"{old}{line}\n"
        self.path.write_text(self.text)
        return old, new

    def change_two(self, author: str, *, also: bool) -> tuple[str, str]:
        """`author` changes a line, and the typist another one far from it, from the same text.

        Returns the author's text and the typist's; the lines have both changes.
        """
        base, places = self.text, range(len(self.lines))
        at = self.chance.choice(places)
        far = [one for one in places if abs(one - at) >= 3] if also else []
        texts, deeds = [], [(at, author), *((self.chance.choice(far), TYPIST) for _ in far[:1])]
        for place, who in sorted(deeds, reverse=True):  # the later line first: places stay right
            self.count += 1
            line = (f"{who} wrote line {self.count}", who)
            is_new = self.chance.random() < 0.6
            self.lines[place + is_new : place + 1] = [line]
            alone = base.splitlines()
            alone[place + is_new : place + 1] = [line[0]]
            texts.append(("".join(f"{one}\n" for one in alone), who))
        of = {who: text for text, who in texts}
        return of[author], of.get(TYPIST, base)


class Round:
    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.chance = bench, random.Random(seed)
        self.page = Page(bench.root, self.chance)
        self.agents: dict[str, Claude | Codex | Gemini] = {
            "claude": Claude(bench.root, "claude-1"),
            "claude two": Claude(bench.root, "claude-2"),
            "codex": Codex(bench.root, "codex-1"),
            "gemini": Gemini(bench.root, "gemini-1"),
            "shell": Claude(bench.root, "claude-3"),
        }

    def tell(self, agent: str, report: Report) -> None:
        take_report(environment.current(), self.agents[agent].agent, encoded(report))

    def disturb(self, often: float = 0.4) -> None:
        """Others act at any moment: the typist writes, or a scan records the file."""
        if self.chance.random() < often:
            self.page.change(TYPIST)
        if self.chance.random() < often / 2:
            self.scan()

    def scan(self) -> None:
        with self.bench.store() as store, store.writing("a scan"):
            record_entry.record_outside(store)

    def claude_edits(self, name: str, number: int) -> None:
        claude = self.agents[name]
        assert isinstance(claude, Claude)
        call = f"toolu_{number}"
        if self.chance.random() < 0.8:  # a hook may be missing
            self.tell(name, claude.edit_call(self.page.path, call, "", ""))
        self.disturb()
        original = self.page.text
        old, new = self.page.change(name)
        self.disturb()
        if self.chance.random() < 0.7:
            self.tell(name, claude.edit(self.page.path, call, old, new, original))
        else:
            written = original.replace(old, new, 1) if old else new
            self.tell(name, claude.write(self.page.path, call, written, original))

    def codex_edits(self, number: int) -> None:
        """Codex reports no original file: what others do until its report is only told apart if
        no scan comes between."""
        codex = self.agents["codex"]
        assert isinstance(codex, Codex)
        call = f"call_{number}"
        self.disturb()
        self.tell("codex", codex.patch("PreToolUse", call, _patch("", "x\n")))
        old, new = self.page.change("codex")
        if self.chance.random() < 0.4:
            self.page.change(TYPIST)
        self.tell("codex", codex.patch("PostToolUse", call, _patch(old, new)))

    def gemini_edits(self) -> None:
        gemini = self.agents["gemini"]
        assert isinstance(gemini, Gemini)
        self.disturb()
        original = self.page.text
        old, new = self.page.change("gemini")
        self.disturb()
        self.tell("gemini", gemini.replace(self.page.path, old, new, original))

    def command_runs(self) -> None:
        """Claude Code's Bash, in a world; the typist may write before the change arrives.

        The daemon has seen what was typed until the world began. Without it the world's base would
        not be known, and lines near each other would be a conflict.
        """
        self.scan()
        written, typed = self.page.change_two("shell", also=self.chance.random() < 0.7)
        source = self.bench.root.parent / "new.txt"
        source.write_text(written)
        variables = dict(environment.current().variables)
        variables["CLAUDE_CODE_SESSION_ID"] = self.agents["shell"].session
        place = Place.at(self.bench.root, environment.parse(variables), None, "claude-code")
        script = f"cat '{source}' > {NAME}"

        def meanwhile() -> None:
            self.page.path.write_text(typed)

        world = ScriptWorld(self.bench.root, script, meanwhile)
        done = record_command(place, world, CommandRequest(self.bench.root, shell=script))
        assert done.not_arrived is None
        assert self.page.path.read_text() == self.page.text

    def act(self, number: int, *others: str) -> None:
        deed = self.chance.choice(["claude", "claude two", "codex", "gemini", "typist", *others])
        if deed == "shell":
            self.command_runs()
        elif deed == "typist":
            self.disturb(0.9)
        elif deed == "codex":
            self.codex_edits(number)
        elif deed == "gemini":
            self.gemini_edits()
        else:
            self.claude_edits(deed, number)

    def authors(self) -> list[tuple[str, str]]:
        with self.bench.store() as store:
            known = {
                agent_sessions.find(
                    store.ledger, agent_sessions.AgentSession(one.agent, one.session)
                ): name
                for name, one in self.agents.items()
            }
            with store.rehearsing("blame"):
                record_entry.record_outside(store)
                found = queries.blame(store, self.bench.place().rel_path(NAME), None)
        out = []
        for line in found:
            assert line.author is not None
            outside = line.author.kind in ("external", "baseline")
            out.append((line.text.decode(), TYPIST if outside else known[line.author.session_id]))
        return out


def _patch(old: str, new: str) -> str:
    lines = [f"-{line}" for line in old.splitlines()] + [f"+{line}" for line in new.splitlines()]
    body = "\n".join(["*** Begin Patch", f"*** Update File: {NAME}", "@@", *lines])
    return f"{body}\n*** End Patch"


def rounds(bench: Bench, seed: int, count: int, *others: str) -> None:
    round_ = Round(bench, seed)
    for _ in range(4 + 4 * len(others)):
        round_.page.change(TYPIST)
    with bench.store() as store, store.writing("the baseline"):
        record_entry.record_outside(store)
    for number in range(count):
        round_.act(number, *others)
        if number % 5 == 4:
            assert round_.authors() == round_.page.lines, f"round {number} of seed {seed}"
    with bench.store() as store:
        assert fsck.check(store) == []


@pytest.mark.parametrize("seed", range(6))
def test_every_line_has_its_author(tmp_path: Path, seed: int) -> None:
    rounds(Bench(tmp_path / "project"), seed, 50)


_COMMANDS = ("shell",) * 3


@pytest.mark.needs("overlay", "root", "mounts")
def test_also_with_commands_in_worlds(tmp_path: Path) -> None:
    rounds(Bench(tmp_path / "project"), 1, 20, *_COMMANDS)


@pytest.mark.long
@pytest.mark.needs("overlay", "root", "mounts")
@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_rounds_with_commands_in_worlds(tmp_path: Path, seed: int) -> None:
    rounds(Bench(tmp_path / "project"), seed, 50, *_COMMANDS)
