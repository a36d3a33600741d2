"""What watching costs a connection, and relaying a stream.

    python bench/network.py [--connects 2000] [--megabytes 256]

A command in a network namespace of this script's own connects to a server on loopback, again and
again, unwatched and watched, in turns; then a stream is read bare and through the relay of
``--net allow:``. Needs root, or user namespaces.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tests.unit.world.network.launcher import Ran, python  # noqa: E402
from tests.unit.world.network.stage import Stage  # noqa: E402

_CONNECTS = """
import socket, sys, time
count = int(sys.argv[1])
target = (sys.argv[2], 8000)
taken = []
for _ in range(count):
    with socket.socket() as made:
        start = time.perf_counter()
        made.connect(target)
        taken.append(time.perf_counter() - start)
taken.sort()
print(taken[count // 2] * 1e6)
"""
_STREAM = """
import socket, sys, threading, time
size = int(sys.argv[1]) << 20
made = socket.create_connection((sys.argv[2], 8000))
made.recv(6, socket.MSG_WAITALL)
block = bytes(1 << 20)
def send():
    for _ in range(size >> 20): made.sendall(block)
    made.shutdown(socket.SHUT_WR)
start = time.perf_counter()
threading.Thread(target=send).start()
got = 0
while data := made.recv(1 << 20): got += len(data)
assert got == size
print(size / (1 << 20) / (time.perf_counter() - start))
"""
_ADDRESS = "93.184.216.34"


def figure(net: str, code: str, amount: int) -> float:
    ran: Ran = Stage(net, python(code, amount, _ADDRESS), (("tcp", _ADDRESS, 8000),)).run()
    if ran.status != 0:
        sys.exit(ran.out)
    return float(ran.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connects", type=int, default=2000)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    allowed = f"allow:{_ADDRESS}:*"
    kinds = {"unwatched": "none", "watched (open)": "open", "relayed (allow:)": allowed}
    for name, code, amount, unit in (
        ("one connect", _CONNECTS, args.connects, "µs"),
        ("a stream there and back", _STREAM, args.megabytes, "MB/s"),
    ):
        taken: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind, net in kinds.items():
                taken[kind].append(figure(net, code, amount))
        print(name)
        for kind, values in taken.items():
            print(f"  {kind}: {statistics.median(values):.0f} {unit}")


if __name__ == "__main__":
    main()
