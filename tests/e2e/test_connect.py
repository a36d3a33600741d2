"""`connect` and `disconnect` with settings files of many shapes; also as an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from substrate.coding_agents.agent import Surroundings
from substrate.coding_agents.connect import carry_out, plan
from substrate.coding_agents.known_agents import agent_named
from substrate.errors import ChangedMeanwhileError

pytestmark = pytest.mark.needs("linux")

SETTINGS = """\
{
    // mine
    "model": "opus",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}, /* and this */
}
"""


class User:
    """A user with a home directory and a project."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir()
        (self.project / ".git").mkdir()
        self.settings = home / ".claude" / "settings.json"
        self.bin = home / ".substrate" / "bin"

    def write(self, text: str = SETTINGS, path: Path | None = None) -> Path:
        path = path or self.settings
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def __call__(self, *words: str, exits: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "substrate", *words], cwd=self.project, env=os.environ | env,
            capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == exits, done.stdout + done.stderr
        return done

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self(*words, "--json").stdout)
        return answer

    def status(self, agent: str = "claude-code") -> dict[str, Any]:
        found: dict[str, Any] = self.json("connect", "--status", agent)["agents"][0]
        return found

    def tree(self) -> dict[str, bytes]:
        """Every file of the home but Substrate's own."""
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and ".substrate" not in path.parts
        }


@pytest.fixture
def user(private_environment: Path) -> User:
    return User(private_environment)


def test_without_a_terminal_it_prints_the_plan_and_refuses(user: User) -> None:
    user.write()
    before = user.tree()
    done = user("connect", exits=5)
    assert str(user.settings) in done.stdout and "CLAUDE_CODE_SHELL_PREFIX" in done.stdout
    assert "--yes" in done.stderr
    assert user.tree() == before
    assert not user.bin.exists()
    shown = json.loads(user("connect", "--json", exits=5).stdout)
    assert shown["agents"][0]["files"][0]["change"] == "extend"
    assert user.json("connect", "--dry-run")["dry_run"] is True
    assert user.tree() == before


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 5), ("", 5)])
def test_on_a_terminal_it_asks(user: User, answer: str, status: int) -> None:
    user.write()
    line = f"{sys.executable} -m substrate connect"
    done = subprocess.run(
        ["script", "-qec", line, os.devnull], cwd=user.project, input=f"{answer}\n".encode(),
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == status, done.stdout
    assert b"[y/N]" in done.stdout
    assert (user.settings.read_text() == SETTINGS) == (status != 0)


def test_connect_twice_then_disconnect_gives_back_every_byte(user: User) -> None:
    user.write()
    before = user.tree()
    user("connect", "claude-code", "--yes")
    connected = user.tree()
    assert connected != before
    prefix = user.bin / "substrate-shell"
    assert f'"CLAUDE_CODE_SHELL_PREFIX": "{prefix}"' in user.settings.read_text()
    said = user("connect", "claude-code").stdout  # nothing to agree to
    assert "already" in said
    assert user.tree() == connected
    user("disconnect")
    assert user.tree() == before
    assert "Nothing was connected" in user("disconnect").stdout


def test_what_it_made_goes_away(user: User) -> None:
    before = user.tree()
    user(
        "connect", "claude-code", "codex", "gemini", "cursor", "opencode", "--yes", "--instructions"
    )
    assert {"settings.json", "CLAUDE.md"} <= {path.name for path in user.settings.parent.iterdir()}
    user("disconnect")
    assert user.tree() == before
    assert sorted(path.name for path in user.home.iterdir()) == [".substrate", "project"]


def test_edits_after_connecting_stay(user: User) -> None:
    user.write()
    user("connect", "claude-code", "--yes")
    text = user.settings.read_text()
    ours = f'"command": "{user.bin / "substrate-hook"} claude-code",'
    text = text.replace(ours, f'"command": "later" }}, {{ "type": "command", {ours}', 1)
    user.write(text.replace('"opus"', '"sonnet" /* new */'))
    user("disconnect")
    left = user.settings.read_text()
    assert "substrate" not in left
    assert left.count("later") == 1 and '"sonnet" /* new */' in left and "// mine" in left
    assert '"command": "mine"' in left


def test_a_symlink_stays_a_symlink(user: User) -> None:
    target = user.write(path=user.home / "dotfiles" / "claude.json")
    user.settings.parent.mkdir()
    user.settings.symlink_to("../dotfiles/claude.json")
    user("connect", "claude-code", "--yes")
    assert os.readlink(user.settings) == "../dotfiles/claude.json"
    assert "substrate-hook" in target.read_text()
    user("disconnect")
    assert user.settings.is_symlink()
    assert target.read_text() == SETTINGS


def test_mode_is_kept(user: User) -> None:
    user.write().chmod(0o640)
    user("connect", "claude-code", "--yes")
    assert user.settings.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1', "expected a comma"),
        ('{"env": {"CLAUDE_CODE_SHELL_PREFIX": "other -c"}}', "already set"),
        ('{"hooks": []}', "hooks is not an object"),
    ],
)
def test_settings_in_the_way_are_left_alone(user: User, text: str, why: str) -> None:
    user.write(text)
    done = user("connect", "claude-code", "--yes", exits=5)
    assert why in done.stderr and str(user.settings) in done.stderr
    assert user.settings.read_text() == text
    assert not user.bin.exists()


