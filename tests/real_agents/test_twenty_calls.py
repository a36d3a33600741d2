"""Twenty calls of each real agent: recorded one by one, taken back, and the same as without us."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import until
from tests.real_agents.conftest import CODEX_CONFIG, GEMINI_SETTINGS, Home
from tests.real_agents.scripted_model import SUBAGENT

pytestmark = pytest.mark.agents

NewHome = Callable[[str], Home]
Turns = list[list[dict[str, Any]]]
#: A person's command, which begins the history.
FIRST = "true # by a person"
PAGE = "one\n.\n..\ntwo\n...\n....\nthree\n.....\n......\nfour\n"
#: What differs between two runs of the same script: ids, times, places.
_VARIES = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "UUID"),
    (re.compile(r"\bID: \w+|tasks/\w+|agentId: \w+|to: '\w+'|_(ms|tokens): \d+"), "ID"),
    (re.compile(r"Chunk ID: \w+|Wall time: [\d.]+ \w+|session ID \d+|PGID: \d+|PID: \d+"), "ID"),
    (re.compile(r"\btoolu_\w+"), "ID"),
    (re.compile(r"\(took [^)]*\)|\b\d+(\.\d+)?m?s\b"), "TIME"),
]


def plain(text: str, home: Home) -> str:
    place = str(home.home)
    text = text.replace(re.sub("[^A-Za-z0-9]", "-", place), "HOME").replace(place, "HOME")
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return text


def begin(home: Home) -> None:
    (home.project / "page.txt").write_text(PAGE)
    (home.project / "old.txt").write_text("old\n")


def done_by_agent(home: Home) -> list[dict[str, Any]]:
    found = [one for one in home.entries() if one["kind"] in ("command", "edit")]
    return [one for one in found if one["command"] != FIRST]


def tool_calls(home: Home) -> list[tuple[str, str, tuple[str, ...]]]:
    """Tool, text and files of what the agent did, sorted: parallel calls have no order."""
    found = done_by_agent(home)
    assert all(one["prompt_id"] for one in found), found
    return sorted(
        (one["tool"]["name"], one.get("typed", one["command"]), tuple(sorted(one["changed_files"])))
        for one in found
    )


def replays(home: Home, agent: str, transcript: Path) -> None:
    """A pack of the agent's own transcript replays exactly, from the tree that history has."""
    home.call("ctx", "init")
    made = json.loads(home.call("ctx", "pack", "--from", agent, str(transcript), "--json").stdout)
    done = json.loads(home.call("ctx", "replay", made["uri"], "--json").stdout)
    assert done["fidelity"] == "exact", done
    assert {one["status"] for one in done["outputs"]} == {"matched"}
    # What a replay does not run: the model's words, and calls that failed or were refused.
    assert sum(one["executed"] for one in done["steps"]) >= 17, done["steps"]


def take_back(home: Home, prompt_id: str) -> None:
    """`undo --prompt` keeps what a person typed into the files that the prompt changed."""
    page = home.project / "page.txt"
    page.write_text(page.read_text() + "typed by a person\n")
    home.substrate("undo", "--prompt", prompt_id)
    kept = {**home.before, "page.txt": PAGE + "typed by a person\n"}
    assert home.tree() == kept


# ------------------------------------------------------------------ Claude Code


def bash(command: str, **more: object) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, **more}}


#: Claude Code puts it in the background after its timeout, and waits for it at the end.
SLOW = "echo slow; for i in 1 2 3 4 5; do sleep 1; done; echo slow > slow.txt"


