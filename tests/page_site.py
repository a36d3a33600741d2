"""The page's server as a user starts it, and requests to it with nothing between."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.contract.program import Program
from tests.daemon_http import PATIENCE_S, Answer


class Page:
    """A running `substrate ui`, and what its own page would send."""

    def __init__(self, program: Program, link: str) -> None:
        self.program = program
        self.cwd = program.cwd
        self.link = link
        self.port = int(link.split(":")[2].split("/", maxsplit=1)[0])
        self.token = link.partition("#")[2]
        self.host = f"127.0.0.1:{self.port}"
        self.secret = ""
        #: How it ends; with another status than 0 by itself.
        self.status = 0

    def own_headers(self) -> dict[str, str]:
        return {
            "Origin": f"http://{self.host}",
            "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/json",
            "X-Substrate": "1",
            "Authorization": f"Bearer {self.secret}",
        }

    def send(
        self, method: str, route: str, body: object = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """A request with these headers, and no others but Host."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, route, data, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.read(), dict(response.getheaders()))
        finally:
            connection.close()

    def enter(self) -> Page:
        answer = self.send("POST", "/page/exchange", {"token": self.token}, self.own_headers())
        assert answer.status == 200, answer.body
        self.secret = answer.document["secret"]
        return self

    def get(self, route: str) -> dict[str, Any]:
        answer = self.send("GET", route, headers=self.own_headers())
        assert answer.status == 200, answer.body
        return answer.document


@contextmanager
def page_in(program: Program, *words: str, errors: IO[bytes] | None = None) -> Iterator[Page]:
    """`errors`: where its stderr goes."""
    env = {**os.environ, "SUBSTRATE_AGENT": "off", **program.env}
    argv = [str(Path(sys.executable).parent / "substrate"), "ui", "--no-open", "--json", *words]
    with subprocess.Popen(
        argv, cwd=program.cwd, env=env, stdout=subprocess.PIPE, stderr=errors
    ) as process:
        assert process.stdout is not None
        page = Page(program, json.loads(process.stdout.readline())["url"])
        try:
            yield page
        finally:
            if page.status == 0:
                process.send_signal(signal.SIGINT)
            try:
                ended = process.wait(PATIENCE_S)
            finally:
                process.kill()
    assert ended == page.status