def test_a_read_only_file_is_left_alone(user: User) -> None:
    user.write().chmod(0o444)
    assert "read-only" in user("connect", "claude-code", "--yes", exits=5).stderr
    assert user.settings.read_text() == SETTINGS


def test_a_hard_linked_file_is_left_alone(user: User) -> None:
    os.link(user.write(), user.home / "other name")
    assert "hard links" in user("connect", "claude-code", "--yes", exits=5).stderr
    assert user.settings.read_text() == SETTINGS


def test_bytes_that_are_no_text_are_left_alone(user: User) -> None:
    user.write()
    user.settings.write_bytes(b'{"a": "\xff"}')
    assert "not UTF-8" in user("connect", "claude-code", "--yes", exits=5).stderr
    assert user.settings.read_bytes() == b'{"a": "\xff"}'


def test_a_file_that_changes_between_plan_and_write_is_left_alone(user: User) -> None:
    user.write()
    around = Surroundings(user.home, user.home / ".substrate", user.project, dict(os.environ))
    planned = plan([agent_named("claude")], around, "user")
    user.write('{"model": "other"}')
    with pytest.raises(ChangedMeanwhileError, match="changed while"):
        carry_out(planned)
    assert user.settings.read_text() == '{"model": "other"}'
    user("connect", "claude-code", "--yes")
    user("disconnect")
    assert user.settings.read_text() == '{"model": "other"}'


def test_one_refusal_stops_all_of_it(user: User) -> None:
    user.write()
    user.write("not json", user.home / ".codex" / "hooks.json")
    before = user.tree()
    user("connect", "--yes", exits=5)
    assert user.tree() == before


def test_project_scope_holds_no_path_of_this_machine(user: User) -> None:
    user("connect", "claude-code", "codex", "gemini", "copilot", "--scope", "project", "--yes")
    written = user.tree()
    assert len(written) == 5  # one of them names the MCP server
    for name, data in written.items():
        assert name.startswith("project/"), name
        assert str(user.home).encode() not in data and b"SHELL_PREFIX" not in data
    hooks = json.loads((user.project / ".claude" / "settings.json").read_text())["hooks"]
    command = hooks["Stop"][0]["hooks"][0]["command"]
    for env in ({}, {"SUBSTRATE_HOME": "/nowhere"}):  # with Substrate, and for a teammate without
        done = subprocess.run(["bash", "-c", command], env={**os.environ, **env}, input=b"{}")
        assert done.returncode == 0
    status = user.status()
    assert status["scopes"] == ["project"]
    assert status["records"]["shell"] == "none"
    user("disconnect")
    assert user.tree() == {}
    assert [path.name for path in user.project.iterdir()] == [".git"]


def test_local_scope_is_for_claude_code(user: User) -> None:
    user("connect", "claude-code", "codex", "--scope", "local", "--yes", "--no-mcp")
    assert list(user.tree()) == ["project/.claude/settings.local.json"]
    assert "SHELL_PREFIX" in (user.project / ".claude" / "settings.local.json").read_text()
    assert "scope local" in user("connect", "codex", "--scope", "local", "--yes", exits=4).stderr


def test_agents_that_share_instructions(user: User) -> None:
    shared = user.write("# Mine\n", user.project / "AGENTS.md")
    words = ("connect", "codex", "opencode", "--scope", "project", "--instructions", "--yes")
    user(*words)
    assert shared.read_text().count("substrate: begin") == 1
    user("disconnect", "codex")
    assert "substrate: begin" in shared.read_text()
    user("disconnect", "opencode")
    assert shared.read_text() == "# Mine\n"


