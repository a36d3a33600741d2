"""The options of `substrate run`: each does what it says, or says why not."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUBSTRATE = [sys.executable, "-m", "substrate"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "kept").write_text("kept\n")
    return root


def run(workspace: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SUBSTRATE, *words], cwd=workspace, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "SUBSTRATE_DAEMON": "off", **env},
    )  # fmt: skip


def isolation(home: Path) -> dict[str, str]:
    lines = (home / ".substrate" / "trace.jsonl").read_text().splitlines()
    found: dict[str, str] = json.loads(lines[-1])["isolation"]
    return found


@pytest.mark.needs("world-overlay")
def test_a_world_is_the_default(workspace: Path, private_environment: Path) -> None:
    assert run(workspace, "-c", "echo x > new").returncode == 0
    assert isolation(private_environment)["strategy"] == "overlay"
    assert (workspace / "new").read_text() == "x\n"


@pytest.mark.needs("world-overlay")
@pytest.mark.parametrize("tier", ["workspace", "guarded", "full"])
def test_each_tier_can_be_asked_for(workspace: Path, private_environment: Path, tier: str) -> None:
    done = run(workspace, "run", "--isolate", tier, "--", "sh", "-c", "echo x > new; exit 7")
    assert (done.returncode, done.stderr) == (7, "")
    assert isolation(private_environment)["tier"] == tier
    assert (workspace / "new").read_text() == "x\n"


def test_a_tier_that_is_none(workspace: Path) -> None:
    done = run(workspace, "run", "--isolate", "tight", "--", "true")
    assert done.returncode == 125
    assert "no such tier: tight" in done.stderr


@pytest.mark.needs("world-overlay")
def test_heavy_isolation_is_as_much_as_can_be_had(
    workspace: Path, private_environment: Path
) -> None:
    assert run(workspace, "-c", "true", SUBSTRATE_HEAVY_ISOLATION="1").returncode == 0
    assert isolation(private_environment)["tier"] == "full"


@pytest.mark.needs("world-overlay")
def test_heavy_isolation_that_cannot_be_had_is_no_error(
    workspace: Path, private_environment: Path
) -> None:
    """Where worlds are switched off it changes nothing."""
    env = {"SUBSTRATE_HEAVY_ISOLATION": "1", "SUBSTRATE_WORLD": "disabled"}
    assert run(workspace, "-c", "true", **env).returncode == 0
    assert isolation(private_environment)["tier"] == "none"


def test_a_misspelled_setting_is_no_lesser_world(workspace: Path) -> None:
    done = run(workspace, "-c", "touch new", SUBSTRATE_WORLD="enable")
    assert done.returncode == 125
    assert "enabled or disabled" in done.stderr
    assert not (workspace / "new").exists()


def test_live_works_on_the_real_files(workspace: Path, private_environment: Path) -> None:
    done = run(workspace, "run", "--live", "--", "sh", "-c", "echo x > new")
    assert done.returncode == 0
    found = isolation(private_environment)
    assert found["strategy"] == "direct"
    assert "--live" in found["reason"]
    assert json.loads(run(workspace, "log", "--json").stdout)["commands"][0]["changed_files"] == [
        "new"
    ]


def test_live_and_a_tier_at_once(workspace: Path) -> None:
    done = run(workspace, "run", "--live", "--isolate", "full", "--", "true")
    assert done.returncode == 125


@pytest.mark.needs("posix")
def test_a_terminal_of_its_own(workspace: Path) -> None:
    line = "test -t 0 && test -t 1 && test -t 2 && echo yes; exit 4"
    done = run(workspace, "run", "--pty", "--", "sh", "-c", line)
    assert (done.returncode, done.stdout.strip()) == (4, "yes")


@pytest.mark.needs("posix")
@pytest.mark.parametrize("how", [(), ("--no-world",)], ids=["world", "direct"])
def test_what_is_printed_on_a_terminal_of_its_own_is_kept(
    workspace: Path, private_environment: Path, how: tuple[str, ...]
) -> None:
    # It changes a hook, so that something is said on the terminal after the command.
    line = (
        "printf 'a\\n\\033[1mb'; echo err >&2; mkdir -p .git/hooks; echo x > .git/hooks/post-commit"
    )
    done = run(workspace, "run", *how, "--pty", "--", "sh", "-c", line)
    raw = b"a\r\n\x1b[1mberr\r\n"
    assert done.stdout.encode().replace(b"\r", b"").startswith(raw.replace(b"\r", b""))
    assert "7777" not in done.stdout
    lines = (private_environment / ".substrate" / "trace.jsonl").read_text().splitlines()
    kept = json.loads(lines[-1])["stdout"]
    assert (kept["sha256"], kept["bytes"]) == (hashlib.sha256(raw).hexdigest(), len(raw))
    assert Path(kept["ref"]).read_bytes() == raw


@pytest.mark.needs("posix")
def test_much_on_a_terminal_is_kept_up_to_the_cap(
    workspace: Path, private_environment: Path
) -> None:
    line = "yes 0123456789abcde | head -c 17000000"
    done = run(workspace, "run", "--pty", "--", "sh", "-c", line)
    whole = b"0123456789abcde\r\n" * (17_000_000 // 16)
    lines = (private_environment / ".substrate" / "trace.jsonl").read_text().splitlines()
    kept = json.loads(lines[-1])["stdout"]
    assert len(done.stdout.replace("\r\n", "\n")) == 17_000_000
    assert (kept["sha256"], kept["bytes"]) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert Path(kept["ref"]).stat().st_size == 16 * 1024 * 1024


@pytest.mark.needs("world-overlay")
def test_limits_reach_the_command(workspace: Path) -> None:
    hungry = "x = bytearray(300 * 1024 * 1024)"
    words = ("--", sys.executable, "-c", hungry)
    assert run(workspace, "run", *words).returncode == 0
    assert run(workspace, "run", "--limit-memory", "100M", *words).returncode != 0


@pytest.mark.parametrize(
    ("option", "value"),
    [("--limit-memory", "much"), ("--limit-memory", "0"), ("--limit-pids", "0"),
     ("--limit-cpus", "-1")],
)  # fmt: skip
def test_a_limit_that_is_none(workspace: Path, option: str, value: str) -> None:
    done = run(workspace, "run", f"{option}={value}", "--", "true")
    assert done.returncode == 125
    assert option in done.stderr
