"""kill -9 of each process that takes part in a command, at random moments.

A command writes, renames, appends, creates and removes. Whichever process is killed, afterwards:

    the workspace is as before, as after, or as the command itself had left it when it died
    history matches the workspace, and `fsck` finds no problem
    the next command works
    no process, mount, world or temporary file is left

The moment and the victim are drawn from a seed: a failure names its round.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.daemons import PATIENCE_S, Daemon, daemon_in, pids_with, until

pytestmark = [
    pytest.mark.needs("linux", "world-overlay", "root"),
    pytest.mark.timeout(0),
]

_DEFAULT_ROUNDS, _LONG_ROUNDS = 15, 500
#: And how long after it is first seen it may be struck: a call, a command, what comes after.
_VICTIMS = {"client": 0.5, "daemon": 0.5, "runner": 0.2, "init": 0.07, "command": 0.07}
Tree = dict[str, bytes | None]

OLD: Tree = {
    "b": b"old\n", "c": b"old\n", "d": b"old\n", "log": b"old\n", "gone": None, "gone/x": b"old\n",
    "node_modules": None, "node_modules/m": b"old\n",
}  # fmt: skip
_RESET = (
    "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +; mkdir gone node_modules;"
    " for f in b c d log gone/x node_modules/m; do echo old > $f; done"
)


class Step(NamedTuple):
    line: str
    #: The trees that may be met while it runs, the last of them when it is done.
    sets: tuple[dict[str, bytes | None], ...] = ()
    removes: tuple[str, ...] = ()


def steps(n: int) -> list[Step]:
    new = b"%d\n" % n
    return [
        Step(f"echo {n} > t", ({"t": b""}, {"t": new})),
        Step("mv t b", ({"b": new},), ("t",)),
        Step("sleep 0.02"),
        Step("mv c moved", ({"moved": b"old\n"},), ("c",)),
        Step(f"echo {n} >> log", ({"log": b"old\n" + new},)),
        Step("mkdir made", ({"made": None},)),
        Step(f"echo {n} > made/y", ({"made/y": b""}, {"made/y": new})),
        Step("rm d", ({},), ("d",)),
        Step("rm gone/x", ({},), ("gone/x",)),
        Step("rmdir gone", ({},), ("gone",)),
        Step("rm node_modules/m", ({},), ("node_modules/m",)),
        Step(f"echo {n} > node_modules/k",
             ({"node_modules/k": b""}, {"node_modules/k": new})),
    ]  # fmt: skip


def prefixes(n: int) -> list[Tree]:
    """Every state that the command passes through, from the first to the last."""
    now = dict(OLD)
    out = [dict(now)]
    for step in steps(n):
        for change in step.sets:
            for name in step.removes:
                now.pop(name, None)
            now.update(change)
            out.append(dict(now))
    return out


def tree(root: Path) -> Tree:
    found: Tree = {}
    for above, directories, files in os.walk(root):
        # Not ours: the daemon may still be cleaning up there.
        directories[:] = [name for name in directories if name not in (".substrate-git", ".git")]
        here = Path(above)
        found.update({str((here / name).relative_to(root)): None for name in directories})
        for name in files:
            found[str((here / name).relative_to(root))] = (here / name).read_bytes()
    return found


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path) as started:
        yield started.serve()


def victims(daemon: Daemon, victim: str, client: int) -> list[int]:
    if victim == "client":
        return [client]
    if victim == "daemon":
        return [daemon.pid] if daemon.pid else []
    runners = daemon.runners()
    if victim == "runner":
        return runners[:1]
    inits = [pid for pid in below(runners) if is_init(pid)]
    return inits[:1] if victim == "init" else below(inits)[:1]


def below(pids: list[int]) -> list[int]:
    """Their children."""
    found: list[int] = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            continue
        found += [int(word) for word in words]
    return found


def is_init(pid: int) -> bool:
    """Whether it is the first process of a pid namespace below ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    [line] = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return len(line.split()) > 2 and line.split()[-1] == "1"


def at_work(daemon: Daemon) -> list[int]:
    """Processes of commands and their recorders: their working directory is the workspace."""
    found = []
    for pid in pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(daemon.workspace):
                found.append(pid)
        except OSError:
            continue
    return found


def kill(pids: list[int]) -> bool:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return bool(pids)


def strike(daemon: Daemon, n: int, chance: random.Random) -> tuple[str, bool]:
    """One command and one kill; returns the chosen victim, and whether there was one."""
    victim = tuple(_VICTIMS)[n % len(_VICTIMS)]
    line = "; ".join(step.line for step in steps(n))
    client = daemon.start("--world", "-c", line)
    found: list[int] = []
    met = False
    while client.poll() is None and not (found := victims(daemon, victim, client.pid)):
        time.sleep(0.001)  # it is about to begin
    time.sleep(chance.uniform(0, _VICTIMS[victim]))
    if client.poll() is None or victim != "client":
        met = kill(found)
    client.communicate(timeout=PATIENCE_S)
    until(lambda: not at_work(daemon), f"the end of round {n}, {victim}")
    return victim, met


def judge(daemon: Daemon, n: int, victim: str) -> str:
    """What has become of it, once the next command has run."""
    done = daemon.run("--world", "-c", "true")
    assert done.returncode == 0, done.stderr.decode()
    found = tree(daemon.workspace)
    known = prefixes(n)
    assert found in known, f"a state that the command never made: {found}"
    kept = recorded(daemon)
    of_history = {k: v for k, v in found.items() if v is not None and "node_modules" not in k}
    assert kept == of_history, f"history says {kept}, there stands {of_history}"
    worlds = daemon.run("world", "list")
    waiting = [word for word in worlds.stdout.decode().split() if word.startswith("wld_")]
    for world in waiting:
        assert found == OLD, "a world waits though its change has arrived"
        dropped = daemon.run("world", "discard", world)
        assert dropped.returncode == 0, dropped.stderr.decode()
    if found in (known[0], known[-1]):
        return "old" if found == known[0] else "new"
    # A dying command may leave half of its changes; the death of any other process must not.
    assert victim in ("client", "command", "init"), f"half of it, and {victim} was struck"
    return "part"