def test_a_block_is_removed_from_edited_instructions(user: User) -> None:
    file = user.write("# Mine\r\n", user.home / ".claude" / "CLAUDE.md")
    user("connect", "claude-code", "--instructions", "--yes")
    file.write_bytes(b"First\r\n" + file.read_bytes() + b"Last\r\n")
    user("disconnect")
    assert file.read_bytes() == b"First\r\n# Mine\r\nLast\r\n"


def test_status_says_what_is_recorded_and_why_not_more(user: User) -> None:
    user.write()
    assert user.status()["records"]["shell"] == "none"
    user("connect", "--yes")
    status = user.status()
    assert status["scopes"] == ["user"] and status["records"]["shell"] == "world"
    (user.bin / "substrate-shell").unlink()
    status = user.status()
    assert status["records"]["shell"] == "none"
    assert "substrate-shell is missing" in str(status["why_not_more"])
    user("connect", "--yes")
    assert user.status()["records"]["shell"] == "world"
    user("connect", "codex", "--yes")
    codex = user.status("codex")
    assert codex["records"]["edits"] is False
    assert "rewritten" in str(codex["why_not_more"])
    assert "claude-code" in user("connect", "--status").stdout


def test_commands_go_through_the_prefix(user: User) -> None:
    user("connect", "claude-code", "--yes")
    prefix = user.bin / "substrate-shell"
    subprocess.run(
        ["bash", "-c", f"{prefix} 'echo by prefix > made.txt'"], cwd=user.project, check=True
    )
    assert (user.project / "made.txt").read_text() == "by prefix\n"
    log = user.json("log")["commands"]
    assert "echo by prefix > made.txt" in str(log)


def test_programs_of_the_harness_start_by_the_prefix_alone(user: User) -> None:
    """Claude Code gives MCP servers the prefix as the program and the server as one argument."""
    user("connect", "claude-code", "--yes")
    prefix = json.loads(user.settings.read_text())["env"]["CLAUDE_CODE_SHELL_PREFIX"]
    env = {**os.environ, "AI_AGENT": "claude-code_2-1-325_harness"}
    server = [prefix, "echo \"$0 $SUBSTRATE_WORLD_ID\" 'a b'; cat"]
    for _ in range(2):
        done = subprocess.run(
            server, env=env, cwd=user.project, input=b"asked", capture_output=True
        )
        assert done.stdout == b"/bin/bash  a b\nasked", done
        user("disconnect")  # a session that still runs starts another server
        server[1] = server[1].replace("$0", "/bin/bash")


def test_the_prefix_of_an_earlier_version_is_replaced(user: User) -> None:
    user("connect", "claude-code", "--yes")
    text = user.settings.read_text()
    earlier = text.replace("substrate-shell", "substrate-shell -c")
    user.write(earlier)
    assert user.status()["records"]["shell"] == "world"
    user("connect", "claude-code", "--yes")
    assert user.settings.read_text() == text


def test_a_shim_records_another_agent(user: User) -> None:
    shims = user.json("connect", "--shim", "other-agent")["path"]
    env = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}"}
    words = ["bash", "-c", "echo by shim > made.txt"]
    subprocess.run(words, cwd=user.project, env=env, check=True)
    found = user.json("log", "--limit", "1")["commands"][0]
    assert found["changed_files"] == ["made.txt"]
    spans = (user.home / ".substrate" / "trace.jsonl").read_text()
    assert '"agent_id":"other-agent"' in spans.replace(": ", ":")
    assert user.json("connect", "--status")["shims"] == ["other-agent"]
    user("disconnect", "other-agent")
    assert user.json("connect", "--status")["shims"] == []


