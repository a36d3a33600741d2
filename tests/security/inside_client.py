"""Run inside a world, by any Python: speaks to the broker by hand, and says what it heard.

Its argument is a file with a list of calls; each gives a dictionary: the frames' bytes by kind,
and how it ended. Nothing of ours is imported, because a world may not show it.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
from typing import Any

WHERE = os.environ.get("SUBSTRATE_BROKER", "/nowhere")


def body(call: dict[str, Any]) -> bytes:
    if "raw" in call:
        return bytes.fromhex(call["raw"])
    fields = [call.get("kind", "ask"), call.get("cwd", os.getcwd()), call.get("flags", ""), "80"]
    fields += call.get("words", [])
    text = b"".join(os.fsencode(field) + b"\0" for field in fields)
    return len(text).to_bytes(4, "big") + text


def receive(connection: socket.socket, length: int) -> bytes:
    got = b""
    while len(got) < length:
        part = connection.recv(length - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def ask(call: dict[str, Any]) -> dict[str, str]:
    heard: dict[str, str] = {}
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(WHERE)
        connection.settimeout(60)
        if call.get("descriptors"):
            with open("/etc/passwd", "rb") as file:
                fds = array.array("i", [file.fileno()] * int(call["descriptors"]))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
                connection.sendmsg([body(call)], rights)
        else:
            connection.sendall(body(call))
        while True:
            head = receive(connection, 5)
            payload = receive(connection, int.from_bytes(head[1:], "big"))
            kind = head[:1].decode()
            heard[kind] = heard.get(kind, "") + payload.decode("utf-8", "replace")
            if kind == "X":
                heard["end"] = "answered"
                return heard
    except (OSError, EOFError) as error:
        heard["end"] = type(error).__name__
        return heard
    finally:
        connection.close()


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        calls = json.load(file)
    kept = []
    answers = []
    for call in calls:
        if "silent" in call:  # many clients that send little or nothing
            for _ in range(int(call["silent"])):
                connection = socket.socket(socket.AF_UNIX)
                connection.setblocking(False)
                try:
                    connection.connect(WHERE)
                    connection.sendall(b"\0")
                except OSError:
                    connection.close()
                    break
                kept.append(connection)
            answers.append({"end": "silent"})
        else:
            answers.append(ask(call))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
