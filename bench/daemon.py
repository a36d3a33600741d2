"""What a small command costs through the daemon, beside bash and beside the bare interpreter.

    python bench/daemon.py [ROUNDS]

Takes the `substrate` on PATH, or the one beside this interpreter; its own socket, home and
workspace. Rounds alternate, so that a busy machine is busy for all, and the daemon has time between
two commands; then the same commands back to back, where the next world competes with its call.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(calls: dict[str, list[str]], rounds: int, cwd: Path) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, argv in calls.items():
            started = time.perf_counter()
            subprocess.run(
                argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, check=True,
            )  # fmt: skip
            taken[name].append((time.perf_counter() - started) * 1000)
    return taken


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    beside = Path(sys.executable).with_name("substrate")
    substrate = str(beside) if beside.exists() else shutil.which("substrate")
    assert substrate, "no substrate on PATH"
    base = Path(tempfile.mkdtemp(prefix="bench-daemon-"))
    project = base / "project"
    project.mkdir()
    os.environ.update(
        SUBSTRATE_HOME=str(base / "home"), SUBSTRATE_SOCKET=str(base / "s.sock"),
        SUBSTRATE_DAEMON="on",
    )  # fmt: skip
    os.environ.pop("SUBSTRATE_PARENT_SPAN", None)
    daemon = subprocess.Popen([substrate, "daemon", "serve"], stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    daemon.stdout.readline()
    calls = {
        "bash -c true": ["bash", "-c", "true"],
        "python -I -S -c pass": [sys.executable, "-I", "-S", "-c", "pass"],
        "substrate -c true": [substrate, "-c", "true"],
        "substrate -c true, no daemon": ["env", "SUBSTRATE_DAEMON=off", substrate, "-c", "true"],
    }
    try:
        measure(calls, 3, project)
        taken = measure(calls, rounds, project)
        name = "substrate -c true"
        taken[name + ", back to back"] = measure({name: calls[name]}, rounds, project)[name]
        said = subprocess.run([substrate, "daemon", "status", "--json"], stdout=subprocess.PIPE)
        state = json.loads(said.stdout)
    finally:
        subprocess.run([substrate, "daemon", "stop"], stdout=subprocess.DEVNULL, check=False)
        daemon.wait()
        daemon.stdout.close()
        shutil.rmtree(base, ignore_errors=True)
    for name, times in taken.items():
        print(f"{name:28} median {statistics.median(times):7.1f} ms   best {min(times):7.1f} ms")
    print(f"{state['ahead']} of {state['served']} calls got a world made ahead")
    bash, python, ours = (list(taken.values())[at] for at in (0, 1, 2))
    for word, of in (("median", statistics.median), ("best", min)):
        added = of(ours) - of(bash)
        print(f"{word}: adds {added:.1f} ms to bash, {of(ours) / of(python):.2f} x bare python")


if __name__ == "__main__":
    main()