def claude_turns(home: Home) -> Turns:
    at = str(home.project) + "/"
    sub = [
        [bash("echo sub > sub.txt")],
        [{"tool": "Write", "input": {"file_path": at + "subw.txt", "content": "sub\n"}}],
    ]
    return [
        [bash("echo one > one.txt; echo said; echo wrong >&2")],
        [bash(f"echo {n} > p{n}.txt") for n in (1, 2, 3)],
        [{"tool": "Write", "input": {"file_path": at + "w.txt", "content": "w\n"}}],
        [{"tool": "Read", "input": {"file_path": at + "page.txt"}}],
        [{"tool": "Edit", "input": {"file_path": at + "page.txt", "old_string": "two",
                                    "new_string": "TWO"}}],
        [{"tool": "Edit", "input": {"file_path": at + "w.txt", "old_string": "absent",
                                    "new_string": "x"}}],
        [bash("sed -i s/one/ONE/ page.txt")],
        [bash("echo partly > partly.txt; exit 3")],
        [bash("sleep 1; echo bg > bg.txt", run_in_background=True)],
        [bash(SLOW, timeout=1500)],
        [{"tool": "Agent", "subagent": sub, "input": {
            "description": "help", "prompt": f"{SUBAGENT} please", "run_in_background": False,
            "subagent_type": "general-purpose"}}],
        [bash("echo four >> one.txt"),
         {"tool": "Write", "input": {"file_path": at + "w2.txt", "content": "w2\n"}}],
        [bash("mkdir d && mv old.txt d/new.txt")],
        [bash("cd d")],
        [bash("pwd")],
        [bash("touch denied.txt")],
        [bash("sleep 1; cat ../page.txt")],
    ]  # fmt: skip


CLAUDE_CALLS = [
    ("Bash", "cd d", ()),
    ("Bash", "echo 1 > p1.txt", ("p1.txt",)),
    ("Bash", "echo 2 > p2.txt", ("p2.txt",)),
    ("Bash", "echo 3 > p3.txt", ("p3.txt",)),
    ("Bash", "echo four >> one.txt", ("one.txt",)),
    ("Bash", "echo one > one.txt; echo said; echo wrong >&2", ("one.txt",)),
    ("Bash", "echo partly > partly.txt; exit 3", ("partly.txt",)),
    ("Bash", "echo sub > sub.txt", ("sub.txt",)),
    ("Bash", SLOW, ("slow.txt",)),
    ("Bash", "mkdir d && mv old.txt d/new.txt", ("d/new.txt", "old.txt")),
    ("Bash", "pwd", ()),
    ("Bash", "sed -i s/one/ONE/ page.txt", ("page.txt",)),
    ("Bash", "sleep 1; cat ../page.txt", ()),
    ("Bash", "sleep 1; echo bg > bg.txt", ("bg.txt",)),
    ("Edit", "Edit page.txt", ("page.txt",)),
    ("Write", "Write subw.txt", ("subw.txt",)),
    ("Write", "Write w.txt", ("w.txt",)),
    ("Write", "Write w2.txt", ("w2.txt",)),
]
CLAUDE_RULES = {"allow": ["Bash", "Edit", "Write", "Agent"], "deny": ["Bash(touch:*)"]}


def claude_transcript(home: Home) -> list[str]:
    """What the session's file holds of the conversation.

    Notices of finished tasks, and the answers to them, come when the tasks end.
    """
    [path] = (home.home / ".claude" / "projects").glob("*/*.jsonl")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    said = [one["message"]["content"] for one in records if one["type"] in ("user", "assistant")]
    texts = [plain(json.dumps(one), home) for one in said]
    return [one for one in texts if "<task-notification>" not in one and '"done"' not in one]


