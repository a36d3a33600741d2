"""Answer an agent's first questions while the SDK is still being imported, which takes a second.

Agents do not wait long: Codex goes on without a server that is not ready. What the SDK answered to
`initialize`, `server/discover` and `tools/list` at the last start is kept, and is said at once:

    agent ──▶ stdin ──▶ pump ──▶ pipe ──▶ SDK        every message, in order
    agent ◀── stdout ◀─ pump ◀── pipe ◀── SDK        but for what was answered early
                └─ early answer

The SDK still answers these questions itself. Its answer is compared with the early one and kept for
the next start; only a change of version can make them differ.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from substrate import __version__
from substrate.system.files import read_bytes_or_none, write_atomic

_NAME = "mcp-answers.json"
_MOST_BYTES = 1 << 20
#: The last line for the pump; the SDK writes JSON only.
_END = b"\0\n"
_METHODS = ("initialize", "server/discover", "tools/list")
_VERSION = "io.modelcontextprotocol/protocolVersion"
Json = dict[str, object]


class EarlyAnswers:
    """The kept answers, and those that the agent got already."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: Json = _load(path)
        #: Questions that wait for the SDK's answer: id of the request -> name of the answer.
        self._asked: dict[str, str] = {}
        self._early: set[str] = set()
        self._version = ""

    def early(self, line: bytes) -> bytes | None:
        """An answer to this message of the agent, if one is kept."""
        message = _parsed(line)
        name, number = self._question(message), json.dumps(message.get("id"))
        if not name or message.get("id") is None:
            return None
        self._asked[number] = name
        if name not in self._known:
            return None
        self._early.add(number)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._known[name]}
        return json.dumps(answer).encode() + b"\n"

    def _question(self, message: Json) -> str:
        """The name under which the answer is kept; empty for any other message.

        An answer depends on the version of the protocol, which a client says at first or always.
        """
        given, method = _mapping(message.get("params")), message.get("method")
        if method not in _METHODS or given.get("cursor"):
            return ""
        said = given.get("protocolVersion") or _mapping(given.get("_meta")).get(_VERSION)
        self._version = str(said or self._version)
        return f"{method} {self._version}"

    def is_due(self, line: bytes) -> bool:
        """Whether the agent still waits for this message of the SDK; keeps what it answers."""
        if not self._asked:
            return True
        message = _parsed(line)
        number = json.dumps(message.get("id"))
        name = self._asked.pop(number, None) if "method" not in message else None
        if name is None:
            return True
        if "result" in message and self._known.get(name) != message["result"]:
            self._known[name] = message["result"]
            self._save()
        is_due = number not in self._early
        self._early.discard(number)
        return is_due

    def _save(self) -> None:
        data = json.dumps({"versions": _versions(), "answers": self._known}).encode()
        try:
            if len(data) <= _MOST_BYTES:
                write_atomic(self._path, data, durable=False)
        except OSError:
            pass  # the next start is slower


def begin(substrate_home: Path) -> Callable[[], None]:
    """Put the pumps between this process's stdin and stdout and its SDK; returns how to end."""
    answers = EarlyAnswers(substrate_home / _NAME)
    to_sdk_out, to_sdk = os.pipe()
    from_sdk, from_sdk_in = os.pipe()
    agent_in, agent_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(to_sdk_out, 0)
    os.dup2(from_sdk_in, 1)
    os.close(to_sdk_out)
    writing = threading.Lock()

    def say(line: bytes) -> None:
        with writing:
            agent_out.write(line)
            agent_out.flush()

    asking = (agent_in, os.fdopen(to_sdk, "wb"), answers, say)
    threading.Thread(target=_pump_questions, args=asking, daemon=True).start()
    telling = threading.Thread(
        target=_pump_answers, args=(os.fdopen(from_sdk, "rb"), answers, say), daemon=True
    )
    telling.start()

    def end() -> None:
        sys.stdout.flush()
        os.write(from_sdk_in, _END)  # the SDK has copies of the pipe: it does not end by itself
        telling.join()

    return end


def _pump_questions(
    source: BinaryIO, target: BinaryIO, answers: EarlyAnswers, say: Callable[[bytes], None]
) -> None:
    try:
        for line in source:
            answer = answers.early(line)
            target.write(line)
            target.flush()
            if answer is not None:
                say(answer)
    except OSError:
        pass  # one side is gone
    finally:
        target.close()


def _pump_answers(source: BinaryIO, answers: EarlyAnswers, say: Callable[[bytes], None]) -> None:
    try:
        for line in source:
            if line == _END:
                return
            if answers.is_due(line):
                say(line)
    except OSError:
        pass


def _parsed(line: bytes) -> Json:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _load(path: Path) -> Json:
    found = _parsed(read_bytes_or_none(path) or b"")
    answers = found.get("answers")
    is_current = found.get("versions") == _versions()
    return answers if is_current and isinstance(answers, dict) else {}


def _versions() -> list[str]:
    return [__version__, metadata.version("mcp")]
