"""A session that builds and tests a project, packed, carried elsewhere, replayed.

The project and its history are gone by then: nothing may come from the live tree.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_RUN = "import sys; from substrate.cli.{0} import {1}; sys.exit({1}())"
CTX = [sys.executable, "-c", _RUN.format("ctx", "ctx")]
SUBSTRATE = [sys.executable, "-c", _RUN.format("startup", "substrate")]

CHECK = """import calc, sys
assert calc.add(2, 3) == 5
open("report.txt", "w").write("ok\\n")
print("2 + 3 =", calc.add(2, 3))
"""
BUILD = """#!/bin/sh
set -e
mytool calc.src > calc.py
chmod 0640 calc.py
mkdir -p out/empty
ln -sf ../calc.py out/link
"""
TOOL = """#!/bin/sh
echo "# made by mytool 1"
cat "$1"
"""


class Bench:
    """A project with a tool of its own in the PATH, and another project to replay in."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.elsewhere = root / "elsewhere"
        self.bin = root / "bin"
        self.packed = ""
        for directory in (self.project, self.elsewhere, self.bin):
            directory.mkdir()
        self.write_tool(TOOL)
        (self.project / "calc.src").write_text("def add(a, b):\n    return a + b\n")
        (self.project / "check.py").write_text(CHECK)
        (self.project / "build.sh").write_text(BUILD)
        (self.project / "build.sh").chmod(0o755)
        (self.project / "café").write_text("a name\n")
        self.env = os.environ | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def write_tool(self, text: str) -> None:
        (self.bin / "mytool").write_text(text)
        (self.bin / "mytool").chmod(0o755)

    def call(self, where: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=where, env=self.env, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def record(self, command: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.project, *SUBSTRATE, "-c", command)

    def substrate(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call(self.project, *SUBSTRATE, *words)

    def ctx(self, where: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call(where, *CTX, *words)

    def session(self) -> str:
        commands = json.loads(self.substrate("log", "--json").stdout)["commands"]
        return next(str(c["session_id"]) for c in commands if c["session_id"])

    def pack(self) -> str:
        assert self.ctx(self.project, "init").returncode == 0
        done = self.ctx(self.project, "pack", "--session", self.session())
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def carry_away(self, pack: str) -> None:
        """A bundle leaves; the project, its history and its `.ctx` are deleted."""
        bundle = self.elsewhere / "run.ctx.tar.gz"
        done = self.ctx(self.project, "export", pack, str(bundle))
        assert done.returncode == 0, done.stderr
        shutil.rmtree(self.project)
        assert self.ctx(self.elsewhere, "init").returncode == 0
        done = self.ctx(self.elsewhere, "import", str(bundle))
        assert done.returncode == 0, done.stderr
        self.packed = pack

    def replay(self) -> tuple[int, dict[str, Any]]:
        done = self.ctx(self.elsewhere, "replay", self.packed, "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def worked(bench: Bench) -> Bench:
    for command in (
        "./build.sh",
        f"{sys.executable} check.py",
        "rm calc.src; echo done >> report.txt; exit 3",
    ):
        bench.record(command)
    return bench


@pytest.mark.needs("posix")
def test_a_program_that_did_not_start_fails_the_same_way(bench: Bench) -> None:
    (bench.project / "plain").write_text("no program\n")
    for program, status in (("nosuchprog", 127), ("./plain", 126)):
        assert bench.substrate("run", "--", program).returncode == status
        done = bench.substrate("replay", "@")
        assert done.returncode == 0, done.stdout + done.stderr
    bench.carry_away(bench.pack())
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer
    assert [step["exit"] for step in answer["steps"]] == [127, 126]


@pytest.mark.needs("posix")
def test_a_program_that_is_gone_fails_the_replay(bench: Bench) -> None:
    assert bench.substrate("run", "--", "mytool", "calc.src").returncode == 0
    bench.carry_away(bench.pack())
    (bench.bin / "mytool").unlink()
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (2, "failed"), answer
    assert "mytool" in answer["steps"][0]["reason"]


@pytest.mark.needs("posix")
def test_a_session_is_replayed_exactly_after_the_project_is_gone(worked: Bench) -> None:
    worked.carry_away(worked.pack())
    status, answer = worked.replay()
    assert answer["fidelity"] == "exact", answer
    assert status == 0
    assert [step["tool"] for step in answer["steps"]] == ["shell"] * 3
    assert [step["exit"] for step in answer["steps"]] == [0, 0, 3]
    assert {output["name"]: output["status"] for output in answer["outputs"]} == {
        "calc.py": "matched",
        "report.txt": "matched",
    }
    assert answer["environment_drift"] == []
    assert not worked.project.exists()


@pytest.mark.needs("gcc")
def test_a_c_project_is_built_and_tested_again_and_another_compiler_is_reported(
    bench: Bench,
) -> None:
    (bench.project / "sum.h").write_text("int sum(int, int);\n")
    (bench.project / "sum.c").write_text('#include "sum.h"\nint sum(int a, int b){return a+b;}\n')
    (bench.project / "test.c").write_text(
        '#include <stdio.h>\n#include "sum.h"\n'
        'int main(void){ printf("%s: %d\\n", __FILE__, sum(2, 3)); return sum(2, 3) != 5; }\n'
    )
    compiler = bench.bin / "cc-used"
    compiler.write_text('#!/bin/sh\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    for command in (
        "for f in sum test; do cc-used -g -c $f.c -o $f.o; done",
        'cc-used -o tests sum.o test.o && "$PWD/tests" > result.txt && cat result.txt',
    ):
        assert bench.record(command).returncode == 0
    bench.carry_away(bench.pack())
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer
    compiler.write_text('#!/bin/sh\nexec gcc -O2 "$@"\n')
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (1, "degraded")
    assert answer["first_divergence"]["index"] == 0
    assert "sum.o has another content" in answer["first_divergence"]["reason"]
    assert [one["name"] for one in answer["environment_drift"]] == ["cc-used"]


@pytest.mark.needs("posix")
def test_a_changed_tool_degrades_it_and_the_step_is_named(worked: Bench) -> None:
    worked.carry_away(worked.pack())
    worked.write_tool(TOOL.replace("mytool 1", "mytool 2"))
    status, answer = worked.replay()
    assert (status, answer["fidelity"]) == (1, "degraded")
    first = answer["first_divergence"]
    assert (first["index"], first["about"]) == (0, "./build.sh")
    assert "calc.py has another content" in first["reason"]
    told = worked.ctx(worked.elsewhere, "replay", worked.packed).stdout
    assert "step 0 (shell ./build.sh) diverged" in told


@pytest.mark.needs("posix")
def test_a_tool_put_before_the_others_degrades_it_too(worked: Bench, tmp_path: Path) -> None:
    worked.carry_away(worked.pack())
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "mytool").write_text(TOOL.replace("1", "fake"))
    (fake / "mytool").chmod(0o755)
    worked.env["PATH"] = f"{fake}{os.pathsep}{worked.env['PATH']}"
    status, answer = worked.replay()
    assert (status, answer["fidelity"]) == (1, "degraded")


@pytest.mark.needs("posix")
def test_a_missing_tool_fails_it(worked: Bench) -> None:
    worked.carry_away(worked.pack())
    (worked.bin / "mytool").unlink()
    status, answer = worked.replay()
    assert (status, answer["fidelity"]) == (2, "failed")
    assert "mytool" in answer["first_divergence"]["reason"]


@pytest.mark.needs("posix")
def test_the_same_session_has_the_same_address(worked: Bench) -> None:
    first = worked.pack()
    assert worked.pack() == first
    assert worked.ctx(worked.project, "pack", "--session", "@").stdout.strip() == first


@pytest.mark.needs("posix")
def test_a_pack_of_a_session_holds_what_it_needs(worked: Bench) -> None:
    pack = worked.pack().removeprefix("ctx://")
    manifest = json.loads((worked.project / ".ctx/objects" / pack[:2] / pack[2:]).read_bytes())
    assert manifest["steps"][0]["parameters"]["command"] == "./build.sh"
    assert manifest["steps"][2]["result"]["exit"] == 3
    assert manifest["steps"][2]["result"]["changed"] == [
        {"path": "calc.src", "change": "deleted"},
        manifest["steps"][2]["result"]["changed"][1],
    ]
    assert manifest["steps"][0]["parameters"]["cwd"] == str(worked.project)
    assert manifest["environment"]["os"] == "linux" or sys.platform != "linux"
    assert {item["name"] for item in manifest["inputs"]} == {
        *(".ctx/base.json", "build.sh", "calc.src", "café", "check.py"),
    }


@pytest.mark.needs("posix")
def test_edits_by_others_in_between_are_put_in_place(bench: Bench) -> None:
    bench.env["SUBSTRATE_WORLD"] = "disabled"  # then edits are looked for before each command
    bench.record("cat calc.src > copy")
    (bench.project / "calc.src").write_text("changed by hand\n")
    (bench.project / "sub").mkdir()
    (bench.project / "sub/new.sh").write_text("#!/bin/sh\necho new\n")
    (bench.project / "sub/new.sh").chmod(0o755)
    (bench.project / "check.py").unlink()
    bench.record("cat calc.src > copy2; ./sub/new.sh > said; ls > listing")
    bench.substrate("undo")
    bench.record("test ! -e copy2 && cat copy > copy3")
    bench.carry_away(bench.pack())
    status, answer = bench.replay()
    assert answer["fidelity"] == "exact", answer
    tools = [step["tool"] for step in answer["steps"]]
    assert tools == ["shell", "apply_changes", "shell", "apply_changes", "shell"]
    assert status == 0


@pytest.mark.needs("world-overlay")
def test_held_commands_count_by_what_was_decided_of_them(bench: Bench) -> None:
    bench.record("echo 1 > kept")
    for decision in ("discard", "apply"):
        bench.substrate("run", "--world", "--hold", "--", "sh", "-c", f"echo {decision} > kept")
        listed = json.loads(bench.substrate("world", "list", "--json").stdout)
        bench.substrate("world", decision, listed["worlds"][0]["world_id"])
    bench.record("cat kept > copy")
    bench.carry_away(bench.pack())
    status, answer = bench.replay()
    assert answer["fidelity"] == "exact", answer
    tools = [step["tool"] for step in answer["steps"]]
    assert tools == ["shell", "apply_changes", "shell"]
    assert status == 0


@pytest.mark.needs("posix")
def test_secrets_leave_as_placeholders(bench: Bench) -> None:
    bench.record("echo --token ghp_0123456789abcdefghijABCDEFGHIJ012345 > /dev/null")
    pack = bench.pack().removeprefix("ctx://")
    raw = (bench.project / ".ctx/objects" / pack[:2] / pack[2:]).read_text()
    assert "ghp_0123456789" not in raw
    done = bench.ctx(bench.project, "pack", "--session", bench.session())
    assert "placeholders" in done.stderr


@pytest.mark.needs("posix")
def test_compacted_commands_are_compared_as_a_whole(bench: Bench) -> None:
    for n in range(3):
        bench.record(f"echo {n} >> count; echo {n} > f{n}")
    first = bench.session()
    bench.substrate("session", "close")
    assert bench.substrate("compact", "--keep-sessions", "0").returncode == 0
    bench.record("true")
    assert bench.ctx(bench.project, "init").returncode == 0
    done = bench.ctx(bench.project, "pack", "--session", first)
    assert done.returncode == 0, done.stderr
    bench.carry_away(done.stdout.strip())
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer
    assert len(answer["steps"]) == 3


def test_a_session_that_is_not_there(bench: Bench) -> None:
    bench.record("true")
    bench.ctx(bench.project, "init")
    done = bench.ctx(bench.project, "pack", "--session", "s-nosuch")
    assert done.returncode == 4
    assert "s-nosuch" in done.stderr
    done = bench.ctx(bench.project, "pack", "log.json", "--session", bench.session())
    assert done.returncode == 2


@pytest.mark.needs("posix")
def test_sidecars_come_by_themselves_if_the_configuration_says_so(worked: Bench) -> None:
    worked.pack()
    assert not (worked.project / "calc.py.ctx.json").exists()
    config = worked.project / ".ctx/config.json"
    config.write_text(json.dumps({"version": "0.1", "sidecars": "sessions"}))
    pack = worked.pack().removeprefix("ctx://")
    sidecar = json.loads((worked.project / "calc.py.ctx.json").read_text())
    assert sidecar["context_pack"] == f"sha256:{pack}"


@pytest.mark.needs("posix")
def test_what_commands_printed_is_compared_byte_for_byte(bench: Bench) -> None:
    bench.record("mytool calc.src; printf 'no newline'; echo to-stderr >&2")
    bench.record("true")
    pack = bench.pack()
    bench.carry_away(pack)
    assert bench.replay()[0] == 0
    bench.write_tool(TOOL.replace("mytool 1", "mytool 2"))
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (1, "degraded")
    assert "-# made by mytool 1\n+# made by mytool 2" in answer["first_divergence"]["diff"]
    assert [step["status"] for step in answer["steps"]] == ["diverged", "matched"]
    shown = bench.ctx(bench.elsewhere, "show", pack, "--step", "0", "--content").stdout
    assert "no newline" in shown


@pytest.mark.needs("posix")
def test_what_was_built_before_the_session_is_up_to_date(bench: Bench) -> None:
    """Times are not recorded; in every replay all files of the base have the same one."""
    (bench.project / "a-built").write_text("made of calc.src\n")
    bench.record("[ calc.src -nt a-built ] && echo stale || echo fresh")
    bench.record("sleep 0.01; touch calc.src; [ calc.src -nt a-built ] && echo stale || echo fresh")
    bench.carry_away(bench.pack())
    status, answer = bench.replay()
    assert (status, answer["fidelity"]) == (0, "exact"), answer


@pytest.mark.needs("posix")
def test_outputs_are_private(bench: Bench) -> None:
    bench.record("echo said")
    home = Path(bench.env["SUBSTRATE_HOME"])
    (kept,) = (home / "outputs").glob("spn_*/stdout")
    assert kept.read_text() == "said\n"
    for path in (home / "outputs", kept.parent):
        assert path.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600


# -- substrate replay -----------------------------------------------------------------------------


@pytest.mark.needs("posix")
def test_a_command_is_run_again_from_the_tree_it_started_from(worked: Bench) -> None:
    """The live tree has changed since: calc.src is gone, check.py is rubbish."""
    (worked.project / "check.py").write_text("raise SystemExit(9)\n")
    (worked.project / "calc.py").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in worked.project.iterdir()}
    for back, status in ((0, 3), (1, 0), (2, 0)):
        done = worked.substrate("replay", f"@~{back}")
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert done.stdout.startswith("matched")
        assert f"exit {status}" in done.stdout
    after = {path.name: path.stat().st_mtime_ns for path in worked.project.iterdir()}
    before.pop(".substrate-git", None)
    after.pop(".substrate-git", None)
    assert after == before


@pytest.mark.needs("posix")
def test_what_differs_is_reported_and_the_seeds_words_work(worked: Bench, tmp_path: Path) -> None:
    commands = json.loads(worked.substrate("log", "--json").stdout)["commands"]
    span = commands[2]["span_id"]
    assert commands[2]["command"] == "./build.sh"
    worked.write_tool(TOOL.replace("mytool 1", "mytool 2"))
    done = worked.call(tmp_path, *SUBSTRATE, "--replay-verbose", "--replay", span)
    assert done.returncode == 1
    assert "diverged" in done.stdout
    assert "calc.py has another content" in done.stdout
    assert "[replay] strategy: " in done.stderr
    answer = json.loads(worked.substrate("replay", span, "--json").stdout)
    assert (answer["status"], answer["exit"], answer["recorded_exit"]) == ("diverged", 0, 0)
    assert answer["isolation"]["strategy"]


@pytest.mark.needs("world-overlay")
def test_what_it_reached_is_reported_in_the_seeds_words(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        bench.record(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
        done = bench.substrate("--replay", "@", "--replay-verbose")
    assert done.returncode == 0, done.stderr
    assert f"[replay] scopes: tcp:127.0.0.1:{port}\n" in done.stderr
    assert "[replay] strategy: copy-diff" in done.stderr


@pytest.mark.needs("posix")
def test_the_exact_command_is_run_not_the_redacted_one(bench: Bench) -> None:
    bench.record("echo password=hunter2hunter2 | tr -d '\\n' | wc -c > length")
    assert "hunter2" not in bench.substrate("log").stdout
    assert bench.substrate("replay", "@").returncode == 0


def test_what_is_no_command_is_not_replayed(bench: Bench) -> None:
    bench.record("true")
    baseline = json.loads(bench.substrate("log", "--json").stdout)["commands"][-1]["command_id"]
    done = bench.substrate("replay", baseline)
    assert done.returncode == 4
    assert "not a command" in done.stderr
    assert bench.substrate("replay").returncode == 2
    assert bench.substrate("--replay").returncode == 2
    assert bench.substrate("replay", "@", "--in-place-of-world", "magic").returncode == 2
