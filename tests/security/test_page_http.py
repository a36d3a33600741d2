"""The page's server refuses everything that its own page would not send."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.daemon_http import PATIENCE_S
from tests.page_site import Page, page_in


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    base = tmp_path_factory.mktemp("page")
    (base / "project").mkdir()
    program = Program(base / "project", {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")})
    program.sh("echo one > a.txt")
    with page_in(program) as started:
        yield started.enter()


PREVIEW = {"verb": "undo", "scope": "@"}


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != name}


def test_the_page_itself_is_served(page: Page) -> None:
    assert page.get("/v1/rows")["total"] == 3
    answer = page.send("POST", "/v1/preview", PREVIEW, page.own_headers())
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("Host", "evil.example", 421),
        ("Host", "localhost", 421),
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Sec-Fetch-Site", "same-site", 403),
        ("X-Substrate", "0", 403),
        ("Content-Type", "text/plain", 415),
        ("Content-Type", "application/x-www-form-urlencoded", 415),
        ("Authorization", "Bearer guessed", 401),
        ("Authorization", "", 401),
    ],
)
def test_a_request_of_another_origin_is_refused(
    page: Page, name: str, value: str, status: int
) -> None:
    answer = page.send("POST", "/v1/preview", PREVIEW, {**page.own_headers(), name: value})
    assert answer.status == status, answer.body
    assert answer.error["kind"] == "refused"


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "X-Substrate", "Content-Type"])
def test_a_post_needs_every_header(page: Page, name: str) -> None:
    headers = without(page.own_headers(), name)
    assert page.send("POST", "/v1/carry-out", {"plan_id": "x"}, headers).status in (403, 415)


@pytest.mark.parametrize("route", ["/v1/rows", "/v1/events", "/v1/file/now?path=a.txt"])
def test_reading_needs_the_secret(page: Page, route: str) -> None:
    assert page.send("GET", route).status == 401
    cookie = {"Cookie": f"secret={page.secret}"}
    assert page.send("GET", route, headers=cookie).status == 401


def test_a_token_that_is_used_twice_closes_the_page(page: Page, tmp_path: Path) -> None:
    with (
        (tmp_path / "errors").open("wb") as errors,
        page_in(page.program, errors=errors) as other,
    ):
        other.status = 5
        first = other.enter().own_headers()
        again = other.send("POST", "/page/exchange", {"token": other.token}, first)
        assert (again.status, again.error["kind"]) == (409, "token")
        try:
            assert other.send("GET", "/v1/rows", headers=first).status == 401
        except OSError:
            pass  # it has ended already
    said = (tmp_path / "errors").read_text()
    assert "the link was used twice" in said and "run `substrate ui` again" in said


def test_a_wrong_token_changes_nothing(page: Page) -> None:
    for wrong in ("", "guess", None, 3, "\ud800"):
        answer = page.send("POST", "/page/exchange", {"token": wrong}, page.own_headers())
        assert answer.status == 409
    assert page.get("/v1/rows"), "the tab that has its secret goes on"


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("POST", "/v1/execute"),
        ("POST", "/v1/execute/stream"),
        ("POST", "/v1/execute/cancel"),
        ("GET", "/v1/stream"),
        ("GET", "/v1/doctor"),
        ("GET", "/../page_server.py"),
        ("GET", "/vendor/../../page_server.py"),
        ("GET", "/vendor/LICENSE.htm"),
    ],
)
def test_other_routes_do_not_exist(page: Page, method: str, route: str) -> None:
    body = {"cmd": "touch ran"} if method == "POST" else None
    assert page.send(method, route, body, page.own_headers()).status == 404
    assert not (page.cwd / "ran").exists()


def test_every_answer_has_the_policy_and_no_cookie(page: Page) -> None:
    for route in ("/", "/app.js", "/v1/rows", "/nowhere"):
        headers = {k.lower(): v for k, v in page.send("GET", route).headers.items()}
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'")
        assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers
        assert not any(name.startswith("access-control-") for name in headers)


def test_a_read_only_page_carries_nothing_out(page: Page, tmp_path: Path) -> None:
    with page_in(page.program, "--read-only") as other:
        other.enter()
        shown = other.send("POST", "/v1/preview", PREVIEW, other.own_headers())
        assert shown.status == 200
        body = {"plan_id": shown.document["plan_id"]}
        assert other.send("POST", "/v1/carry-out", body, other.own_headers()).status == 404
        assert page.send("GET", "/v1/rows", headers=other.own_headers()).status == 403
    assert (page.cwd / "a.txt").exists()


@pytest.mark.parametrize("route", ["/v1/blame?path=a.txt&lines=%00", "/v1/log?session=%00"])
def test_a_nul_in_a_value_is_a_wrong_request(page: Page, route: str) -> None:
    answer = page.send("GET", route, headers=page.own_headers())
    assert (answer.status, answer.error["kind"]) == (400, "usage")


@pytest.mark.parametrize(
    ("route", "body"),
    [("/v1/preview", {"\ud800": 1}), ("/page/settings", {"reviewed": {"\ud800": "\ud800"}})],
)
def test_half_a_character_is_a_wrong_request(page: Page, route: str, body: object) -> None:
    assert page.send("POST", route, body, page.own_headers()).status == 400


@pytest.mark.needs("world-overlay")
def test_a_world_cannot_read_the_link(tmp_path: Path) -> None:
    """The browser gets a file that leads to the link, and no world sees that file."""
    (tmp_path / "project").mkdir()
    (tmp_path / "bin").mkdir()
    opener = tmp_path / "bin" / "xdg-open"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    opener.chmod(0o755)
    env = {
        "HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home"), "DISPLAY": ":9",
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    program = Program(tmp_path / "project", env)
    argv = [str(Path(sys.executable).parent / "substrate"), "ui"]
    with subprocess.Popen(
        argv, cwd=program.cwd, env={**os.environ, **env}, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert b"is open in your browser" in process.stdout.readline()
            file = Path((tmp_path / "opened").read_text())
            assert "url=http://127.0.0.1:" in file.read_text()
            seen = program.sh(
                f"cat '{file}' || grep -rls 'url=http://12[7]' '{tmp_path}/home'; true"
            )
            assert seen.text == ""
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
    assert not file.exists()


@pytest.mark.needs("world-overlay")
def test_the_plan_of_a_held_world_is_the_chosen_hunks(page: Page) -> None:
    page.program("--hold", "-c", "chmod 755 a.txt; echo two >> a.txt").went_well()
    [world] = page.program.json("world", "list")["worlds"]
    name = world["world_id"]
    hunks = page.program.json("world", "diff", name, "--hunks")["hunks"]
    both = [one["id"] for one in hunks]
    [content] = [one["id"] for one in hunks if one["kind"] == "lines"]
    assert len(both) == 2
    plans = []
    for chosen in ([content], both):
        wanted = {"verb": "apply", "scope": name, "hunks": chosen}
        answer = page.send("POST", "/v1/preview", wanted, page.own_headers())
        assert answer.status == 200, answer.body
        plans.append(answer.document["plan_id"])
    assert plans[0] != plans[1]
    done = page.send("POST", "/v1/carry-out", {"plan_id": plans[0]}, page.own_headers())
    assert done.status == 200, done.body
    file = page.cwd / "a.txt"
    assert file.read_text() == "one\ntwo\n"
    assert not file.stat().st_mode & 0o111, "that hunk was not chosen"


CONNECT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as one:
    one.settimeout(60)
    one.connect((sys.argv[1], int(sys.argv[2])))
    try:
        print(one.recv(1))  # the request is never sent: only a refusal ends this
    except ConnectionResetError:
        print("closed")
"""


@pytest.mark.needs("linux")
@pytest.mark.needs("other-user")
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1"])
def test_a_connection_of_another_user_is_closed_at_once(page: Page, address: str) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", CONNECT, address, str(page.port)], user=nobody,
        cwd="/", capture_output=True, check=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stdout.strip() in ("closed", "b''")


@pytest.mark.needs("linux")
def test_whose_connection_it_is() -> None:
    from substrate.page.page_connection import user_of

    with socket.create_server(("127.0.0.1", 0)) as server:
        for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::ffff:")):
            with socket.socket(family) as client:
                client.connect((f"{address}127.0.0.1", server.getsockname()[1]))
                accepted, peer = server.accept()
                with accepted:
                    assert user_of(peer, accepted.getsockname()) == os.geteuid()
    assert user_of(("127.0.0.1", 1), ("127.0.0.1", 1)) is None