def recorded(daemon: Daemon) -> dict[str, bytes]:
    git = ["git", f"--git-dir={daemon.workspace}/.substrate-git/.git"]
    listed = subprocess.run([*git, "ls-tree", "-rz", "HEAD"], capture_output=True, check=True)
    rows = [row.partition(b"\t") for row in listed.stdout.split(b"\0") if row]
    oids = b"".join(row[0].split()[2] + b"\n" for row in rows)
    batch = subprocess.run(
        [*git, "cat-file", "--batch"], input=oids, capture_output=True, check=True
    )
    found, rest = {}, batch.stdout
    for _, _, name in rows:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split()[2])
        found[name.decode()], rest = rest[:size], rest[size + 1 :]
    return found


def reset(daemon: Daemon) -> None:
    """The next command: it works, and what it does arrives."""
    done = daemon.run("--world", "-c", _RESET)
    assert done.returncode == 0, done.stderr.decode()
    assert tree(daemon.workspace) == OLD
    until(lambda: not at_work(daemon), "the end of what it tidies up, or that would be struck")


def temporary(directory: Path) -> list[Path]:
    """Temporary files; a random id such as ``c-1m7pxn9yr4tmp`` may have the same letters."""
    an_id = re.compile(r"(?!tmp)[a-z]{1,3}[-_][0-9a-z]{8,}")
    return [path for path in directory.rglob("*tmp*") if not an_id.fullmatch(path.name)]


def left_behind(daemon: Daemon) -> list[str]:
    """Leftovers that nothing needs after the daemon has ended, too."""
    store = daemon.workspace / ".substrate-git"
    kept = discarded(store)
    found = [f"world {one.name}" for one in (store / "worlds").iterdir() if one.name not in kept]
    found += [f"journal {path.name}" for path in (store / "journal").iterdir()]
    found += [f"temporary {path}" for path in temporary(store)]
    found += [f"process {pid}" for pid in pids_with(f"SUBSTRATE_SOCKET={daemon.socket}")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if str(daemon.workspace) in line]
    home = daemon.trace.parent
    found += [f"home {path}" for path in temporary(home)]
    worlds = home / "worlds"
    found += [f"world {path.name}" for path in worlds.iterdir()] if worlds.exists() else []
    return found


def discarded(store: Path) -> set[str]:
    """The worlds that `judge` discarded: they stay for as long as the trash does."""
    with closing(sqlite3.connect(store / "index/history.db")) as ledger:
        rows = ledger.execute("SELECT payload FROM intents WHERE kind = 'discarded'").fetchall()
    return {json.loads(payload)["world_id"] for (payload,) in rows}


def sweep(daemon: Daemon, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    ended: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for n in range(rounds * 3):
        if n >= rounds and all(struck[name] for name in _VICTIMS):
            break  # a victim that was gone too soon each time gets further rounds
        reset(daemon)
        victim, met = strike(daemon, n, chance)
        try:
            state = judge(daemon, n, victim)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {n}, {victim}: {error}") from error
        struck[victim] += met
        ended[f"{victim} {state}"] += 1
        if n % 50 == 49:
            fsck = daemon.run("fsck")
            assert fsck.returncode == 0, f"after round {n}: {fsck.stderr.decode()}"
    print(f"\n{rounds} rounds, struck {dict(struck)}, ended {dict(sorted(ended.items()))}")
    assert set(struck) == set(_VICTIMS) and all(struck.values()), struck
    fsck = daemon.run("fsck")
    assert fsck.returncode == 0, fsck.stderr.decode()
    daemon.run("daemon", "stop")
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the daemon's end")
    assert left_behind(daemon) == []


def test_kills_at_random_moments(daemon: Daemon) -> None:
    sweep(daemon, _DEFAULT_ROUNDS, seed=1)


@pytest.mark.long
def test_five_hundred_kills(daemon: Daemon) -> None:
    sweep(daemon, _LONG_ROUNDS, seed=2)


def test_the_states_are_those_of_a_plain_run(tmp_path: Path) -> None:
    """The model against a shell without us, step by step."""
    subprocess.run(["sh", "-ec", _RESET], cwd=tmp_path, check=True)
    known = prefixes(7)
    assert tree(tmp_path) == known[0]
    for step in steps(7):
        subprocess.run(["sh", "-ec", step.line], cwd=tmp_path, check=True)
        assert tree(tmp_path) in known
    assert tree(tmp_path) == known[-1]


def test_the_judge_can_fail(daemon: Daemon) -> None:
    """Each thing that it looks for, planted."""
    reset(daemon)
    (daemon.workspace / "b").write_bytes(b"torn")
    with pytest.raises(AssertionError, match="never made"):
        judge(daemon, 0, "runner")
    (daemon.workspace / "b").write_bytes(b"old\n")
    assert daemon.run("--world", "-c", "echo 0 > t").returncode == 0
    with pytest.raises(AssertionError, match="half of it"):
        judge(daemon, 0, "runner")
    store = daemon.workspace / ".substrate-git"
    for place in ("worlds/wld_x", "journal/c-x"):
        (store / place).mkdir()
    (store / "index" / "tmp_x").touch()
    said = "\n".join(left_behind(daemon))
    assert {"world wld_x", "journal c-x"} <= set(left_behind(daemon))
    assert "tmp_x" in said and "process " in said
