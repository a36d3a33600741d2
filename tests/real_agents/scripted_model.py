"""A model that follows a script, on loopback, for the real command-line agents.

It runs in a network namespace with nothing but loopback, so that no agent reaches the internet:

    unshare -n python scripted_model.py TURNS.json OUT.json PROGRAM ARG…

starts the model, runs the program beside it, and writes what the program printed and what the model
was asked. TURNS is a list of turns, a turn is a list of calls ``{"tool": NAME, "input": …}``. After
the last turn the model says "done". The number of answers that a request already holds says which
turn is next: a repeated request gets the same answer, and one without tools gets a word.

A call with ``"subagent": TURNS`` starts a sub-agent, whose prompt is ``SUBAGENT``: the requests of
that conversation follow these turns.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

PORT = 18080
SUBAGENT = "SUBAGENT"
USAGE = {"input_tokens": 1, "output_tokens": 1}

Json = dict[str, Any]


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    turns: ClassVar[list[list[Json]]] = []
    #: Of the one sub-agent.
    subagent: ClassVar[list[list[Json]]] = []
    requests: ClassVar[list[Json]] = []
    #: How long the model thinks before it answers.
    pause_s: ClassVar[float] = 0

    def log_message(self, *words: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [], "models": []}), "application/json")

    def do_HEAD(self) -> None:
        self._send("", "application/json")

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked: Json = json.loads(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        self.requests.append({"path": path, "body": asked, "time": time.monotonic()})
        time.sleep(self.pause_s)
        if path.endswith("/messages"):
            self._events(anthropic(asked, self._turn(asked, "assistant", "messages")), asked)
        elif path.endswith("/responses"):
            self._events(openai(self._openai_turn(asked)), asked)
        elif path.lower().endswith("generatecontent"):
            self._events([("", gemini(self._turn(asked, "model", "contents")))], asked, path)
        else:
            self._send(json.dumps({"input_tokens": 1, "totalTokens": 1}), "application/json")

    def _turn(self, asked: Json, role: str, field: str) -> list[Json]:
        if not asked.get("tools"):
            return []
        said = asked.get(field, [])
        turns = self.subagent if said and SUBAGENT in json.dumps(said[0]) else self.turns
        number = sum(one.get("role") == role for one in said)
        return turns[number] if number < len(turns) else []

    def _openai_turn(self, asked: Json) -> list[Json]:
        """The number of calls in the request says which turn is next."""
        if not asked.get("tools"):
            return []
        calls = ("function_call", "custom_tool_call")
        done = sum(one.get("type") in calls for one in asked.get("input", []))
        for turn in self.turns:
            if done <= 0:
                return turn
            done -= len(turn)
        return []

    def _events(self, events: list[tuple[str, Json]], asked: Json, path: str = "") -> None:
        if path.endswith(":generateContent"):
            self._send(json.dumps(events[0][1]), "application/json")
            return
        lines = [
            (f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n"
            for name, event in events
        ]
        self._send("".join(lines), "text/event-stream")

    def _send(self, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def anthropic(asked: Json, turn: list[Json]) -> list[tuple[str, Json]]:
    """The events of Anthropic's Messages."""
    number = f"{len(asked.get('messages', []))}_{len(json.dumps(asked['messages'][0]))}"
    blocks: list[Json] = [
        {
            "type": "tool_use", "id": f"toolu_{number}_{i}", "name": call["tool"],
            "input": call["input"],
        }
        for i, call in enumerate(turn)
    ] or [{"type": "text", "text": "done"}]  # fmt: skip
    message = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "content": [],
        "model": asked.get("model", ""), "stop_reason": None, "stop_sequence": None, "usage": USAGE,
    }  # fmt: skip
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start: Json = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        at = {"index": index}
        events += [
            {"type": "content_block_start", **at, "content_block": start},
            {"type": "content_block_delta", **at, "delta": delta},
            {"type": "content_block_stop", **at},
        ]
    reason = {"stop_reason": "tool_use" if turn else "end_turn", "stop_sequence": None}
    events += [
        {"type": "message_delta", "delta": reason, "usage": USAGE},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events]


def openai(turn: list[Json]) -> list[tuple[str, Json]]:
    """The events of OpenAI's Responses."""
    before = next((i for i, one in enumerate(Model.turns) if one is turn), len(Model.turns))
    first = sum(len(one) for one in Model.turns[:before])
    items: list[Json] = []
    for number, call in enumerate(turn, first):
        same = {"call_id": f"call_{number}", "name": call["tool"], "status": "completed"}
        if "namespace" in call:  # Codex's name for an MCP server's tools
            same["namespace"] = call["namespace"]
        if isinstance(call["input"], str):  # apply_patch takes text
            items.append({"type": "custom_tool_call", "id": f"c{number}", **same, **call})
        else:
            words = {"arguments": json.dumps(call["input"])}
            items.append({"type": "function_call", "id": f"f{number}", **same, **words})
    if not turn:
        text = {"type": "output_text", "text": "done", "annotations": []}
        items = [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed",
             "content": [text]}
        ]  # fmt: skip
    usage = {**USAGE, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0}}
    answer = {"id": f"resp_{first}", "object": "response", "status": "completed", "output": items}
    events: list[Json] = [{"type": "response.created", "response": {**answer, "output": []}}]
    for index, item in enumerate(items):
        at = {"output_index": index, "item": item}
        events += [
            {"type": "response.output_item.added", **at},
            {"type": "response.output_item.done", **at},
        ]
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    events.append({"type": "response.completed", "response": {**answer, "usage": usage}})
    return [(event["type"], event) for event in events]


def gemini(turn: list[Json]) -> Json:
    """An answer of Gemini's generateContent."""
    parts: list[Json] = [
        {"functionCall": {"name": call["tool"], "args": call["input"]}} for call in turn
    ] or [{"text": "done"}]
    content = {"role": "model", "parts": parts}
    tokens = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": tokens,
    }


def loopback_up() -> None:
    """``ip link set lo up``, without `ip`."""
    import fcntl

    up = 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", up))  # SIOCSIFFLAGS


def main(turns: str, out: str, *program: str) -> None:
    loopback_up()
    Model.turns = json.loads(Path(turns).read_text())
    Model.pause_s = float(os.environ.get("SCRIPTED_PAUSE_S", "0"))
    calls = [call for turn in Model.turns for call in turn]
    Model.subagent = next((call.pop("subagent") for call in calls if "subagent" in call), [])
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = subprocess.run(
        program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=200
    )
    answer = {
        "exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr,
        "requests": Model.requests,
    }  # fmt: skip
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