def test_claude_code(in_home: NewHome) -> None:
    results, transcripts, trees = {}, {}, {}
    for name in ("bare", "with"):  # as long as each other: results hold paths
        home = in_home(name)
        begin(home)
        home.before = home.tree()
        settings = home.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        text = json.dumps({"permissions": CLAUDE_RULES}, indent=2)
        settings.write_text(text)
        if name == "with":
            home.with_daemon()
            home.substrate("connect", "claude-code", "--yes")
        done = home.claude(claude_turns(home))
        assert done.exit == 0, done.said
        results[name] = [plain(one, home) for one in done.results()]
        transcripts[name] = claude_transcript(home)
        trees[name] = home.tree()
    assert results["with"] == results["bare"]
    assert transcripts["with"] == transcripts["bare"]
    assert trees["with"] == trees["bare"]
    assert "denied.txt" not in home.tree()
    until(lambda: len(tool_calls(home)) == len(CLAUDE_CALLS), "the records")
    assert tool_calls(home) == sorted(CLAUDE_CALLS)
    entries = done_by_agent(home)
    [prompt_id] = {one["prompt_id"] for one in entries}
    assert json.loads(home.substrate("show", prompt_id, "--json").stdout)["text"] == "please work"
    calls = [one["tool"]["call_id"] for one in entries]
    assert len(set(calls)) == len(calls)
    assert {one["model"] for one in entries if one["kind"] == "command"} - {None}
    of_subagent = {tuple(one["changed_files"]) for one in entries if "subagent" in one}
    assert of_subagent == {("sub.txt",), ("subw.txt",)}
    [transcript] = (home.home / ".claude" / "projects").glob("*/*.jsonl")
    replays(home, "claude-code", transcript)
    take_back(home, prompt_id)
    home.substrate("disconnect")
    assert settings.read_text() == text


# ------------------------------------------------------------------ Codex, Gemini CLI: observed


def run_both(
    in_home: NewHome, agent: str, prepare: Callable[[Home], None], run: Callable[[Home], Any]
) -> Home:
    """Run the script without and with Substrate; what the agent got and did must be equal."""
    results, trees = {}, {}
    for name in ("bare", "with"):
        home = in_home(name)
        begin(home)
        home.before = home.tree()
        prepare(home)
        if name == "with":
            home.with_daemon()
            trust = ("--trust-hooks",) if agent == "codex" else ()
            home.substrate("connect", agent, "--yes", *trust)
            # Without a history, the first calls would end before the baseline is taken, and their
            # files would belong to the baseline.
            home.substrate("-c", FIRST)
        # A hook returns after 50 ms and its report is recorded later. A model that answers at once
        # would make the next call before that: then a file may go to another call.
        home.env["SCRIPTED_PAUSE_S"] = "1.5"
        done = run(home)
        assert done.exit == 0, done.said
        results[name] = [plain(one, home) for one in done.results()]
        trees[name] = home.tree()
    assert results["with"] == results["bare"]
    assert trees["with"] == trees["bare"]
    assert "denied.txt" not in home.tree()
    return home


def check_record(
    home: Home, calls: list[tuple[str, str, tuple[str, ...]]], agent: str, transcripts: str
) -> None:
    until(lambda: len(tool_calls(home)) >= len(calls), "the records")
    assert tool_calls(home) == sorted(calls)
    entries = done_by_agent(home)
    [prompt_id] = {one["prompt_id"] for one in entries}
    assert json.loads(home.substrate("show", prompt_id, "--json").stdout)["text"] == "please work"
    [transcript] = home.home.glob(transcripts)
    replays(home, agent, transcript)
    take_back(home, prompt_id)


SHELL = [
    ("echo one > one.txt; echo said", ("one.txt",)),
    ("sed -i s/one/ONE/ page.txt", ("page.txt",)),
    ("echo partly > partly.txt; exit 3", ("partly.txt",)),
    ("mkdir d && mv old.txt d/new.txt", ("d/new.txt", "old.txt")),
    ("cat page.txt", ()),
    ("echo four >> one.txt", ("one.txt",)),
    ("sleep 2; echo slow > slow.txt", ("slow.txt",)),
    ("pwd", ()),
    ("rm one.txt", ("one.txt",)),
    ("echo last > last.txt", ("last.txt",)),
]


def patch(*lines: str) -> dict[str, Any]:
    return {"tool": "apply_patch", "input": "\n".join(("*** Begin Patch", *lines, "*** End Patch"))}


def prepare_codex(home: Home) -> None:
    directory = home.home / ".codex"
    (directory / "rules").mkdir(parents=True)
    (directory / "config.toml").write_text(CODEX_CONFIG)
    rule = 'prefix_rule(pattern=["touch"], decision="forbidden")\n'
    (directory / "rules" / "default.rules").write_text(rule)


