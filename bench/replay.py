"""What a replay costs: by the step, by the pack, and beside the commands themselves.

    python bench/replay.py [--steps 1000] [--packs 500] [--commands 50]

File-tool steps (one read each), many small packs one after the other, and shell steps in a world
and without one beside the bare `bash -c`. Seconds are whole calls of `ctx`, its start included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]


def ctx(where: Path, *words: str) -> tuple[float, int]:
    start = time.perf_counter()
    done = subprocess.run([*CTX, *words], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(done.stderr or done.stdout)
    return time.perf_counter() - start, done.returncode


def pack(where: Path, steps: list[dict[str, object]], tag: str = "") -> None:
    log = {
        "model": {"identifier": "m", "parameters": {"tag": tag}},
        "system_prompt": "s",
        "inputs": [{"name": f"f{n}.txt", "content": f"{n}\n"} for n in range(100)],
        "steps": steps,
        "environment": {"os": "linux", "runtime": "r"},
    }
    (where / "log.json").write_text(json.dumps(log))
    ctx(where, "pack", "log.json")


def reads(count: int) -> list[dict[str, object]]:
    return [
        {"type": "t", "tool": "read_file", "parameters": {"path": f"f{n % 100}.txt"},
         "output": f"{n % 100}\n"}
        for n in range(count)
    ]  # fmt: skip


def shells(count: int) -> list[dict[str, object]]:
    return [
        {"type": "t", "tool": "shell", "parameters": {"command": "true"}, "output": ""}
        for _ in range(count)
    ]


def bare(count: int) -> float:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        subprocess.run(["bash", "-c", "true"], check=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--packs", type=int, default=500)
    parser.add_argument("--commands", type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as directory:
        where = Path(directory, "project")
        where.mkdir()
        os.environ["SUBSTRATE_HOME"] = str(Path(directory, "home"))
        ctx(where, "init")
        pack(where, [])
        empty, _ = ctx(where, "replay", "latest")
        print(f"replay of no steps (100 inputs laid out)     {empty * 1e3:8.0f} ms")
        for count in (args.steps, args.steps * 10):
            pack(where, reads(count))
            taken, _ = ctx(where, "replay", "latest")
            each = (taken - empty) / count * 1e6
            print(f"{count:6d} file-tool steps {taken:8.2f} s, {each:6.0f} µs each")
        pack(where, shells(args.commands))
        ctx(where, "replay", "latest")  # the probe's first look
        for strategy in ("copy-diff", "direct"):
            taken, _ = ctx(where, "replay", "latest", "--in-place-of-world", strategy)
            each = (taken - empty) / args.commands * 1e3
            print(f"shell step, {strategy:<10} {each:8.1f} ms each")
        print(f"bare bash -c true      {bare(args.commands) * 1e3:8.1f} ms each")
        many = Path(directory, "many")
        many.mkdir()
        ctx(many, "init")
        for n in range(args.packs):
            pack(many, reads(3), str(n))
        taken, _ = ctx(many, "replay", "--all")
        print(
            f"replay --all, {args.packs} packs  {taken:8.2f} s, "
            f"{taken / args.packs * 1e3:.1f} ms each"
        )


if __name__ == "__main__":
    main()
