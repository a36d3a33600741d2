"""`connect` registers the MCP server: where each agent looks for it, and byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_connect import User

pytestmark = pytest.mark.needs("linux")

pytest.importorskip("mcp", reason="the extra mcp is not installed")

CLAUDE = '{"numStartups":3,"mcpServers":{"mine":{"command":"mine"}},"projects":{"/a":{}}}'
CODEX = '# mine\nmodel = "o"\n\n[mcp_servers.mine]\ncommand = "mine" # this\n'
GEMINI = '{\n\t// mine\n\t"mcpServers": { "mine": { "command": "mine" } },\n}\n'


@pytest.fixture
def user(private_environment: Path) -> User:
    made = User(private_environment)
    made.write(CLAUDE, made.home / ".claude.json")
    made.write(CODEX, made.home / ".codex" / "config.toml")
    made.write(GEMINI, made.home / ".gemini" / "settings.json")
    return made


def claude_json(user: User) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((user.home / ".claude.json").read_text())
    return found


def test_each_agent_starts_the_same_script(user: User) -> None:
    before = user.tree()
    shown = user("connect", "claude", "codex", "gemini", "--dry-run").stdout
    assert "mcpServers.substrate" in shown and '[mcp_servers."substrate"]' in shown
    assert user.tree() == before
    words = ("connect", "claude", "codex", "gemini", "--yes")
    assert user.json(*words)["mcp"] == "registered"
    script = str(user.bin / "substrate-mcp")
    assert claude_json(user)["mcpServers"] == {
        "mine": {"command": "mine"},
        "substrate": {"type": "stdio", "command": script, "args": []},
    }
    codex = tomllib.loads((user.home / ".codex" / "config.toml").read_text())
    assert codex["mcp_servers"]["substrate"] == {"command": script}
    gemini = (user.home / ".gemini" / "settings.json").read_text()
    assert script in gemini and "substrate-hook" in gemini
    connected = user.tree()
    assert "already" in user(*words).stdout
    assert user.tree() == connected
    for agent in ("claude-code", "codex", "gemini-cli"):
        assert user.status(agent)["mcp"] is True
    user("disconnect")
    assert user.tree() == before
    assert subprocess.run([script], stdin=subprocess.DEVNULL).returncode == 1


def test_the_registered_server_answers(user: User) -> None:
    user("connect", "claude", "--yes")
    entry = claude_json(user)["mcpServers"]["substrate"]
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {},
                   "clientInfo": {"name": "test", "version": "0"}},
    }  # fmt: skip
    done = subprocess.run(
        [entry["command"], *entry["args"]], cwd=user.project, capture_output=True,
        input=json.dumps(hello).encode() + b"\n", timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "substrate"


def test_left_out_on_request(user: User) -> None:
    before = user.tree()
    assert (
        user.json("connect", "claude", "codex", "gemini", "--yes", "--no-mcp")["mcp"] == "unwanted"
    )
    after = user.tree()
    assert after[".claude.json"] == before[".claude.json"]
    assert after[".codex/config.toml"] == before[".codex/config.toml"]
    assert b"substrate-mcp" not in after[".gemini/settings.json"]
    status = user.status()
    assert status["mcp"] is False and status["records"]["shell"] == "world"
    assert "substrate connect claude-code" in str(status["why_not_more"])
    user("disconnect")
    assert user.tree() == before


def test_scopes_of_claude_code_share_a_file(user: User) -> None:
    before = user.tree()
    user("connect", "claude", "--yes")
    user("connect", "claude", "--scope", "local", "--yes")
    found = claude_json(user)
    ours = found["mcpServers"]["substrate"]
    assert found["projects"] == {
        "/a": {}, str(user.project): {"mcpServers": {"substrate": ours}}
    }  # fmt: skip
    user("disconnect")
    assert user.tree() == before


def test_claude_code_may_rewrite_its_file(user: User) -> None:
    user("connect", "claude", "--scope", "local", "--yes")
    found = claude_json(user)
    found["numStartups"] = 4
    (user.home / ".claude.json").write_text(json.dumps(found, indent=2))
    user("connect", "claude", "--yes")
    user("disconnect")
    left = {**json.loads(CLAUDE), "numStartups": 4}
    assert (user.home / ".claude.json").read_text() == json.dumps(left, indent=2)


def test_a_project_has_no_path_of_this_machine(user: User) -> None:
    before = user.tree()
    user("connect", "claude", "gemini", "--scope", "project", "--yes")
    entry = json.loads((user.project / ".mcp.json").read_text())["mcpServers"]["substrate"]
    assert str(user.home) not in json.dumps(entry)
    line = [entry["command"], *entry["args"]]
    teammate = {"PATH": os.environ["PATH"], "HOME": str(user.home / "nobody")}
    done = subprocess.run(line, env=teammate, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    mine = {"PATH": os.environ["PATH"], "HOME": str(user.home)}
    subprocess.run(line, env=mine, cwd=user.project, stdin=subprocess.DEVNULL, check=True)
    user("disconnect")
    assert user.tree() == before


def test_another_server_of_the_same_name_is_left_alone(user: User) -> None:
    user.write('{"mcpServers": {"substrate": {"command": "other"}}}', user.home / ".claude.json")
    before = user.tree()
    said = user("connect", "claude", "--yes", exits=5).stderr
    assert "mcpServers.substrate is already set" in said and "--no-mcp" in said
    assert user.tree() == before
    user("connect", "claude", "--yes", "--no-mcp")


def test_trusted_hooks_and_the_server_share_a_file(user: User) -> None:
    """Codex's trust goes into the file that names the server; neither removes the other."""
    before = user.tree()
    hooks = user.home / ".codex" / "hooks.json"
    answer = {
        "id": 2,
        "result": {"data": [{"hooks": [{
            "key": f"{hooks}:stop:0:0", "currentHash": "sha256:1", "sourcePath": str(hooks),
            "command": f"{user.bin / 'substrate-hook'} codex",
        }]}]},
    }  # fmt: skip
    fake = user.write(
        f"#!/bin/sh\necho '{json.dumps(answer)}'\ncat >/dev/null\n", user.home / "b/codex"
    )
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    user("connect", "codex", "--yes", "--no-mcp", "--trust-hooks", PATH=path)
    user("connect", "codex", "--yes")
    config = user.home / ".codex" / "config.toml"
    both = tomllib.loads(config.read_text())
    assert "substrate" in both["mcp_servers"] and "hooks" in both
    user("connect", "codex", "--yes", "--trust-hooks", PATH=path)
    assert tomllib.loads(config.read_text()) == both
    user("disconnect")
    fake.unlink()
    assert user.tree() == before


def test_without_the_extra_it_says_what_to_type(user: User, tmp_path: Path) -> None:
    """An interpreter that has all packages but the SDK."""
    packages = tmp_path / "packages"
    packages.mkdir()
    installed = Path(pytest.__file__).parents[1]
    for one in installed.iterdir():
        if not one.name.startswith("mcp"):
            (packages / one.name).symlink_to(one)

    def without(*words: str) -> str:
        argv = [f"{sys.base_prefix}/bin/python3", "-m", "substrate", *words]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = os.environ | {"PYTHONPATH": str(packages), "PATH": path}
        done = subprocess.run(argv, cwd=user.project, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = without("connect", "claude", "--yes")
    assert "pip install 'substrate-recorder[mcp]'" in said
    assert (user.home / ".claude.json").read_text() == CLAUDE
    status = without("connect", "--status", "claude")
    assert "pip install 'substrate-recorder[mcp]', then substrate connect claude-code" in status
