"""A command inside a world gets from the broker only what the broker offers, and nothing else.

The broker runs outside, with the rights of its user: every call here is made by hand, from inside
a real world, like by a hostile command.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program

pytestmark = pytest.mark.needs("linux", "root", "overlay")

CLIENT = Path(__file__).parent / "inside_client.py"
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
Answers = list[dict[str, str]]


class Victim:
    """A workspace with a history, whose next command is hostile."""

    def __init__(self, base: Path, uid: int) -> None:
        self.base = base
        self.root = base / "project"
        self.uid = uid
        self.root.mkdir(parents=True)
        (base / "home").mkdir()
        (self.root / "a").write_text("1\n")
        shutil.copy(CLIENT, self.root / "client.py")
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid)
        os.chmod(base, 0o755)
        env = {"HOME": str(base / "home"), "SUBSTRATE_HOME": str(base / "home" / ".substrate"),
               "PATH": "/usr/local/bin:/usr/bin:/bin"}  # fmt: skip
        self.program = Program(self.root, env, uid or None)
        self.program("-c", "echo 2 > a").went_well()

    def call(self, *calls: dict[str, Any], options: tuple[str, ...] = ()) -> Answers:
        (self.root / "calls.json").write_text(json.dumps(calls))
        line = f"{PYTHON} -I client.py calls.json"
        found: Answers = json.loads(self.program("--world", *options, "-c", line).went_well().text)
        assert len(found) == len(calls)
        return found

    @property
    def ids(self) -> list[str]:
        """Newest first."""
        commands = self.program.json("log", "--limit", "0")["commands"]
        return [entry["command_id"] for entry in commands if entry["kind"] == "command"]


@pytest.fixture(params=[0, NOBODY], ids=lambda uid: f"uid{uid}")
def victim(request: pytest.FixtureRequest) -> Iterator[Victim]:
    base = Path(tempfile.mkdtemp(prefix="substrate-inside-"))
    try:
        yield Victim(base, request.param)
    finally:
        shutil.rmtree(base)


@pytest.fixture
def roots(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "v", 0)


def test_it_is_reached_in_every_tier_and_without_a_network(victim: Victim) -> None:
    for tier, net in (("workspace", "open"), ("guarded", "off"), ("full", "off")):
        options = ("--isolate", tier, "--net", net)
        calls = ({"words": ["log"]}, {"words": ["diff", "@", "a"]})
        log, other = victim.call(*calls, options=options)
        assert (log["end"], log["X"]) == ("answered", "0"), tier
        assert "echo 2 > a" in log["o"]
        assert other["X"] == "0"


def test_the_least_trusted_see_their_own_session_only(roots: Victim) -> None:
    (theirs,) = roots.ids
    full = ("--isolate", "full", "--session", "mine")
    answers = roots.call(
        {"words": ["log", "--session", "mine"]},
        {"words": ["log"]},
        {"words": ["show", theirs]},
        {"words": ["diff", theirs]},
        {"words": ["status"]},
        {"words": ["log", "--session", "s-"]},
        {"words": ["undo", "--dry-run", theirs]},
        {"words": ["--json", "undo", "--dry-run", theirs]},
        options=full,
    )
    assert [one["X"] for one in answers[2:]] == ["5"] * 6
    assert "echo 2 > a" not in "".join(one.get("o", "") for one in answers)
    # In the other tiers it is the workspace's whole history.
    (seen,) = roots.call({"words": ["show", theirs]}, options=("--session", "mine"))
    assert seen["X"] == "0"


def test_nothing_outside_the_workspace_is_reached(roots: Victim) -> None:
    victim = roots
    other = victim.base / "other"
    secret = Program(other, victim.program.env, victim.program.uid)
    other.mkdir()
    os.chown(other, victim.uid, victim.uid)
    secret("-c", "echo hidden-words > s").went_well()
    os.symlink(other, victim.root / "link")
    before = sorted(path for path in victim.base.rglob("*") if ".substrate" not in str(path))
    away = [
        {"words": ["log", "-C", str(other)]},
        {"words": ["-C", str(other), "log"]},
        {"words": [f"--workspace={other}", "diff", "@"]},
        {"words": ["log", "--agent-id", "boss"]},
        {"words": ["log", "--path", "/etc/passwd"]},
        {"words": ["diff", "/etc/passwd"]},
        {"words": ["diff", "@", str(other / "s")]},
        {"words": ["undo", "--with-git"]},
        {"words": ["undo", "--path", "../other/s"]},
        {"words": ["checkpoint", "--session", "other"]},
    ]
    refused = victim.call(*away)
    assert all(one["X"] in ("2", "4", "5") for one in refused), refused
    # A directory is a claim: whatever it is, the answer is of this workspace.
    claims: list[dict[str, Any]] = [
        {"words": words, "cwd": cwd}
        for cwd in ("/", "/etc", str(other), str(victim.root / "link"),
                    f"{victim.root}/../other", f"{victim.root}/link/../../other")
        for words in (["log"], ["status"])
    ]  # fmt: skip
    answers = victim.call(*claims)
    assert {one["X"] for one in answers} == {"0"}
    everything = json.dumps([*refused, *answers])
    assert "hidden-words" not in everything
    assert str(other) + '"' not in everything
    after = sorted(path for path in victim.base.rglob("*") if ".substrate" not in str(path))
    assert [path for path in after if path not in before] == [victim.root / "calls.json"]


def test_only_the_fixed_verbs_are_carried_out(roots: Victim) -> None:
    mark = roots.base / "home" / "ran"
    verbs = [
        ["run", "--", "touch", str(mark)], ["-c", f"touch {mark}"], ["-f", "client.py"],
        ["agent", "stop"], ["agent", "serve"], ["world", "list"], ["world", "apply", "wld_"],
        ["recover", "restore", "x", "--to", str(mark)], ["rewrite", "--base", "HEAD"],
        ["history", "reset", "--yes"], ["compact"], ["fsck", "--repair"], ["redo"], ["shell"],
        ["rollback", "--session", "x"], ["trace"], ["replay", "spn_"], ["doctor"], ["session",
        "close"], ["blame", "a"], ["stats"], ["nonsense"], [], ["--help"], ["log", "--nonsense"],
    ]  # fmt: skip
    answers = roots.call(*({"words": words} for words in verbs))
    for words, one in zip(verbs, answers, strict=True):
        assert one["end"] == "answered" and one["X"] in ("2", "5", "125"), (words, one)
    assert not mark.exists()


def test_what_is_no_call_is_not_answered_and_does_no_harm(victim: Victim) -> None:
    def framed(text: bytes, length: int | None = None) -> dict[str, Any]:
        size = len(text) if length is None else length
        return {"raw": (size.to_bytes(4, "big") + text).hex()}

    bad = [
        framed(b"x" * 100, 0xFFFFFFFF),
        framed(b"ask\0" * 1000, 1 << 20),
        framed(b""),
        framed(b"\0" * 5000),
        framed(b"ask\0relative\0\08\0log\0"),
        framed(b"ask\0/\0\0not a number\0log\0"),
        framed(b"eval\0/\0\08\0log\0"),
        framed(b"ask\0/\0\08\0log"),
        framed(b"ask\0/\0\0" + b"9" * 5000 + b"\0log\0"),
    ]
    *refused, good = victim.call(*bad, {"words": ["log"]})
    assert all("X" not in one for one in refused), refused
    assert (good["X"], good["end"]) == ("0", "answered")
    odd = victim.call(
        {"words": ["log"], "descriptors": 200},
        {"words": ["show", "\udcff\udcfe"]},
        {"words": ["show", "x" * 200_000]},
        {"words": ["checkpoint", "-m", "a\nb\x1b[31m"]},
        {"words": ["log", "--limit", "9" * 4000]},
    )
    assert [one["X"] for one in odd[:4]] == ["0", "4", "4", "0"], odd
    assert odd[4]["end"] == "answered" and "Traceback" not in odd[4].get("e", "")


def test_a_silent_caller_holds_up_no_other_for_long(roots: Victim) -> None:
    silent, answered = roots.call({"silent": 20}, {"words": ["log"]})
    assert silent["end"] == "silent"
    assert answered["X"] == "0"


def test_a_record_of_a_nested_command_cannot_be_forged_above_its_own(roots: Victim) -> None:
    (earlier,) = roots.program.json("trace")["spans"][-1:]
    begin = ["", earlier["span_id"], "c", "true"]
    answers = roots.call(
        {"kind": "end", "words": [earlier["span_id"], "0", "0", "1"]},
        {"kind": "begin", "words": begin},
        {"kind": "end", "words": ["spn_made_up", "0", "0", "1"]},
        {"kind": "begin", "words": ["full", "", "c", "true"]},
        {"kind": "begin", "words": []},
        {"kind": "end", "words": []},
    )
    assert [one.get("X") for one in answers] == ["5", "0", "5", "5", "5", "5"]
    nested = [span for span in roots.program.json("trace")["spans"] if span.get("nested")]
    assert {span["parent_span"] for span in nested} != {earlier["span_id"]}
    assert all(span["told_by"] == "the world" for span in nested)
    assert [span["outcome"] for span in nested if "outcome" in span] == ["unknown"]


def test_marks_and_undos_are_bounded(roots: Victim) -> None:
    calls: list[dict[str, Any]] = [{"words": ["checkpoint"]} for _ in range(25)]
    answers = roots.call(*calls)
    assert [one["X"] for one in answers] == ["0"] * 20 + ["5"] * 5


def test_no_other_caller_is_answered(victim: Victim) -> None:
    """Not a process outside, not root, not another world: only what the command has started."""
    ready = victim.base / "home" / "ready"
    line = f"echo $SUBSTRATE_BROKER > {ready}; exec sleep 60"
    env = {**os.environ, "SUBSTRATE_DAEMON": "off", **victim.program.env}
    how = ["-m", "substrate"]
    if victim.uid:
        from tests.contract.program import AS_USER

        how = ["-c", AS_USER, str(victim.uid)]
    with subprocess.Popen([sys.executable, *how, "-c", line], cwd=victim.root, env=env) as running:
        try:
            while not (ready.exists() and ready.read_text().endswith("\n")):
                time.sleep(0.05)
                assert running.poll() is None
            while not (found := [p for p in _children(running.pid) if _is_sleep(p)]):
                time.sleep(0.05)
            (sleeper,) = found
            door = Path(f"/proc/{sleeper}/root") / ready.read_text().strip().lstrip("/")
            with socket.socket(socket.AF_UNIX) as outside:
                outside.settimeout(20)
                directory = os.open(door.parent, os.O_PATH)
                outside.connect(f"/proc/self/fd/{directory}/{door.name}")
                os.close(directory)
                text = b"ask\0/\0\08\0log\0"
                with suppress(BrokenPipeError):
                    outside.sendall(len(text).to_bytes(4, "big") + text)
                assert _everything(outside) == b""
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(30)


def _everything(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionError:
        return b""


def _children(pid: int) -> list[int]:
    from substrate.system.process.process_tree import descendants

    return [process.pid for process in descendants(pid)]


def _is_sleep(pid: int) -> bool:
    return _words(pid) == b"sleep\x0060\0"


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_if_the_waiting_process_is_killed_the_broker_ends_too(roots: Victim) -> None:
    ready = roots.base / "ready"
    name = f"marked-{os.getpid()}-{time.monotonic_ns()}"
    (roots.root / "calls.json").write_text(json.dumps([{"words": ["log"]}, {"silent": 3}]))
    line = f": {name}; {PYTHON} -I client.py calls.json && touch {ready}; sleep 60"
    env = {**os.environ, "SUBSTRATE_DAEMON": "off", **roots.program.env}
    argv = [sys.executable, "-m", "substrate", "-c", line]
    with subprocess.Popen(argv, cwd=roots.root, env=env) as running:
        while not ready.exists():
            time.sleep(0.05)
            assert running.poll() is None
        broker = [pid for pid in _children(running.pid) if b"substrate-broker" in _words(pid)]
        assert broker, "nobody answered"
        running.kill()
        running.wait(30)
    deadline = time.monotonic() + 30
    while any(_words(pid) for pid in broker):
        assert time.monotonic() < deadline, "it stayed"
        time.sleep(0.05)
    assert roots.program("-c", "true").went_well()
    assert roots.program("fsck").went_well()


def test_nothing_stays_behind(roots: Victim) -> None:
    """Neither a process, nor a mount, nor a file."""
    before = set(os.listdir("/tmp"))
    roots.call({"words": ["log"]}, {"words": ["checkpoint"]}, {"silent": 3})
    marker = os.fsencode(roots.root)
    deadline = time.monotonic() + 30
    while left := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
                   if pid != os.getpid() and marker in _words(pid)]:  # fmt: skip
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert list((roots.root / ".substrate-git" / "worlds").iterdir()) == []
    assert str(roots.base) not in Path("/proc/self/mountinfo").read_text()
    run = roots.base / "home" / ".substrate" / "run"
    assert list(run.iterdir()) == []
    assert not {name for name in set(os.listdir("/tmp")) - before if "broker" in name}
