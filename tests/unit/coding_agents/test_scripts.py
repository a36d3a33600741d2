"""The generated scripts, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.coding_agents.agent import HOOK_SCRIPT, SHELL_SCRIPT, Surroundings
from substrate.coding_agents.generated_scripts import (
    neutralize_scripts,
    why_not_working,
    write_scripts,
    write_shims,
)
from substrate.errors import UsageError

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    variables = {"PATH": os.environ["PATH"], "SUBSTRATE_HOME": "set"}
    return Surroundings(tmp_path, tmp_path / "with 'quote" / "home", tmp_path / "p", variables)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """In place of `substrate`: prints its words and what it got."""
    path = tmp_path / "pro gram"
    path.write_text('#!/bin/sh\necho "$SUBSTRATE_HOME|$SUBSTRATE_AGENT_ID" "$@"\ncat\nexit 3\n')
    path.chmod(0o755)
    return path


def run(script: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], **env}
    return subprocess.run(
        [str(script), *words], env=given, input="in\n", capture_output=True, text=True
    )


def test_the_prefix_becomes_substrate(around: Surroundings, program: Path) -> None:
    write_scripts(around, program)
    done = run(around.bin / SHELL_SCRIPT, "-c", "echo 'a  b'")
    assert done.stdout == f"{around.substrate_home}| -c echo 'a  b'\nin\n"
    assert (done.returncode, done.stderr) == (3, "")
    assert why_not_working(around, SHELL_SCRIPT) == ""


def test_without_substrate_commands_run_and_it_is_reported_once(
    around: Surroundings, program: Path
) -> None:
    write_scripts(around, program)
    program.unlink()
    script = around.bin / SHELL_SCRIPT
    first = run(script, "-c", "echo $((1 + 1)); exit 7", CLAUDE_CODE_SESSION_ID="s1")
    assert (first.stdout, first.returncode) == ("2\n", 7)
    assert first.stderr.count("\n") == 1 and "run unrecorded" in first.stderr
    assert run(script, "-c", "true", CLAUDE_CODE_SESSION_ID="s1").stderr == ""
    assert "unrecorded" in run(script, "-c", "true", CLAUDE_CODE_SESSION_ID="s2").stderr
    assert "is missing" in why_not_working(around, SHELL_SCRIPT)
    assert "is missing" in why_not_working(around, HOOK_SCRIPT)


def test_a_required_world_is_not_replaced_by_a_plain_shell(
    around: Surroundings, program: Path
) -> None:
    write_scripts(around, program)
    program.unlink()
    done = run(around.bin / SHELL_SCRIPT, "-c", "echo ran", SUBSTRATE_WORLD="enabled")
    assert (done.returncode, done.stdout) == (125, "")
    assert "requires" in done.stderr


def test_a_hook_passes_its_input_and_never_fails(around: Surroundings, program: Path) -> None:
    write_scripts(around, program)
    done = run(around.bin / HOOK_SCRIPT, "codex")
    assert done.stdout == f"{around.substrate_home}| hook codex\nin\n"
    assert done.returncode == 0
    program.write_text("#!/bin/sh\necho usage >&2\nexit 2\n")
    assert run(around.bin / HOOK_SCRIPT, "codex").returncode == 0
    program.unlink()
    gone = run(around.bin / HOOK_SCRIPT, "codex")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "")


def test_after_disconnecting_the_scripts_do_nothing(around: Surroundings, program: Path) -> None:
    write_scripts(around, program)
    neutralize_scripts(around)
    assert run(around.bin / SHELL_SCRIPT, "-c", "echo plain").stdout == "plain\n"
    assert run(around.bin / HOOK_SCRIPT, "codex").stdout == ""
    assert "disconnected" in why_not_working(around, SHELL_SCRIPT)


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_shim_records_commands_and_nothing_else(
    around: Surroundings, program: Path, shell: str, tmp_path: Path
) -> None:
    shim = write_shims(around, "my-agent", program) / shell
    recorded = run(shim, "-c", "echo $0", "name")
    real = recorded.stdout.split(" -- ")[1].split()[0]
    assert recorded.stdout.startswith(f"{around.substrate_home}|my-agent run -- /")
    assert recorded.stdout.endswith(f"{real} -c echo $0 name\nin\n")
    assert "-lc true" in run(shim, "-lc", "true").stdout
    script = tmp_path / "script.sh"
    script.write_text("echo script $1\n")
    assert run(shim, str(script), "x").stdout == "script x\n"
    nested = run(shim, "-c", "echo nested", SUBSTRATE_PARENT_SPAN="spn_1")
    assert nested.stdout == "nested\n"
    program.unlink()
    assert run(shim, "-c", "echo gone").stdout == "gone\n"


def test_a_shim_does_not_start_another_shim(around: Surroundings, program: Path) -> None:
    first = write_shims(around, "one", program)
    path = f"{first}:{around.variables['PATH']}"
    again = around._replace(variables={**around.variables, "PATH": path})
    assert str(first) not in (write_shims(again, "two", program) / "bash").read_text()


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "-x", "a b"])
def test_a_name_that_is_no_directory_is_refused(around: Surroundings, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be"):
        write_shims(around, name, Path("/bin/true"))


def test_paths_that_look_like_placeholders_stay(tmp_path: Path, program: Path) -> None:
    odd = program.rename(tmp_path / "@bin@ @home@")
    home = tmp_path / "@substrate@ @name@"
    around = Surroundings(
        tmp_path, home, tmp_path, {"PATH": os.environ["PATH"], "SUBSTRATE_HOME": "set"}
    )
    write_scripts(around, odd)
    assert run(around.bin / SHELL_SCRIPT, "-c", "x").stdout == f"{home}| -c x\nin\n"
    shim = write_shims(around, "agent", odd) / "bash"
    assert run(shim, "-c", "x").stdout.startswith(f"{home}|agent run -- ")
