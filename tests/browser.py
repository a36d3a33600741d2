"""A real browser, driven by its debugging protocol: real clicks and keys, no further packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.daemons import until

PATIENCE_S = 60.0
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1440,900",
)  # fmt: skip
_KEYS = {"Enter": "\r", "Escape": ""}


class Browser:
    """One tab. `problems` has every console message, exception and report since the start."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        sent = {"id": self._number, "method": method, "params": parameters}
        self._connection.send(json.dumps(sent))
        while True:
            message = json.loads(self._connection.recv(PATIENCE_S))
            self._note(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                result = message["result"]
                assert isinstance(result, dict)
                return result

    def _note(self, message: dict[str, Any]) -> None:
        shown = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        if message.get("method") in shown:
            self.problems.append(json.dumps(message["params"])[:500])

    def open(self, link: str) -> None:
        self.call("Page.navigate", url=link)

    def value(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Until the expression is true."""
        until(lambda: self.value(f"!!({script})"), script)

    def text(self, selector: str) -> str:
        self.wait(f"document.querySelector({json.dumps(selector)})")
        return str(self.value(f"document.querySelector({json.dumps(selector)}).textContent"))

    def click(self, selector: str, containing: str = "") -> None:
        """A real click in the middle of the first such element that can be used."""
        find = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find(e => e.textContent.includes({json.dumps(containing)}) && !e.disabled)"
        )
        self.wait(find)
        place = self.value(
            f"(() => {{ const e = {find}; e.scrollIntoView({{block: 'nearest'}});"
            " const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left",
                clickCount=1,
            )  # fmt: skip

    def press(self, key: str) -> None:
        text = _KEYS.get(key, key)
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)


@contextmanager
def browser() -> Iterator[Browser]:
    """A new browser with an empty profile."""
    program = shutil.which("chromium")
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        env = {**os.environ, "HOME": profile}
        argv = [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(argv, env=env, stdout=quiet, stderr=quiet) as process:
            try:
                port_file = Path(profile, "DevToolsActivePort")
                until(lambda: port_file.exists() and "\n" in port_file.read_text(), "the browser")
                port = int(port_file.read_text().split()[0])
                with connect(_tab(port), max_size=None, open_timeout=PATIENCE_S) as connection:
                    yield Browser(connection)
            finally:
                process.terminate()
                process.wait(PATIENCE_S)


def _tab(port: int) -> str:
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE_S) as answer:
        tabs = json.loads(answer.read())
    return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")
