"""What Substrate adds to each tool call of the real coding agents.

    python bench/agents.py AGENTS [ROUNDS] [NAME…]

AGENTS is the directory that `scripts/test --agents` installs them into (it has `bin` and
`node_modules`). Each round runs the same script of calls without Substrate and with it, in turns,
with a scripted model on loopback. A call's time is that between two requests to the model: it also
has the agent's own work, which is the same in both. The first calls of a session are left out, and
printed apart: they wait for the daemon.

    Bash (Claude Code)          the prefix: one command in a world
    edit tools, observed shell  two hooks: start of the client, and up to 50 ms for its report
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.real_agents.conftest import CODEX_CONFIG, GEMINI_SETTINGS, Home, Ran

CALLS, FIRST = 12, 3
ENDINGS = ("/messages", "/responses", "generatecontent")
Turns = list[list[dict[str, Any]]]


def claude(home: Home, kind: str) -> Ran:
    shell = {"tool": "Bash", "input": {"command": "true"}}
    return home.claude(turns(home, kind, shell, "Write"), "--permission-mode", "bypassPermissions")


def codex(home: Home, kind: str) -> Ran:
    shell = {"tool": "exec_command", "input": {"cmd": "true"}}
    return home.codex(turns(home, kind, shell, ""))


def gemini(home: Home, kind: str) -> Ran:
    shell = {"tool": "run_shell_command", "input": {"command": "true"}}
    script = turns(home, kind, shell, "write_file")
    return home.gemini(script, "--approval-mode", "yolo")


def turns(home: Home, kind: str, shell: dict[str, Any], write: str) -> Turns:
    if kind == "shell":
        # No two alike: Gemini CLI stops a model that repeats itself.
        [field] = shell["input"]
        return [[{**shell, "input": {field: f"true {n}"}}] for n in range(CALLS)]
    if not write:
        text = "*** Begin Patch\n*** Add File: n{}.txt\n+n\n*** End Patch"
        return [[{"tool": "apply_patch", "input": text.format(n)}] for n in range(CALLS)]
    place = str(home.project)
    return [
        [{"tool": write, "input": {"file_path": f"{place}/n{n}.txt", "content": "n\n"}}]
        for n in range(CALLS)
    ]


AGENTS: dict[str, tuple[str, Callable[[Home, str], Ran]]] = {
    "claude": ("claude-code", claude),
    "codex": ("codex", codex),
    "gemini": ("gemini", gemini),
}

SETTINGS = {
    "codex": ((".codex", "config.toml", CODEX_CONFIG),),
    "gemini": ((".gemini", "settings.json", GEMINI_SETTINGS),),
}


def run(base: Path, agents: Path, name: str, kind: str, *, connected: bool) -> list[float]:
    """The milliseconds between the model's requests."""
    base.mkdir()
    home = Home(base, agents)
    title, work = AGENTS[name]
    for directory, file, text in SETTINGS.get(name, ()):
        (base / directory).mkdir()
        (base / directory / file).write_text(text)
    home.env["IS_SANDBOX"] = "1"  # Claude Code lets root bypass permissions only in a sandbox
    if connected:
        # The agent's own hooks start the daemon: one that was started here would be in another
        # network namespace, and every command would take the long way without it.
        home.with_daemon()
        home.substrate("connect", title, "--yes", *(("--trust-hooks",) * (name == "codex")))
    try:
        done = work(home, kind)
    finally:
        if connected:
            home.substrate("daemon", "stop")
    if done.exit != 0 or len(done.results()) != CALLS:
        sys.exit(f"{name} made {len(done.results())} of {CALLS} calls: {done.said[-800:]}")
    asked = [one for one in done.requests if one["body"].get("tools")]
    times = [one["time"] for one in asked if one["path"].lower().endswith(ENDINGS)]
    return [(b - a) * 1000 for a, b in pairwise(times)]


def show(what: str, bare: list[float], connected: list[float]) -> None:
    medians = [statistics.median(one) for one in (bare, connected)]
    quarters = [statistics.quantiles(one, n=4) for one in (bare, connected)]
    added = medians[1] - medians[0]
    spread = " and ".join(f"{one[0]:.0f}–{one[2]:.0f}" for one in quarters)
    print(
        f"  {what:34} {medians[0]:7.1f} → {medians[1]:7.1f} ms   added {added:6.1f}"
        f"   (half of them: {spread}; n = {len(bare)}, {len(connected)})",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    agents, rounds = Path(sys.argv[1]), int((sys.argv[2:] or ["3"])[0])
    with tempfile.TemporaryDirectory(prefix="bench-agents-", ignore_cleanup_errors=True) as scratch:
        for name in sys.argv[3:] or AGENTS:
            print(name)
            for kind in ("shell", "edit"):
                taken: dict[bool, list[list[float]]] = {False: [], True: []}
                for number in range(rounds):
                    for connected in (False, True):
                        base = Path(scratch, f"{name}-{kind}-{number}-{connected}")
                        taken[connected].append(run(base, agents, name, kind, connected=connected))
                rest = [[ms for one in taken[is_on] for ms in one[FIRST:]] for is_on in taken]
                first = [[ms for one in taken[is_on] for ms in one[:FIRST]] for is_on in taken]
                show(f"{kind}, a call", *rest)
                show(f"{kind}, the first {FIRST} calls", *first)


if __name__ == "__main__":
    main()
