"""`substrate hook`: reports of coding agents through the installed program and its daemon."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program
from tests.daemons import Daemon, daemon_in, until
from tests.hook_reports import Claude, Codex, Report, Transcript, encoded

INSTALLED = Path(sys.executable).parent / "substrate"
TEXT = "one\n.\n..\ntwo\n...\n....\nthree\n"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    env = {"SUBSTRATE_HOME": str(tmp_path / "home")}
    with daemon_in(tmp_path, env) as found:
        found.program = [str(INSTALLED)]
        (found.workspace / "a.txt").write_text(TEXT)
        found.serve()
        assert found.run("-c", "true").returncode == 0
        yield found


def hook(daemon: Daemon, who: Claude | Codex, report: Report | bytes) -> None:
    """Report it, as an agent does: no output, and never a failure."""
    data = report if isinstance(report, bytes) else encoded(report)
    done = daemon.run("hook", who.agent, input=data)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def log(daemon: Daemon) -> list[dict[str, Any]]:
    """Newest first."""
    found: list[dict[str, Any]] = json.loads(daemon.run("log", "--json").stdout)["commands"]
    return found


def edit(daemon: Daemon, claude: Claude, call: str, old: str, new: str) -> None:
    path = daemon.workspace / "a.txt"
    original = path.read_text()
    hook(daemon, claude, claude.edit_call(path, call, old, new))
    path.write_text(original.replace(old, new, 1))
    hook(daemon, claude, claude.edit(path, call, old, new, original))
    until(lambda: call in json.dumps(log(daemon)), f"the record of {call}")


def prompted(daemon: Daemon, claude: Claude, text: str) -> None:
    """A slow machine may record it after the hook has returned."""
    hook(daemon, claude, claude.prompt(text))
    until(lambda: text in daemon.trace.read_text() if daemon.trace.exists() else False, text)


@pytest.mark.needs("linux")
def test_a_prompt_is_recorded_shown_and_taken_back(daemon: Daemon) -> None:
    claude = Claude(daemon.workspace)
    hook(daemon, claude, claude.start())
    prompted(daemon, claude, "change two and make a file")
    edit(daemon, claude, "toolu_1", "two", "TWO")
    ran = daemon.run("-c", "echo made > made.txt", env={**daemon.env, **claude.variables})
    assert ran.returncode == 0
    command, edited = log(daemon)[:2]
    assert (command["kind"], edited["kind"]) == ("command", "edit")
    assert edited["prompt_id"].startswith("p-")
    assert command["prompt_id"] == edited["prompt_id"]
    assert command["session_id"] == edited["session_id"]
    assert (command["recorded_by"], edited["recorded_by"]) == ("world", "observed")
    assert edited["tool"] == {"name": "Edit", "call_id": "toolu_1"}
    span = next(one for one in daemon.completed() if one["command_id"] == edited["command_id"])
    assert span["prompt_id"] == edited["prompt_id"]
    assert span["changed_files"] == ["a.txt"]

    prompt = edited["prompt_id"]
    shown = json.loads(daemon.run("show", prompt, "--json").stdout)
    assert shown["text"] == "change two and make a file"
    assert shown["entries"] == [edited["command_id"], command["command_id"]]
    text = daemon.run("show", prompt).stdout.decode()
    assert text.startswith("prompt          change two and make a file\n")
    assert f"  {command['command_id']}  echo made > made.txt\n" in text
    assert "_" not in text.replace(claude.session, ""), "words, not the names of fields"
    lines = Program(daemon.workspace, daemon.env).on_a_terminal(40, "log")
    assert [line for line in lines if len(line) > 40] == []
    assert any(line.startswith(prompt) and line.endswith("…") for line in lines)
    diff = daemon.run("diff", "--prompt", prompt)
    assert b"+TWO" in diff.stdout
    assert b"made.txt" in diff.stdout
    assert daemon.run("diff", prompt).stdout == diff.stdout
    lines = json.loads(daemon.run("blame", "a.txt", "--json").stdout)["lines"]
    assert [one["line"] for one in lines if one["prompt_id"] == prompt] == [4]

    (daemon.workspace / "a.txt").write_text(TEXT.replace("two", "TWO") + "typed\n")
    undone = daemon.run("undo", "--prompt", "--json")
    assert undone.returncode == 0, undone.stderr
    assert (daemon.workspace / "a.txt").read_text() == TEXT + "typed\n"
    assert not (daemon.workspace / "made.txt").exists()
    assert daemon.run("redo", "--session", edited["session_id"]).returncode == 0
    assert (daemon.workspace / "made.txt").exists()
    assert daemon.run("fsck").returncode == 0


def wrapped(command: str, beside: Path) -> str:
    """As Claude Code 2.1.325 gives it to its shell.

    The file for the directory is the test's own: in /tmp it would be another user's.
    """
    return (
        "source /home/u/.claude/shell-snapshots/snapshot-bash-1-a.sh 2>/dev/null || true"
        " && { \\builtin shopt -u extglob || \\builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL"
        " NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true"
        f" && eval {shlex.quote(command)} < /dev/null && pwd -P >| {beside}/claude-1f2e-cwd"
    )


@pytest.mark.needs("linux")
def test_commands_in_worlds_are_joined_with_the_calls_in_the_transcript(
    daemon: Daemon, tmp_path: Path
) -> None:
    claude = Claude(daemon.workspace)
    prompted(daemon, claude, "append twice, and let another do it as well")
    path = tmp_path / "projects" / f"{claude.session}.jsonl"
    own = Transcript(path, claude.report("")["prompt_id"])
    other = own.of_subagent("a4fc8c72", "general-purpose")

    def call(of: Transcript, name: str, command: str, model: str = "claude-opus-5-5") -> None:
        of.asks(name, command, model)
        env = {**daemon.env, **claude.variables}
        assert daemon.run("-c", wrapped(command, tmp_path), env=env).returncode == 0
        of.gets(name)

    append, note = "echo x >> x.txt", "echo 'a b' > n.txt"
    call(own, "toolu_1", append)
    own.asks("toolu_2", append)
    own.gets("toolu_2", "Permission to use Bash has been denied.", is_error=True)
    call(own, "toolu_3", append, "claude-haiku-5")
    call(other, "toolu_1", note)  # an id that the parent has, too
    stop = {**claude.stop(), "transcript_path": str(path)}
    hook(daemon, claude, stop)
    until(lambda: log(daemon)[0].get("tool"), "the calls")
    # Claude Code goes on with a sub-agent in the background when the prompt has ended.
    call(other, "toolu_2", append)
    assert "tool" not in log(daemon)[0]
    own.path.write_text(own.path.read_text() + "not JSON\n")
    hook(daemon, claude, {**claude.end(), "transcript_path": str(path)})
    until(lambda: log(daemon)[0].get("tool"), "the call after the prompt")

    found = [one for one in reversed(log(daemon)) if one["kind"] == "command"][-4:]
    assert [one["typed"] for one in found] == [append, append, note, append]
    calls = [one["tool"]["call_id"] for one in found]
    assert calls == ["toolu_1", "toolu_3", "toolu_1", "toolu_2"]
    models = [one["model"] for one in found]
    assert models == ["claude-opus-5-5", "claude-haiku-5", *["claude-opus-5-5"] * 2]
    sub = {"id": "a4fc8c72", "type": "general-purpose"}
    assert [one.get("subagent") for one in found] == [None, None, sub, sub]
    assert len({one["prompt_id"] for one in found} - {None}) == 1
    text = daemon.run("show", found[2]["command_id"]).stdout.decode()
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line.strip())
    assert rows["command"] == note
    assert rows["tool"] == "toolu_1 Bash"
    assert rows["sub-agent"] == "a4fc8c72 general-purpose"
    assert daemon.run("undo", "--prompt").returncode == 0
    assert not (daemon.workspace / "x.txt").exists()
    assert not (daemon.workspace / "n.txt").exists()
    assert daemon.run("fsck").returncode == 0


@pytest.mark.needs("linux")
def test_a_finished_background_task_does_not_change_the_prompts_text(daemon: Daemon) -> None:
    """Claude Code reports it as a prompt, with the id of the one that started the task."""
    claude = Claude(daemon.workspace)
    prompted(daemon, claude, "build it in the background")
    edit(daemon, claude, "toolu_1", "two", "TWO")
    again = claude.report("UserPromptSubmit", prompt="<task-notification>built</task-notification>")
    hook(daemon, claude, again)
    prompted(daemon, claude, "the next one")
    shown = json.loads(daemon.run("show", log(daemon)[0]["prompt_id"], "--json").stdout)
    assert shown["text"] == "build it in the background"


@pytest.mark.needs("linux")
def test_two_agents_at_once_have_their_own_sessions(daemon: Daemon) -> None:
    claudes = [Claude(daemon.workspace, f"session-{n}") for n in range(3)]
    for number, claude in enumerate(claudes):
        prompted(daemon, claude, f"prompt of {number}")

    def work(number: int) -> None:
        claude = claudes[number]
        path = daemon.workspace / f"file-{number}.txt"
        for step in range(3):
            call, text = f"t-{number}-{step}", f"{number} {step}\n"
            original = path.read_text() if path.exists() else None
            hook(daemon, claude, claude.before("Write", call, file_path=str(path), content=text))
            path.write_text(text)
            hook(daemon, claude, claude.write(path, call, text, original))
        line = f"echo {number} > shell-{number}.txt"
        assert daemon.run("-c", line, env={**daemon.env, **claude.variables}).returncode == 0

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    until(lambda: sum(one["kind"] == "edit" for one in log(daemon)) == 9, "nine edits")
    entries = [one for one in log(daemon) if one["prompt_id"]]
    for number in range(3):
        own = [e for e in entries if f"{number}.txt" in json.dumps(e["changed_files"])]
        assert len({e["session_id"] for e in own}) == 1
        assert len({e["prompt_id"] for e in own}) == 1
    assert len({e["session_id"] for e in entries}) == 3
    first = next(e for e in entries if "file-0.txt" in e["changed_files"])
    assert daemon.run("undo", "--prompt", first["prompt_id"]).returncode == 0
    left = sorted(path.name for path in daemon.workspace.glob("*-?.txt"))
    assert left == ["file-1.txt", "file-2.txt", "shell-1.txt", "shell-2.txt"]


@pytest.mark.needs("linux")
def test_a_report_while_no_daemon_runs_is_not_lost(daemon: Daemon) -> None:
    claude = Claude(daemon.workspace)
    os.kill(daemon.pid, signal.SIGKILL)
    prompted(daemon, claude, "nobody is there")
    edit(daemon, claude, "toolu_1", "two", "TWO")
    assert log(daemon)[0]["kind"] == "edit"


@pytest.mark.needs("linux")
def test_the_daemon_dies_between_a_tools_two_reports(daemon: Daemon) -> None:
    claude = Claude(daemon.workspace)
    path = daemon.workspace / "a.txt"
    prompted(daemon, claude, "change two")
    hook(daemon, claude, claude.edit_call(path, "toolu_1", "two", "TWO"))
    os.kill(daemon.pid, signal.SIGKILL)
    path.write_text(TEXT.replace("two", "TWO") + "typed\n")
    hook(daemon, claude, claude.edit(path, "toolu_1", "two", "TWO", TEXT))
    until(lambda: log(daemon)[0]["kind"] == "edit", "the edit")
    lines = json.loads(daemon.run("blame", "a.txt", "--json").stdout)["lines"]
    assert [one["kind"] for one in lines][3] == "command"
    assert lines[-1]["kind"] == "external"


@pytest.mark.needs("linux")
@pytest.mark.parametrize("data", [b"", b"garbage", b'{"hook_event_name": "Stop"}', b"\xff" * 300])
def test_what_is_no_report_changes_nothing(daemon: Daemon, data: bytes) -> None:
    before = log(daemon)
    hook(daemon, Claude(daemon.workspace), data)
    assert log(daemon) == before


@pytest.mark.needs("linux")
@pytest.mark.parametrize("words", [("hook",), ("hook", "nobody"), ("hook", "codex", "surplus")])
def test_a_wrong_call_does_not_stop_the_agent(daemon: Daemon, words: tuple[str, ...]) -> None:
    """An exit status of 2 means: do not let the tool run."""
    assert daemon.run(*words, input=b"{}").returncode == 0


@pytest.mark.needs("linux", "overlay")
def test_inside_a_world_nothing_is_reported(daemon: Daemon) -> None:
    claude = Claude(daemon.workspace)
    line = f"printf '%s' '{json.dumps(claude.prompt('inside'))}' | {INSTALLED} hook claude-code"
    assert daemon.run("-c", line).returncode == 0
    assert daemon.run("show", "p-").returncode == 4


@pytest.mark.needs("linux")
def test_the_agent_does_not_wait_for_a_daemon_that_hangs(daemon: Daemon) -> None:
    """Its pipes are free as soon as the hook returns; the report is taken later."""
    claude = Claude(daemon.workspace)
    pid = daemon.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        hook(daemon, claude, claude.prompt("patience"))
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: "patience" in daemon.trace.read_text(), "the report")


@pytest.mark.needs("linux", "overlay")
def test_a_held_world_of_an_agent_reaches_the_user_once(daemon: Daemon) -> None:
    claude = Claude(daemon.workspace)
    prompted(daemon, claude, "try it")
    env = {**daemon.env, **claude.variables}
    assert daemon.run("run", "--hold", "--", "sh", "-c", "echo > b.txt", env=env).returncode == 0
    assert daemon.run("run", "--hold", "--", "touch", "of-a-person").returncode == 0
    worlds = json.loads(daemon.run("world", "list", "--json").stdout)["worlds"]
    theirs = next(one["world_id"] for one in worlds if one["command"].startswith("touch"))
    own = next(one["world_id"] for one in worlds if one["world_id"] != theirs)
    answers = []

    def told() -> bool:
        """A busy machine answers after the hook has returned: then the next prompt has it."""
        answers.append(daemon.run("hook", "claude-code", input=encoded(claude.prompt("on"))).stdout)
        return bool(answers[-1])

    until(told, "the notice")
    answer = json.loads(answers[-1])
    assert f"substrate world apply {own}" in answer["systemMessage"]
    context = answer["hookSpecificOutput"]
    assert context["hookEventName"] == "UserPromptSubmit"
    assert own in context["additionalContext"]
    assert theirs not in str(answer)
    hook(daemon, claude, claude.prompt("and on"))


# ------------------------------------------------------------------ where history begins


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Daemon]:
    """A project without history, in which the user lets agents begin one; no daemon runs."""
    with daemon_in(tmp_path, {"SUBSTRATE_HOME": str(tmp_path / "home")}) as found:
        found.program = [str(INSTALLED)]
        (found.workspace / "a.txt").write_text(TEXT)
        settle(found, f'allow = ["{tmp_path}"]')
        yield found


def settle(daemon: Daemon, line: str) -> None:
    home = Path(daemon.env["SUBSTRATE_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(f"[agents]\n{line}\n")


def said(daemon: Daemon, who: Claude | Codex, report: Report) -> str:
    """What the agent shows its user."""
    done = daemon.run("hook", who.agent, input=encoded(report))
    assert (done.returncode, done.stderr) == (0, b"")
    return str(json.loads(done.stdout)["systemMessage"]) if done.stdout else ""


@pytest.mark.needs("linux")
def test_a_session_begins_the_history_and_says_so_once(fresh: Daemon) -> None:
    fresh.serve()
    claude = Claude(fresh.workspace)
    shown = [said(fresh, claude, claude.start())]
    until(lambda: fresh.run("log").returncode == 0, "a history")

    def ask() -> str:
        text = f"prompt {len(shown)}"
        shown.append(said(fresh, claude, claude.prompt(text)))
        until(lambda: fresh.trace.exists() and text in fresh.trace.read_text(), text)
        return shown[-1]

    # A busy machine may say it later: no agent waits for more than 50 ms.
    until(lambda: any(shown) or ask(), "the notice")
    for _ in range(3):
        ask()
    notices = [one for one in shown if one]
    assert len(notices) == 1
    assert str(fresh.workspace) in notices[0]
    assert "deny" in notices[0]
    assert str(fresh.workspace).encode() in fresh.run("projects").stdout
    edit(fresh, claude, "toolu_1", "two", "TWO")
    assert [one["kind"] for one in log(fresh)] == ["edit", "baseline"]
    assert fresh.run("undo", "--prompt").returncode == 0
    assert (fresh.workspace / "a.txt").read_text() == TEXT


@pytest.mark.needs("linux")
def test_what_the_first_tool_overwrites_is_kept(fresh: Daemon) -> None:
    """No history, no daemon, and a tool that writes before anything is recorded."""
    claude = Claude(fresh.workspace)
    path = fresh.workspace / "a.txt"
    hook(fresh, claude, claude.before("Write", "toolu_1", file_path=str(path), content="new\n"))
    path.write_text("new\n")
    done = claude.write(path, "toolu_1", "new\n", None)
    del done["tool_response"]["originalFile"], done["tool_response"]["type"]
    hook(fresh, claude, done)
    until(lambda: "toolu_1" in fresh.run("log", "--json").stdout.decode(), "the edit")
    assert fresh.run("undo", "--session", log(fresh)[0]["session_id"]).returncode == 0
    assert path.read_text() == TEXT
    assert fresh.run("fsck").returncode == 0


@pytest.mark.needs("linux")
@pytest.mark.parametrize("command", ["rm a.txt", "rm -f *.txt", "rm -r sub", "mv sub/b.txt x"])
@pytest.mark.parametrize("known", [False, True], ids=["without history", "with history"])
def test_what_a_command_removes_at_once_is_kept(fresh: Daemon, command: str, known: bool) -> None:
    """The version before it was never recorded, and no daemon runs when the command is reported."""
    files = {"a.txt": TEXT, "sub/b.txt": "b\n"}
    if known:
        assert fresh.run("-c", "true").returncode == 0
        assert fresh.run("daemon", "stop").returncode == 0
    codex = Codex(fresh.workspace)
    for name, text in files.items():
        (fresh.workspace / name).parent.mkdir(exist_ok=True)
        (fresh.workspace / name).write_text(text)
    hook(fresh, codex, codex.shell("PreToolUse", "call_1", command))
    subprocess.run(["bash", "-c", command], cwd=fresh.workspace, check=True)
    hook(fresh, codex, codex.shell("PostToolUse", "call_1", command))
    until(lambda: "call_1" in fresh.run("log", "--json").stdout.decode(), "the command")
    newest = log(fresh)[0]
    assert (newest["kind"], newest["recorded_by"]) == ("command", "observed")
    assert fresh.run("undo", newest["command_id"]).returncode == 0
    found = {name: (fresh.workspace / name).read_text() for name in files}
    assert found == files


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    "line",
    ['allow = ["/nowhere"]', 'allow = ["/"]\ndeny = ["{root}/*"]', "may_take_back = 'any'"],
    ids=["elsewhere", "denied", "not connected"],
)
def test_where_the_user_did_not_agree_no_history_begins(fresh: Daemon, line: str) -> None:
    settle(fresh, line.format(root=fresh.workspace.parent))
    claude = Claude(fresh.workspace)
    for report in (claude.start(), claude.prompt("hello")):
        assert fresh.run("hook", "claude-code", input=encoded(report)).stdout == b""
    fresh.run("daemon", "stop")  # waits for what it still does
    assert not (fresh.workspace / ".substrate-git").exists()


def test_an_agent_in_the_home_directory_begins_no_history(tmp_path: Path) -> None:
    home = tmp_path / "substrate"
    home.mkdir()
    (home / "config.toml").write_text('[agents]\nallow = ["/"]\n')
    env = {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(home)}
    claude = Claude(tmp_path)
    for report in (claude.start(), claude.prompt("hello")):
        done = Program(tmp_path, env)("hook", "claude-code", stdin=encoded(report))
        assert (done.status, done.out, done.err) == (0, b"", b"")
    assert not (tmp_path / ".substrate-git").exists()


def test_what_is_written_outside_the_project_begins_no_history(tmp_path: Path) -> None:
    """An agent writes its own notes, too."""
    home, root, notes = tmp_path / "substrate", tmp_path / "project", tmp_path / "notes"
    for path in (home, root, notes):
        path.mkdir()
    (home / "config.toml").write_text('[agents]\nallow = ["/"]\n')
    claude = Claude(root)
    report = claude.before("Write", "toolu_1", file_path=str(notes / "plan.md"), content="x")
    Program(root, {"SUBSTRATE_HOME": str(home)})("hook", "claude-code", stdin=encoded(report))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "project", "substrate"]
    assert list(notes.iterdir()) == []


@pytest.mark.parametrize("scope", ["user", "project"])
def test_connecting_is_the_agreement(tmp_path: Path, scope: str) -> None:
    home, root, other = tmp_path / "home", tmp_path / "project", tmp_path / "other"
    for path in (home, root, other):
        path.mkdir()
    env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}
    Program(root, env)("connect", "claude-code", "--yes", "--scope", scope).went_well()
    for place in (root, other):
        start = encoded(Claude(place).start())
        Program(place, env)("hook", "claude-code", stdin=start).went_well()
    assert (root / ".substrate-git").exists()
    assert (other / ".substrate-git").exists() == (scope == "user")


@pytest.fixture
def far() -> Iterator[Path]:
    """Where another user may pass."""
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    base.chmod(0o755)
    try:
        yield base
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize(
    "uid",
    [
        pytest.param(None, id="self"),
        pytest.param(NOBODY, id="user", marks=pytest.mark.needs("other-user")),
    ],
)
def test_without_a_daemon_and_as_another_user(far: Path, uid: int | None) -> None:
    root, home = far / "project", far / "home"
    for path in (root, home):
        path.mkdir()
    (root / "a.txt").write_text(TEXT)
    if uid is not None:
        for path in (root, home, root / "a.txt"):
            os.chown(path, uid, uid)
    env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}
    program = Program(root, env, uid)
    program.sh("true")
    codex = Codex(root)
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+TWO\n*** End Patch"
    for report in (codex.prompt("patch it"), codex.patch("PreToolUse", "call_1", patch)):
        program("hook", "codex", stdin=encoded(report)).went_well()
    (root / "a.txt").write_text(TEXT.replace("two", "TWO"))
    program("hook", "codex", stdin=encoded(codex.patch("PostToolUse", "call_1", patch)))
    entry = program.json("log", "--limit", "1")["commands"][0]
    assert (entry["kind"], entry["agent_id"], entry["model"]) == ("edit", "codex", "gpt-5-codex")
    program("undo", "--prompt", "--path", "b.txt").is_clear(4, "did not change b.txt")
    program("undo", "--prompt").went_well()
    assert (root / "a.txt").read_text() == TEXT