@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli"])
def test_a_plugin_has_the_hooks_of_connect_and_no_path_of_this_machine(
    user: User, agent: str
) -> None:
    user("connect", agent, "--plugin", "made", "--dry-run")
    assert not (user.project / "made").exists()
    made = user.json("connect", agent, "--plugin", "made")
    directory = Path(made["path"])
    texts = {name: (directory / name).read_text() for name in made["files"]}
    assert str(user.home) not in "".join(texts.values())
    assert "substrate undo" in texts[made["files"][-1]]
    hooks = json.loads(texts["hooks/hooks.json"])["hooks"]
    user("connect", agent, "--yes", "--scope", "project", "--no-mcp")
    settings = user.project / f".{agent.partition('-')[0]}" / "settings.json"
    connected = json.loads(settings.read_text())["hooks"]
    assert hooks.keys() == connected.keys()
    for event, [entry] in hooks.items():
        [like] = connected[event]
        assert (entry.get("matcher"), entry["hooks"][0]["timeout"]) == (
            like.get("matcher"), like["hooks"][0]["timeout"],
        )  # fmt: skip

    command = next(iter(hooks.values()))[0]["hooks"][0]["command"]
    own = {"PATH": "/usr/bin:/bin", "HOME": str(user.home)}
    subprocess.run(["/bin/sh", "-c", command], env=own, input=b"{}", check=True)
    user("-c", "true")
    report = {"session_id": "a-1", "cwd": str(user.project), "prompt": "by the plugin"}
    event = "UserPromptSubmit" if agent == "claude-code" else "BeforeAgent"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(
        ["/bin/sh", "-c", command], env=env, check=True,
        input=json.dumps({**report, "hook_event_name": event}).encode(),
    )  # fmt: skip
    assert "by the plugin" in (user.home / ".substrate" / "trace.jsonl").read_text()

    user("connect", agent, "--plugin", "made")  # again
    (directory / made["files"][0]).write_text("{}")
    user("connect", agent, "--plugin", "made", exits=5)
    user("connect", "codex", "--plugin", "other", exits=2)


def test_a_plugin_is_not_written_through_a_link(user: User) -> None:
    user("connect", "claude-code", "--plugin", "made")
    elsewhere = user.project / "elsewhere"
    (user.project / "made" / "hooks").rename(elsewhere)
    (elsewhere / "hooks.json").write_text("mine")
    (user.project / "made" / "hooks").symlink_to(elsewhere)
    assert "is a link" in user("connect", "claude-code", "--plugin", "made", exits=5).stderr
    assert (elsewhere / "hooks.json").read_text() == "mine"


def test_an_unknown_agent_is_named_with_what_to_do(user: User) -> None:
    done = user("connect", "emacs", exits=4)
    assert "claude-code" in done.stderr and "--shim emacs" in done.stderr
    user("connect", exits=4)  # none is installed


def test_trust_is_refused_where_codex_cannot_be_asked(user: User) -> None:
    assert "is for Codex" in user("connect", "claude-code", "--trust-hooks", exits=2).stderr
    user.write("", user.home / ".codex" / "config.toml")
    words = ("connect", "codex", "--yes", "--no-mcp", "--trust-hooks")
    user(*words, exits=3, PATH=str(user.project))
    fake = user.write("#!/bin/sh\necho no json\n", user.home / "bin" / "codex")
    fake.chmod(0o755)
    done = user(*words, exits=5, PATH=str(fake.parent))
    assert "nothing was trusted" in done.stderr
    assert (user.home / ".codex" / "config.toml").read_text() == ""


def test_the_home_is_no_project(user: User) -> None:
    done = user("-C", str(user.home), "connect", "claude-code", "--scope", "project", exits=5)
    assert "home directory" in done.stderr


def test_a_link_out_of_the_project_is_not_followed(user: User) -> None:
    rc = user.home / ".bashrc"
    rc.write_text("mine\n")
    (user.project / "CLAUDE.md").symlink_to(rc)
    said = user(
        "connect", "claude-code", "--scope", "project", "--instructions", "--yes", exits=5
    ).stderr
    assert "leads out of the project" in said
    assert rc.read_text() == "mine\n"
    assert not (user.project / ".claude").exists()


def test_disconnect_leaves_alone_what_a_link_of_the_project_leads_to(user: User) -> None:
    notes = user.home / "notes"
    notes.write_text("// Written by `substrate connect opencode`\nmine\n")
    link = user.project / ".opencode" / "plugins" / "substrate.js"
    link.parent.mkdir(parents=True)
    link.symlink_to(notes)
    user("disconnect")
    assert notes.read_text().endswith("mine\n")


def test_another_prefix_is_not_taken_for_ours(user: User) -> None:
    prefix = "/tmp/other/bin/substrate-shell -c"
    user.write(json.dumps({"env": {"CLAUDE_CODE_SHELL_PREFIX": prefix}}))
    assert user.status()["records"]["shell"] == "none"


def test_the_status_names_broken_settings(user: User) -> None:
    user.write('{\n  "hooks": {]\n}\n')
    done = user("connect", "--status", exits=1)
    assert f"{user.settings} cannot be read: line 2, column 13" in done.stdout
    document = json.loads(user("connect", "--status", "claude-code", "--json", exits=1).stdout)
    assert "line 2" in str(document["agents"][0]["why_not_more"])
