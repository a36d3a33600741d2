"""kill -9 of whoever takes part in a command, at random moments of it.

A command writes, renames, appends, makes and removes. Whoever is struck, afterwards:

    the workspace is as before, as after, or as the command itself had left it when it died
    what history says of it is what stands there, and `fsck` is content
    the next command works
    no process, mount, world or temporary file is left

The moment and the victim are drawn from a seed: a failure names its round.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents import PATIENCE_S, Agent, agent_in, pids_with, until

pytestmark = [
    pytest.mark.needs("linux", "world-overlay", "root"),
    pytest.mark.timeout(0),
]

_DEFAULT_ROUNDS, _LONG_ROUNDS = 15, 500
#: And how long after it is first seen it may be struck: a call, a command, what comes after.
_VICTIMS = {"client": 0.5, "agent": 0.5, "runner": 0.2, "init": 0.07, "command": 0.07}
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
        # Not ours: the agent may still be tidying up there.
        directories[:] = [name for name in directories if name not in (".substrate-git", ".git")]
        here = Path(above)
        found.update({str((here / name).relative_to(root)): None for name in directories})
        for name in files:
            found[str((here / name).relative_to(root))] = (here / name).read_bytes()
    return found


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with agent_in(tmp_path) as started:
        yield started.serve()


def victims(agent: Agent, victim: str, client: int) -> list[int]:
    if victim == "client":
        return [client]
    if victim == "agent":
        return [agent.pid] if agent.pid else []
    runners = agent.runners()
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


def at_work(agent: Agent) -> list[int]:
    """Processes of commands and of those that record them: they stand in the workspace."""
    found = []
    for pid in pids_with(f"SUBSTRATE_SOCKET={agent.socket}"):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(agent.workspace):
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


def strike(agent: Agent, n: int, chance: random.Random) -> tuple[str, bool]:
    """One command and one kill; who was meant, and whether anybody was there."""
    victim = tuple(_VICTIMS)[n % len(_VICTIMS)]
    line = "; ".join(step.line for step in steps(n))
    client = agent.start("--world", "-c", line)
    found: list[int] = []
    met = False
    while client.poll() is None and not (found := victims(agent, victim, client.pid)):
        time.sleep(0.001)  # it is about to begin
    time.sleep(chance.uniform(0, _VICTIMS[victim]))
    if client.poll() is None or victim != "client":
        met = kill(found)
    client.communicate(timeout=PATIENCE_S)
    until(lambda: not at_work(agent), f"the end of round {n}, {victim}")
    return victim, met


def judge(agent: Agent, n: int, victim: str) -> str:
    """What has become of it, once the next command has run."""
    done = agent.run("--world", "-c", "true")
    assert done.returncode == 0, done.stderr.decode()
    found = tree(agent.workspace)
    known = prefixes(n)
    assert found in known, f"a state that the command never made: {found}"
    kept = recorded(agent)
    of_history = {k: v for k, v in found.items() if v is not None and "node_modules" not in k}
    assert kept == of_history, f"history says {kept}, there stands {of_history}"
    worlds = agent.run("world", "list")
    waiting = [word for word in worlds.stdout.decode().split() if word.startswith("wld_")]
    for world in waiting:
        assert found == OLD, "a world waits though its change has arrived"
        dropped = agent.run("world", "discard", world)
        assert dropped.returncode == 0, dropped.stderr.decode()
    if found in (known[0], known[-1]):
        return "old" if found == known[0] else "new"
    # What a dying command has left is what it did; nobody else's death may show half of it.
    assert victim in ("client", "command", "init"), f"half of it, and {victim} was struck"
    return "part"


def recorded(agent: Agent) -> dict[str, bytes]:
    git = ["git", f"--git-dir={agent.workspace}/.substrate-git/.git"]
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


def reset(agent: Agent) -> None:
    """The next command: it works, and what it does arrives."""
    done = agent.run("--world", "-c", _RESET)
    assert done.returncode == 0, done.stderr.decode()
    assert tree(agent.workspace) == OLD
    until(lambda: not at_work(agent), "the end of what it tidies up, or that would be struck")


def left_behind(agent: Agent) -> list[str]:
    """What nobody needs any more, once the agent is gone too."""
    store = agent.workspace / ".substrate-git"
    found = [f"world {path.name}" for path in (store / "worlds").iterdir()]
    found += [f"journal {path.name}" for path in (store / "journal").iterdir()]
    found += [f"temporary {path}" for path in store.rglob("*tmp*")]
    found += [f"process {pid}" for pid in pids_with(f"SUBSTRATE_SOCKET={agent.socket}")]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line}" for line in mounts if str(agent.workspace) in line]
    home = agent.trace.parent
    found += [f"home {path}" for path in home.rglob("*tmp*")]
    worlds = home / "worlds"
    found += [f"world {path.name}" for path in worlds.iterdir()] if worlds.exists() else []
    return found


def sweep(agent: Agent, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    ended: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for n in range(rounds * 3):
        if n >= rounds and all(struck[name] for name in _VICTIMS):
            break  # a victim that was gone too soon each time gets further rounds
        reset(agent)
        victim, met = strike(agent, n, chance)
        try:
            state = judge(agent, n, victim)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, round {n}, {victim}: {error}") from error
        struck[victim] += met
        ended[f"{victim} {state}"] += 1
        if n % 50 == 49:
            fsck = agent.run("fsck")
            assert fsck.returncode == 0, f"after round {n}: {fsck.stderr.decode()}"
    print(f"\n{rounds} rounds, struck {dict(struck)}, ended {dict(sorted(ended.items()))}")
    assert set(struck) == set(_VICTIMS) and all(struck.values()), struck
    fsck = agent.run("fsck")
    assert fsck.returncode == 0, fsck.stderr.decode()
    agent.run("agent", "stop")
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={agent.socket}"), "the agent's end")
    assert left_behind(agent) == []


def test_kills_at_random_moments(agent: Agent) -> None:
    sweep(agent, _DEFAULT_ROUNDS, seed=1)


@pytest.mark.long
def test_five_hundred_kills(agent: Agent) -> None:
    sweep(agent, _LONG_ROUNDS, seed=2)


def test_the_states_are_those_of_a_plain_run(tmp_path: Path) -> None:
    """The model against a shell without us, step by step."""
    subprocess.run(["sh", "-ec", _RESET], cwd=tmp_path, check=True)
    known = prefixes(7)
    assert tree(tmp_path) == known[0]
    for step in steps(7):
        subprocess.run(["sh", "-ec", step.line], cwd=tmp_path, check=True)
        assert tree(tmp_path) in known
    assert tree(tmp_path) == known[-1]


def test_the_judge_can_fail(agent: Agent) -> None:
    """Each thing that it looks for, planted."""
    reset(agent)
    (agent.workspace / "b").write_bytes(b"torn")
    with pytest.raises(AssertionError, match="never made"):
        judge(agent, 0, "runner")
    (agent.workspace / "b").write_bytes(b"old\n")
    assert agent.run("--world", "-c", "echo 0 > t").returncode == 0
    with pytest.raises(AssertionError, match="half of it"):
        judge(agent, 0, "runner")
    store = agent.workspace / ".substrate-git"
    for place in ("worlds/wld_x", "journal/c-x"):
        (store / place).mkdir()
    (store / "index" / "tmp_x").touch()
    said = "\n".join(left_behind(agent))
    assert {"world wld_x", "journal c-x"} <= set(left_behind(agent))
    assert "tmp_x" in said and "process " in said
