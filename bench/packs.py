"""Context Packs: pack, show, diff, log by number of steps and packs; memory; growth; 24 at once.

    python bench/packs.py [--steps 1000,10000] [--packs 500] [--megabytes 300] [--rounds 5]

A step has a tool, two parameters and an output of about 200 bytes, all different. Every figure is
the installed `ctx` as a process, start-up included: the median of the rounds, with processor time
beside it, which says more on a machine that others use, too. Memory is the process's own high-water
mark. "diff, one insert" compares with the same run with one more step; "diff, all other" with one
in which every output differs. "again" packs a log whose objects are all there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CTX = shutil.which("ctx", path=str(Path(sys.executable).parent)) or "ctx"
PEAK = """
import sys
from substrate.cli.ctx import ctx
status = ctx(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak.split()[1], file=sys.stderr)
sys.exit(status)
"""


def log(steps: int, salt: str = "") -> dict[str, Any]:
    return {
        "model": {"identifier": "m", "parameters": {"temperature": 0}},
        "system_prompt": f"Be careful. {salt}",
        "prompts": [{"role": "user", "content": "Go."}],
        "steps": [
            {
                "type": "tool_call",
                "tool": ("read_file", "shell", "search")[n % 3],
                "parameters": {"path": f"src/file{n}.py", "limit": n},
                "output": f"output {n} {salt}\n" * 12,
                "timestamp": f"2026-02-10T10:{n // 60 % 60:02d}:{n % 60:02d}Z",
            }
            for n in range(steps)
        ],
        "outputs": [{"name": "result.md", "content": f"done {salt}"}],
        "environment": {"os": "linux", "runtime": "python"},
    }


def timed(root: Path, *words: str) -> tuple[float, float]:
    """Seconds by the clock and by the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([CTX, *words], cwd=root, capture_output=True, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1:
        raise SystemExit(done.stderr.decode())
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, spent


def tell(label: str, times: list[tuple[float, float]]) -> None:
    wall, spent = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{label:<44} {wall * 1000:>9.0f} ms {spent * 1000:>9.0f} ms")


def rounds(count: int, root: Path, *words: str) -> list[tuple[float, float]]:
    return [timed(root, *words) for _ in range(count)]


def pack(root: Path, found: dict[str, Any]) -> str:
    argv, data = [CTX, "pack", "-"], json.dumps(found).encode()
    done = subprocess.run(argv, cwd=root, input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def fresh(parent: str, name: str) -> Path:
    root = Path(parent, name)
    root.mkdir()
    subprocess.run([CTX, "init"], cwd=root, check=True, capture_output=True)
    return root


def by_steps(parent: str, steps: int, count: int) -> None:
    times = []
    for number in range(count):
        root = fresh(parent, f"pack-{steps}-{number}")
        (root / "run.json").write_text(json.dumps(log(steps)))
        times.append(timed(root, "pack", "run.json"))
    tell(f"pack, {steps:,} steps, new", times)
    tell(f"pack, {steps:,} steps, again", rounds(count, root, "pack", "run.json"))
    tell(f"show, {steps:,} steps", rounds(count, root, "show"))
    tell(f"show --step, {steps:,} steps", rounds(count, root, "show", "--step", str(steps // 2)))
    found = log(steps)
    found["steps"].insert(steps // 2, {"type": "t", "tool": "t", "output": "new"})
    first, second, other = "latest", pack(root, found), pack(root, log(steps, "other"))
    first = pack(root, log(steps))
    tell(f"diff, one insert, {steps:,} steps", rounds(count, root, "diff", first, second))
    tell(f"diff, all other, {steps:,} steps", rounds(count, root, "diff", first, other))
    tell(f"fsck, {steps:,} steps, three packs", rounds(count, root, "fsck"))
    size = sum(path.stat().st_size for path in (root / ".ctx").rglob("*") if path.is_file())
    print(f"{f'bytes in .ctx, {steps:,} steps, three packs':<44} {size:>12,}")


def by_packs(parent: str, packs: int, count: int) -> None:
    root = fresh(parent, "many")
    script = """
import io, json, sys
from pathlib import Path
from substrate.packs.store.log_to_pack import LogFile, pack_log
from substrate.packs.store.ctx_store import Store
store = Store(Path(".ctx").absolute())
for line in sys.stdin.buffer:
    pack_log(store, LogFile("log", io.BytesIO(line), (store.directory,)))
"""
    logs = b"".join(json.dumps(log(20, str(n))).encode() + b"\n" for n in range(packs))
    subprocess.run([sys.executable, "-c", script], cwd=root, input=logs, check=True)
    tell(f"log, {packs} packs of 20 steps", rounds(count, root, "log"))
    tell(f"show, {packs} packs", rounds(count, root, "show"))
    (root / "one.json").write_text(json.dumps(log(20, "more")))
    tell(f"pack one more, {packs} packs", rounds(count, root, "pack", "one.json"))
    tell(f"gc --dry-run, {packs} packs", rounds(count, root, "gc", "--dry-run"))


def memory(parent: str, megabytes: int) -> None:
    root = fresh(parent, "big")
    found = json.dumps(log(1)).split("output 0 \\n", 1)
    line = json.dumps('a line of a build\'s output, with "quotes" and é\n' * 10_000)[1:-1]
    with (root / "run.json").open("w") as file:
        file.write(found[0])
        written = 0
        while written < megabytes * 1_000_000:
            written += file.write(line)
        file.write(found[1])
    argv = [sys.executable, "-c", PEAK, "pack", "run.json"]
    started = time.perf_counter()
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True)
    wall = time.perf_counter() - started
    print(f"{f'pack, one output of {megabytes} MB':<44} {wall * 1000:>9.0f} ms")
    print(f"{'memory for it':<44} {int(done.stderr) / 1024:>9.0f} MiB")


def at_once(parent: str, count: int) -> None:
    root = fresh(parent, "at-once")
    (root / "run.json").write_text(json.dumps(log(100)))
    started = time.perf_counter()
    argv = [CTX, "pack", "run.json"]
    packers = [subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE) for _ in range(count)]
    told = {(packer.communicate()[0], packer.returncode) for packer in packers}
    wall = time.perf_counter() - started
    verdict = "one hash, all succeeded" if len(told) == 1 and {s for _, s in told} == {0} else told
    print(f"{f'{count} packs of one log at once':<44} {wall * 1000:>9.0f} ms  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", default="1000,10000")
    parser.add_argument("--packs", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ.setdefault("SUBSTRATE_HOME", tempfile.mkdtemp())
    print(f"{'':<44} {'clock':>12} {'processor':>12}")
    with tempfile.TemporaryDirectory() as parent:
        for steps in map(int, args.steps.split(",")):
            by_steps(parent, steps, args.rounds)
        by_packs(parent, args.packs, args.rounds)
        at_once(parent, 24)
        memory(parent, args.megabytes)


if __name__ == "__main__":
    main()