def codex_turns() -> Turns:
    def shell(command: str) -> dict[str, Any]:
        return {"tool": "exec_command", "input": {"cmd": command, "yield_time_ms": 9000}}

    first, *rest = [[shell(command)] for command, _ in SHELL]
    return [
        first,
        [patch("*** Add File: w.txt", "+w")],
        [patch("*** Update File: page.txt", "@@", "-two", "+TWO")],
        [patch("*** Update File: w.txt", "@@", "-absent", "+x")],
        [patch("*** Add File: w2.txt", "+w2"), patch("*** Add File: w3.txt", "+w3")],
        *rest,
        [shell("touch denied.txt")],
        [patch("*** Delete File: w2.txt")],
        [shell("ls nothing-there")],
        [patch("*** Add File: end/e.txt", "+e")],
    ]


def test_codex(in_home: NewHome) -> None:
    home = run_both(in_home, "codex", prepare_codex, lambda home: home.codex(codex_turns()))
    edits = ["w.txt", "page.txt", "w2.txt", "w3.txt", "w2.txt", "end/e.txt"]
    check_record(
        home,
        [("Bash", command, files) for command, files in SHELL]
        + [("Bash", "ls nothing-there", ())]
        + [("apply_patch", f"apply_patch {name}", (name,)) for name in edits],
        "codex",
        ".codex/sessions/*/*/*/rollout-*.jsonl",
    )
    home.substrate("disconnect")
    assert not (home.home / ".codex" / "hooks.json").exists()
    assert (home.home / ".codex" / "config.toml").read_text().startswith(CODEX_CONFIG)


def prepare_gemini(home: Home) -> None:
    directory = home.home / ".gemini"
    (directory / "policies").mkdir(parents=True)
    (directory / "settings.json").write_text(GEMINI_SETTINGS)
    rule = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "touch"\n'
    (directory / "policies" / "mine.toml").write_text(rule + 'decision = "deny"\npriority = 900\n')


def gemini_turns(home: Home) -> Turns:
    def shell(command: str) -> dict[str, Any]:
        return {"tool": "run_shell_command", "input": {"command": command}}

    def write(name: str, content: str) -> dict[str, Any]:
        where = {"file_path": str(home.project / name), "content": content}
        return {"tool": "write_file", "input": where}

    def replace(name: str, old: str, new: str) -> dict[str, Any]:
        where = {"file_path": str(home.project / name), "instruction": "change it"}
        return {"tool": "replace", "input": {**where, "old_string": old, "new_string": new}}

    first, *rest = [[shell(command)] for command, _ in SHELL]
    return [
        first,
        [write("w.txt", "w\n")],
        [replace("page.txt", "two", "TWO")],
        [write("w2.txt", "w2\n"), write("w3.txt", "w3\n")],
        *rest,
        [shell("touch denied.txt")],
        [replace("w.txt", "w", "ww")],
        [shell("ls nothing-there")],
        [write("end/e.txt", "e\n")],
    ]


def test_gemini(in_home: NewHome) -> None:
    home = run_both(
        in_home, "gemini", prepare_gemini,
        lambda home: home.gemini(gemini_turns(home), "--approval-mode", "yolo"),
    )  # fmt: skip
    written = ["w.txt", "w2.txt", "w3.txt", "end/e.txt"]
    check_record(
        home,
        [("run_shell_command", command, files) for command, files in SHELL]
        + [("run_shell_command", "ls nothing-there", ())]
        + [("write_file", f"write_file {name}", (name,)) for name in written]
        + [("replace", f"replace {name}", (name,)) for name in ("page.txt", "w.txt")],
        "gemini",
        ".gemini/tmp/*/chats/session-*.jsonl",
    )
    home.substrate("disconnect")
    assert (home.home / ".gemini" / "settings.json").read_text() == GEMINI_SETTINGS
