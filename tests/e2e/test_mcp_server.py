"""The MCP server, asked by the SDK's own client over stdio, as a coding agent asks it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import until

pytestmark = pytest.mark.needs("linux", "world-overlay")

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

INSTALLED = Path(sys.executable).parent / "substrate"
Asking = Callable[..., Awaitable[Any]]
OWN, OTHER = "s-mine", "s-other"


class Project:
    """A project with a home of its own, and a server that an agent's session starts in it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.root.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "SUBSTRATE_HOME": str(base / "home"),
            "SUBSTRATE_SOCKET": str(base / "s.sock"),
        }

    def substrate(self, *words: str, session: str = OWN) -> str:
        argv = [sys.executable, "-m", "substrate", f"--session={session}", *words]
        return subprocess.run(
            argv, cwd=self.root, env=self.env, check=True, capture_output=True, text=True
        ).stdout

    def ask(
        self,
        script: Callable[[Asking], Awaitable[None]],
        session: str | None = OWN,
        **variables: str,
    ) -> None:
        """Run `script` with a function that calls a tool and returns its answer."""
        env = self.env | variables
        env |= {} if session is None else {"SUBSTRATE_SESSION_ID": session}
        server = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "substrate", "mcp"], cwd=self.root, env=env
        )

        async def main() -> None:
            async with mcp.Client(server) as client:

                async def call(tool: str, **given: object) -> Any:
                    answer = await client.call_tool(tool, given)
                    if answer.is_error:
                        return answer.content[0].text
                    return answer.structured_content

                call.client = client  # type: ignore[attr-defined]
                await script(call)

        asyncio.run(main())

    def stop(self) -> None:
        argv = [sys.executable, "-m", "substrate", "daemon", "stop"]
        subprocess.run(argv, env=self.env, cwd=self.root, capture_output=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    made.substrate("-c", "echo one > mine; echo keep > kept")
    made.substrate("-c", "echo two > theirs", session=OTHER)
    try:
        yield made
    finally:
        made.stop()


def test_an_agent_reads_history(project: Project) -> None:
    async def script(call: Asking) -> None:
        entries = (await call("log"))["entries"]
        assert [one["command"] for one in entries[:2]] == [
            "echo two > theirs",
            "echo one > mine; echo keep > kept",
        ]
        assert entries[0]["session"] == OTHER
        assert (await call("log", session=OWN))["entries"] == entries[1:2]
        assert (await call("show", id=entries[0]["id"]))["entry"] == entries[0]
        diff = await call("diff", id=entries[1]["id"])
        assert {one["path"]: one["change"] for one in diff["files"]} == {
            "kept": "added",
            "mine": "added",
        }
        assert "+one\n" in diff["patch"]
        (line,) = (await call("blame", file="theirs"))["lines"]
        assert (line["text"], line["id"]) == ("two", entries[0]["id"])
        assert (await call("status"))["your_session"] == OWN

    project.ask(script)


def test_it_takes_back_its_own_mistake_and_reverses_that(project: Project) -> None:
    project.substrate("-c", "rm kept; echo worse > mine")

    async def script(call: Asking) -> None:
        planned = await call("undo", dry_run=True)
        assert planned["dry_run"] is True
        assert (project.root / "mine").read_text() == "worse\n"
        undone = await call("undo")
        assert sorted(undone["restored"]) == ["kept", "mine"]
        assert (project.root / "mine").read_text() == "one\n"
        assert (project.root / "kept").read_text() == "keep\n"
        assert undone["reverse_with"] == f'undo(id="{undone["id"]}")'
        await call("undo", id=undone["id"])
        assert not (project.root / "kept").exists()

    project.ask(script)


def test_it_is_refused_the_work_of_others(project: Project) -> None:
    async def script(call: Asking) -> None:
        theirs = (await call("log", session=OTHER))["entries"][0]["id"]
        said = await call("undo", id=theirs)
        assert "belongs to session s-other, not to your session s-mine" in said
        assert "ask the user" in said
        assert (project.root / "theirs").read_text() == "two\n"

    project.ask(script)


def test_the_user_may_allow_more(project: Project, tmp_path: Path) -> None:
    (tmp_path / "home" / "config.toml").write_text('[agents]\nmay_take_back = "any"\n')

    async def script(call: Asking) -> None:
        theirs = (await call("log", session=OTHER))["entries"][0]["id"]
        assert (await call("undo", id=theirs))["deleted"] == ["theirs"]

    project.ask(script)
    assert not (project.root / "theirs").exists()


def test_without_a_session_only_reading_works(project: Project) -> None:
    async def script(call: Asking) -> None:
        assert (await call("status"))["your_session"] is None
        assert (await call("log"))["entries"]
        for tool, given in (
            ("undo", {}), ("redo", {}), ("checkpoint", {}), ("rollback_preview", {"to": "1"}),
            ("run_in_world", {"command": "true"}), ("world_apply", {"world_id": "wld_1"}),
            ("world_discard", {"world_id": "wld_1"}),
            ("recover_restore", {"snapshot": "c-1", "paths": ["a"]}),
        ):  # fmt: skip
            assert "not known which session" in await call(tool, **given), tool

    project.ask(script, session=None)


class Announced:
    """A session of Claude Code that its hook announced, by the installed program and a shell."""

    def __init__(self, project: Project, session: str) -> None:
        self.variables = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": session}
        report = {
            "hook_event_name": "SessionStart", "session_id": session, "source": "startup",
            "cwd": str(project.root), "transcript_path": "",
        }  # fmt: skip
        subprocess.run(
            ["sh", "-c", f"{INSTALLED} hook claude-code; exit 0"], cwd=project.root,
            env=project.env, input=json.dumps(report).encode(), check=True,
        )  # fmt: skip
        # A slow machine may record it after the hook has returned.
        argv = [str(INSTALLED), "session", "current", "--session", session]
        quiet = {"cwd": project.root, "env": project.env, "capture_output": True}
        until(lambda: subprocess.run(argv, check=False, **quiet).returncode == 0, session)  # type: ignore[call-overload]


@pytest.mark.parametrize("by", ["variable", "process"])
def test_a_session_that_the_agents_hook_announced_is_its_own(project: Project, by: str) -> None:
    """This test is the agent: it starts the hook, the command and the server."""
    claude = Announced(project, "0b54d1c4-9b1f-4a6e-8a51-3f1b7d1c2e90")
    subprocess.run(
        [sys.executable, "-m", "substrate", "-c", "rm kept"], cwd=project.root,
        env=project.env | claude.variables, check=True,
    )  # fmt: skip

    async def script(call: Asking) -> None:
        own = (await call("status"))["your_session"]
        (entry,) = (await call("log", session=own))["entries"]
        assert (entry["command"], entry["agent"]) == ("rm kept", "claude-code")
        assert (await call("undo", id=entry["id"]))["restored"] == ["kept"]
        Announced(project, "the one after /clear")
        assert (await call("status"))["your_session"] not in (own, None)
        assert "not to your session" in await call("undo", id=entry["id"])

    if by == "variable":  # as in a container: the hook's process is not that of the server
        for note in (Path(project.env["SUBSTRATE_HOME"]) / "hooks" / "processes").iterdir():
            note.unlink()
    project.ask(script, session=None, **(claude.variables if by == "variable" else {}))
    assert (project.root / "kept").read_text() == "keep\n"


def test_a_command_in_a_world_is_looked_at_and_then_decided_on(project: Project) -> None:
    async def script(call: Asking) -> None:
        ran = await call("run_in_world", command="echo new > mine; echo said; exit 3")
        assert (ran["exit"], ran["stdout"], ran["outcome"]) == (3, "said\n", "held")
        assert (project.root / "mine").read_text() == "one\n"
        assert "+new\n" in (await call("world_diff", world_id=ran["world_id"]))["patch"]
        applied = await call("world_apply", world_id=ran["world_id"])
        assert applied["restored"] == ["mine"]
        assert (project.root / "mine").read_text() == "new\n"

        other = await call("run_in_world", command="rm mine")
        await call("world_discard", world_id=other["world_id"])
        assert (project.root / "mine").exists()
        assert (await call("status"))["held_worlds"] == []

        direct = await call("run_in_world", command="rm mine", hold=False)
        assert direct["world_id"] is None
        assert not (project.root / "mine").exists()
        await call("undo", id=direct["id"])
        assert (project.root / "mine").read_text() == "new\n"

    project.ask(script)


def test_a_world_of_another_session_is_refused(project: Project) -> None:
    project.substrate("-c", "rm kept", "--hold", session=OTHER)

    async def script(call: Asking) -> None:
        (world,) = (await call("status"))["held_worlds"]
        for tool in ("world_apply", "world_discard"):
            assert "belongs to session s-other" in await call(tool, world_id=world)
        assert (await call("status"))["held_worlds"] == [world]

    project.ask(script)


def test_kept_copies_are_found_and_brought_back(project: Project) -> None:
    project.substrate("-c", "echo 'precious words' > mine")
    project.substrate("undo")

    async def script(call: Asking) -> None:
        found = (await call("recover_search", pattern="precious"))["matches"][0]
        assert (found["path"], found["text"]) == ("mine", "precious words")
        restored = await call("recover_restore", snapshot=found["snapshots"][0], paths=["mine"])
        assert restored["restored"] == ["mine"]
        assert (project.root / "mine").read_text() == "precious words\n"

    project.ask(script)


def test_long_answers_come_in_parts_that_are_whole_together(project: Project) -> None:
    lines = "".join(f"{number} {'x' * 60}\n" for number in range(1000))
    (project.root / "long").write_text(lines)
    project.substrate("-c", "true")
    project.substrate("-c", "cp long longer; rm long")

    async def script(call: Asking) -> None:
        parts, cursor = [], None
        while True:
            answer = await call("diff", cursor=cursor)
            assert len(json.dumps(answer)) < 12_000
            parts.append(answer["patch"])
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        assert len(parts) > 3
        assert "".join(parts).count("\n+") >= 1000
        numbers, cursor = [], None
        while True:
            answer = await call("blame", file="longer", cursor=cursor)
            numbers += [one["line"] for one in answer["lines"]]
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        assert numbers == list(range(1, 1001))

    project.ask(script)


def test_the_first_answers_of_the_last_start_come_before_the_sdk_is_there(
    project: Project, tmp_path: Path
) -> None:
    """They are the same as the SDK's, each comes once, and what has changed is corrected."""
    kept = tmp_path / "home" / "mcp-answers.json"
    listed = []

    async def script(call: Asking) -> None:
        listed.append((await call.client.list_tools()).model_dump_json())  # type: ignore[attr-defined]
        assert (await call("status"))["your_session"] == OWN

    project.ask(script)
    answers = kept.read_text()
    project.ask(script)
    assert (listed[0], answers) == (listed[1], kept.read_text())
    kept.write_text(answers.replace("List recorded commands", "Kept from a start before"))
    project.ask(script)
    assert "Kept from a start before" in listed[2]
    assert kept.read_text() == answers
    kept.write_text(
        answers.replace("List recorded", "Other").replace('"versions": [', '"versions": ["0", ')
    )
    project.ask(script)
    assert listed[3] == listed[0]


def test_words_of_a_model_are_never_options(project: Project) -> None:
    async def script(call: Asking) -> None:
        for tool, given in (
            ("show", {"id": "--help"}), ("diff", {"id": "--stat"}), ("undo", {"id": "--dry-run"}),
            ("blame", {"file": "--help"}), ("recover_search", {"pattern": "--in"}),
            ("world_diff", {"world_id": "--stat"}), ("log", {"path": "--json"}),
        ):  # fmt: skip
            said = await call(tool, **given)
            assert "usage:" not in str(said), (tool, said)
            assert "unknown option" not in str(said), (tool, said)
        assert (project.root / "mine").read_text() == "one\n"

    project.ask(script)


def test_a_nul_character_is_refused(project: Project) -> None:
    async def script(call: Asking) -> None:
        for tool, given in (("show", {"id": "a\0b"}), ("blame", {"file": "mine\0"})):
            said = await call(tool, **given)
            assert "NUL" in str(said), (tool, said)

    project.ask(script)


def test_tools_say_what_they_do_and_have_exact_schemas(project: Project) -> None:
    async def script(call: Asking) -> None:
        tools = {one.name: one for one in (await call.client.list_tools()).tools}  # type: ignore[attr-defined]
        reading = {"log", "show", "diff", "blame", "status", "rollback_preview", "recover_search",
                   "world_diff", "context", "impact"}  # fmt: skip
        changing = {"undo", "redo", "checkpoint", "recover_restore", "world_apply",
                    "world_discard", "run_in_world"}  # fmt: skip
        assert set(tools) == reading | changing
        for name, tool in tools.items():
            assert tool.description
            assert tool.output_schema["type"] == "object"
            assert tool.annotations.read_only_hint is (name in reading), name
        assert tools["checkpoint"].annotations.destructive_hint is False
        assert tools["undo"].annotations.destructive_hint is True

    project.ask(script)
