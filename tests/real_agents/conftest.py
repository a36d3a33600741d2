"""The real command-line agents in a home of the test's own, with a scripted model on loopback.

`scripts/test --agents` installs them from npm and sets `SUBSTRATE_TEST_AGENTS`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real_agents import scripted_model

_MODEL = Path(scripted_model.__file__)
_URL = f"http://127.0.0.1:{scripted_model.PORT}"
#: Writes what each hook got, in place of the script that passes it to Substrate.
_DUMP = """\
#!/bin/sh
{ cat; echo; } >> @log@
"""


class Ran:
    """One run of an agent."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.exit: int = answer["exit"]
        self.said: str = answer["stdout"] + answer["stderr"]
        self.requests: list[dict[str, Any]] = answer["requests"]

    def results(self) -> list[str]:
        """What the model got for its calls, in order, from the last request."""
        asked = [one["body"] for one in self.requests if one["body"].get("tools")][-1]
        found: list[str] = []
        for message in asked.get("messages", []):
            if isinstance(message["content"], list):
                parts = [one for one in message["content"] if one["type"] == "tool_result"]
                found += [json.dumps(one["content"]) for one in parts]
        for item in asked.get("input", []):
            if str(item.get("type")).endswith("call_output"):
                found.append(json.dumps(item["output"]))
        for content in asked.get("contents", []):
            parts = [
                one["functionResponse"] for one in content["parts"] if "functionResponse" in one
            ]
            found += [json.dumps(one["response"]) for one in parts]
        return found


class Home:
    """A home directory, a project in it, and the agents that run there."""

    def __init__(self, home: Path, agents: Path) -> None:
        self.home = home
        self.agents = agents
        self.project = home / "project"
        self.project.mkdir()
        (self.project / "a.txt").write_text("hello\n")
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        self.hooks = home / "hooks.jsonl"
        #: The project before an agent worked there, once a test asked for it.
        self.before: dict[str, str] = {}
        beside = os.path.dirname(sys.executable)
        self.env = {
            "HOME": str(home), "PATH": f"{agents / 'bin'}:{beside}:/usr/local/bin:/usr/bin:/bin",
            "TERM": "dumb", "LANG": "C.UTF-8", "SHELL": "/bin/bash", "SUBSTRATE_DAEMON": "off",
            "SUBSTRATE_HOME": str(home / ".substrate"),
        }  # fmt: skip

    def substrate(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call("substrate", *words)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(words, cwd=self.project, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def with_daemon(self) -> None:
        """Let hooks and commands go through a daemon of this home's own, as they do for users."""
        self.env["SUBSTRATE_DAEMON"] = "on"
        self.env["SUBSTRATE_SOCKET"] = str(self.home / "run" / "s.sock")
        (self.home / "run").mkdir(mode=0o700)

    def entries(self) -> list[dict[str, Any]]:
        """The entries of history, oldest first."""
        found: list[dict[str, Any]] = json.loads(self.substrate("log", "--json").stdout)["commands"]
        return found[::-1]

    def tree(self) -> dict[str, str]:
        """The project's files, without those of git and Substrate."""
        names = subprocess.run(
            ["git", "ls-files", "-co", "-z"], cwd=self.project, capture_output=True, check=True
        ).stdout.decode()
        files = [self.project / one for one in names.split("\0") if one]
        return {
            str(one.relative_to(self.project)): one.read_text()
            for one in files
            if ".substrate" not in str(one.relative_to(self.project))
        }

    def commands(self) -> list[str]:
        """What history recorded as commands, oldest first."""
        found = json.loads(self.substrate("log", "--json").stdout)["commands"]
        return [one["command"] for one in reversed(found) if one["kind"] == "command"]

    def watch_hooks(self) -> None:
        """From now on the hook script writes what it gets to a file."""
        script = self.home / ".substrate" / "bin" / "substrate-hook"
        assert script.exists()
        script.write_text(_DUMP.replace("@log@", str(self.hooks)))

    def hook_events(self) -> list[tuple[str, str]]:
        """The event and the tool of each hook, in order."""
        if not self.hooks.exists():
            return []
        lines = [line for line in self.hooks.read_text().splitlines() if line.strip()]
        found = [json.loads(line) for line in lines]
        return [(one["hook_event_name"], one.get("tool_name", "")) for one in found]

    def run(self, turns: list[list[dict[str, Any]]], *program: str, **env: str) -> Ran:
        """Run an agent with a model that makes these calls."""
        scratch = Path(tempfile.mkdtemp(dir=self.home))  # several agents may run at once
        (scratch / "turns.json").write_text(json.dumps(turns))
        out = scratch / "out.json"
        namespace = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "-rn"]
        model = [sys.executable, str(_MODEL), str(scratch / "turns.json"), str(out)]
        subprocess.run(
            [*namespace, *model, *program], cwd=self.project, env={**self.env, **env}, check=True
        )
        return Ran(json.loads(out.read_text()))

    def claude(self, turns: list[list[dict[str, Any]]], *words: str) -> Ran:
        return self.run(
            turns, "claude", "-p", "please work", "--output-format", "json", *words,
            ANTHROPIC_BASE_URL=_URL, ANTHROPIC_API_KEY="sk-ant-scripted", DISABLE_AUTOUPDATER="1",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            CLAUDE_CODE_TMPDIR=str(self.home),
        )  # fmt: skip

    def codex(self, turns: list[list[dict[str, Any]]], *words: str) -> Ran:
        return self.run(
            turns, "codex", "exec", "--json", "--sandbox", "workspace-write", *words, "please work",
            SCRIPTED_KEY="scripted",
        )  # fmt: skip

    def gemini(self, turns: list[list[dict[str, Any]]], *words: str) -> Ran:
        return self.run(
            turns, "gemini", "-p", "please work", "-m", "gemini-2.5-pro", "--skip-trust", *words,
            GEMINI_API_KEY="scripted", GOOGLE_GEMINI_BASE_URL=_URL,
        )  # fmt: skip


CODEX_CONFIG = f"""\
# my settings
model = "gpt-5.5"  # one that gets the tool apply_patch
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]   # on loopback
name = "scripted"
base_url = "{_URL}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""

GEMINI_SETTINGS = """\
{
    "security": {"auth": {"selectedType": "gemini-api-key"}}, // by key
    "privacy": {"usageStatisticsEnabled": false},
    "general": {"enableAutoUpdate": false}
}
"""


@pytest.fixture
def in_home(tmp_path: Path) -> Iterator[Callable[[str], Home]]:
    """A new home, by name; its daemon ends with the test."""
    agents = _agents()
    made: list[Home] = []

    def make(name: str = "home") -> Home:
        home = tmp_path / name
        home.mkdir()
        made.append(Home(home, Path(agents)))
        return made[-1]

    yield make
    for one in made:
        if "SUBSTRATE_SOCKET" in one.env:
            one.substrate("daemon", "stop")


def _agents() -> str:
    found = _AGENTS_DIRECTORY
    if found is None:
        pytest.fail("scripts/test --agents installs the agents and names their directory")
    return found


#: Read at import: the fixture that cleans the environment removes our variables.
_AGENTS_DIRECTORY = os.environ.get("SUBSTRATE_TEST_AGENTS")
