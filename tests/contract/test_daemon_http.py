"""The daemon over HTTP, as docs/daemon.md describes it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon_http import Answer, UnixConnection, request
from tests.daemons import Daemon, daemon_in, until

pytestmark = pytest.mark.needs("linux")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("daemon")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as started:
        yield started.serve()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def post(daemon: Daemon, route: str, body: object) -> Answer:
    return request(daemon.socket, "POST", route, body, {"content-type": "application/json"})


def execute(daemon: Daemon, cwd: Path, cmd: str, **more: Any) -> Answer:
    return post(daemon, "/v1/execute", {"cmd": cmd, "cwd": str(cwd), **more})


def stream(daemon: Daemon, cwd: Path, cmd: str) -> list[dict[str, Any]]:
    said = post(daemon, "/v1/execute/stream", {"cmd": cmd, "cwd": str(cwd)})
    return [json.loads(line) for line in said.body.splitlines()]


def test_capabilities(daemon: Daemon) -> None:
    found = request(daemon.socket, "GET", "/v1/capabilities").document
    assert {"version", "features", "strategies"} <= set(found)
    for strategy in found["strategies"]:
        assert strategy["works"] or strategy["why"]


def test_doctor(daemon: Daemon) -> None:
    answer = request(daemon.socket, "GET", "/v1/doctor")
    assert answer.status == 200, answer.body
    assert {one["tier"] for one in answer.document["tiers"]} >= {"none", "workspace"}
    assert answer.document["findings"]


def test_the_sockets_are_their_owners_alone(daemon: Daemon) -> None:
    for path in (daemon.socket, daemon.directory / "door.sock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(daemon.directory.stat().st_mode) == 0o700


def test_a_command_and_its_answer(daemon: Daemon, project: Path) -> None:
    (project / "old").write_text("old\n")
    (project / "gone").write_text("gone\n")
    cmd = "echo new > made; echo more >> old; rm gone; echo out; echo err >&2; exit 3"
    answer = execute(
        daemon, project, cmd,
        env={"SUBSTRATE_SESSION_ID": "s-http"}, pty=False, agent_id="robot",
    )  # fmt: skip
    found = answer.document
    assert (answer.status, found["exit"], answer.stdout, answer.stderr) == (
        200,
        3,
        b"out\n",
        b"err\n",
    )
    assert found["fs_diff"] == {
        "writes": [str(project / "made")], "mods": [str(project / "old")],
        "deletes": [str(project / "gone")], "truncated": False,
    }  # fmt: skip
    assert found["session_id"] == "s-http"
    assert found["scopes_used"] == []
    assert found["substrate_git_commit"]
    assert {"strategy", "tier", "network", "reason"} == set(found["isolation"])
    span = request(daemon.socket, "GET", f"/v1/trace/{found['span_id']}").document["events"]
    assert [event["event_type"] for event in span] == ["command_start", "command_complete"]
    assert span[1]["agent_id"] == "robot"
    assert span[1]["command_id"] == found["command_id"]


def test_the_environment_is_laid_over_the_daemons(daemon: Daemon, project: Path) -> None:
    answer = execute(daemon, project, 'printf "%s|" "$A" "$PATH"', env={"A": "x y\n"})
    assert answer.stdout.decode() == f"x y\n|{os.environ['PATH']}|"


@pytest.mark.parametrize("cmd", ["-v", "--help", "printf -- '-c'", "exit 125"])
def test_a_command_is_never_taken_for_an_option(daemon: Daemon, project: Path, cmd: str) -> None:
    bare = subprocess.run(["bash", "-c", cmd], capture_output=True, check=False)
    answer = execute(daemon, project, cmd)
    assert (answer.document["exit"], answer.stdout) == (bare.returncode, bare.stdout)


def test_bytes_that_are_no_text(daemon: Daemon, project: Path) -> None:
    assert execute(daemon, project, r"printf '\377\0\n'").stdout == b"\xff\0\n"


def test_output_beyond_the_cap_is_dropped_and_reported(daemon: Daemon, project: Path) -> None:
    answer = execute(daemon, project, "head -c 9000000 /dev/zero; echo end >&2")
    assert len(answer.stdout) == 4 * 1024 * 1024
    assert answer.document["output_truncated"] is True
    assert answer.stderr == b"end\n"


def test_a_background_child_does_not_hold_the_answer(daemon: Daemon, project: Path) -> None:
    assert execute(daemon, project, "sleep 5 & echo done").stdout == b"done\n"


def test_a_time_limit(daemon: Daemon, project: Path) -> None:
    answer = execute(daemon, project, "sleep 60", timeout_s=0.2)
    assert (answer.document["exit"], answer.document["outcome"]) == (124, "timed_out")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "cmd"),
        ({"cmd": " "}, "cmd"),
        ({"cmd": 7}, "cmd"),
        ({"cmd": "a\0b"}, "cmd"),
        ({"cmd": "\ud800"}, "cmd"),
        ({"cmd": "true", "cwd": "relative"}, "cwd"),
        ({"cmd": "true", "cwd": "/no/such/place"}, "cwd"),
        ({"cmd": "true", "env": ["A=1"]}, "env"),
        ({"cmd": "true", "env": {"A": 1}}, "env"),
        ({"cmd": "true", "env": {"A=B": "1"}}, "env"),
        ({"cmd": "true", "pty": "yes"}, "pty"),
        ({"cmd": "true", "pty": True}, "pty"),
        ({"cmd": "true", "timeout_s": -1}, "timeout_s"),
        ({"cmd": "true", "isolate": "very"}, "isolate"),
        ([], "object"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b'{"cmd": NaN}', "JSON"),
    ],
)
def test_what_is_wrong_is_named(daemon: Daemon, body: object, word: str) -> None:
    answer = post(daemon, "/v1/execute", body)
    assert (answer.status, answer.error["kind"]) == (400, "usage")
    assert word in answer.error["message"]


def test_errors_are_json_too(daemon: Daemon) -> None:
    assert request(daemon.socket, "GET", "/v1/nothing").error["kind"] == "not-found"
    assert request(daemon.socket, "GET", "/v1/execute").status == 405
    for span in ("spn_none", "..%2fetc%2fpasswd", "x"):
        assert request(daemon.socket, "GET", f"/v1/trace/{span}").error["kind"] == "not-found"


def test_a_stream_reports_events_as_they_happen(daemon: Daemon, project: Path) -> None:
    connection = UnixConnection(daemon.socket)
    # Outside the project: inside, a world would have a fifo of its own.
    fifo = project.parent / "fifo"
    os.mkfifo(fifo)
    cmd = f"echo one; read line < {fifo}; echo two >&2; echo x > made; exit 4"
    connection.request("POST", "/v1/execute/stream", json.dumps({"cmd": cmd, "cwd": str(project)}))
    response = connection.getresponse()
    assert (response.status, response.headers["content-type"]) == (200, "application/x-ndjson")
    frames = (json.loads(line) for line in response)
    start = next(frames)
    assert start["type"] == "start"
    assert next(frames) == {"type": "stdout", "data_b64": "b25lCg=="}
    fifo.write_text("go on\n")  # the command was running while we read
    rest = list(frames)
    connection.close()
    assert rest[0] == {"type": "stderr", "data_b64": "dHdvCg=="}
    last = rest[-1]
    assert (last["type"], last["code"], last["span_id"]) == ("exit", 4, start["span_id"])
    assert last["fs_diff"]["writes"] == [str(project / "made")]


def test_cancel_by_span(daemon: Daemon, project: Path) -> None:
    connection = UnixConnection(daemon.socket)
    body = json.dumps({"cmd": "sleep 60", "cwd": str(project)})
    connection.request("POST", "/v1/execute/stream", body)
    response = connection.getresponse()
    span_id = json.loads(response.readline())["span_id"]
    assert post(daemon, "/v1/execute/cancel", {"span_id": span_id}).document["cancelled"] is True
    last = json.loads(response.read().splitlines()[-1])
    connection.close()
    assert (last["code"], last["outcome"]) == (143, "killed")
    assert post(daemon, "/v1/execute/cancel", {"span_id": span_id}).status == 404
    assert post(daemon, "/v1/execute/cancel", {"span_id": ["x"]}).status == 404


def test_a_client_that_goes_away_takes_its_command_along(daemon: Daemon, project: Path) -> None:
    connection = UnixConnection(daemon.socket)
    told = project.parent / "told"  # outside the project, where a world hides nothing
    cmd = f"touch begun {told}; sleep 60; touch ended"
    connection.request("POST", "/v1/execute", json.dumps({"cmd": cmd, "cwd": str(project)}))
    until(told.exists)
    connection.close()
    until(lambda: any(span["workspace"] == str(project) for span in daemon.completed()))
    span = next(span for span in daemon.completed() if span["workspace"] == str(project))
    assert (span["outcome"], span["changed_files"]) == ("killed", ["begun"])


def test_the_seeds_own_lines(daemon: Daemon, project: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    curl = ["curl", "-sS", "--unix-socket", os.path.relpath(daemon.socket, project)]
    said = subprocess.run(
        [*curl, "http://localhost/v1/capabilities"], cwd=project, capture_output=True, check=True
    )
    assert json.loads(said.stdout)["version"]
    cmd = 'bash -lc "echo ok > x.txt"'
    body = {"cmd": cmd, "cwd": str(project), "env": {}, "pty": False, "agent_id": "human"}
    said = subprocess.run(
        [*curl, "-H", "content-type: application/json", "-d", json.dumps(body),
         "http://localhost/v1/execute"], cwd=project, capture_output=True, check=True,
    )  # fmt: skip
    found = json.loads(said.stdout)
    assert (found["exit"], found["fs_diff"]["writes"]) == (0, [str(project / "x.txt")])


def test_a_server_that_died_comes_back(daemon: Daemon) -> None:
    request(daemon.socket, "GET", "/v1/capabilities")
    state = daemon.state()
    assert state
    os.kill(state["server_pid"], 9)
    assert request(daemon.socket, "GET", "/v1/capabilities").status == 200


def test_stderr_is_the_command_s_own_and_notes_are_distinguished(
    daemon: Daemon, project: Path
) -> None:
    said = execute(daemon, project, "echo own >&2; echo x > .envrc; printf 'no newline' >&2")
    assert said.stderr == b"own\nno newline"
    assert "other programs run code: .envrc" in said.document["notes"]
    quiet = execute(daemon, project, "echo own >&2")
    assert quiet.stderr == b"own\n"
    assert "notes" not in quiet.document
    # What would have looked like a note of ours is the command's.
    posing = execute(daemon, project, "echo 'substrate: note: mine' >&2")
    assert posing.stderr == b"substrate: note: mine\n" and "notes" not in posing.document


def test_a_stream_has_notes_in_frames_of_their_own(daemon: Daemon, project: Path) -> None:
    said = stream(daemon, project, "echo own >&2; echo x > .envrc; printf 'no newline' >&2")
    own = b"".join(base64.b64decode(f["data_b64"]) for f in said if f["type"] == "stderr")
    assert own == b"own\nno newline"
    notes = "".join(frame["text"] for frame in said if frame["type"] == "note")
    assert "other programs run code: .envrc" in notes
    assert said[-1]["type"] == "exit"


@pytest.mark.needs("strace")
def test_an_interrupted_operation_is_in_the_answer(daemon: Daemon, project: Path) -> None:
    (project / "a").write_text("1\n")
    span = execute(daemon, project, "echo 2 > a").document["span_id"]
    assert "interrupted" not in request(daemon.socket, "GET", f"/v1/trace/{span}").document
    killed = subprocess.run(
        ["strace", "-o", "/dev/null", "-e", "trace=renameat2", "-e",
         "inject=renameat2:signal=KILL:when=1", *daemon.program, "undo"],
        cwd=project, env={**daemon.env, "SUBSTRATE_DAEMON": "off"}, capture_output=True,
        check=False,
    )  # fmt: skip
    assert killed.returncode in (-9, 137), killed.stderr
    below = project / "below"
    below.mkdir()
    routes = [f"/v1/trace/{span}", f"/v1/doctor?cwd={below}", f"/v1/capabilities?cwd={project}"]
    for route in routes:
        (one,) = request(daemon.socket, "GET", route).document["interrupted"]
        assert (one["operation"], one["finish"]) == ("undo", "substrate fsck --repair"), route
    assert "interrupted" not in request(daemon.socket, "GET", "/v1/doctor").document
    assert execute(daemon, project, "cat a").stdout == b"1\n"
    for route in routes:
        assert "interrupted" not in request(daemon.socket, "GET", route).document


def test_a_question_about_no_directory_is_refused(daemon: Daemon) -> None:
    for wanted in ("relative", "/no/such/directory"):
        said = request(daemon.socket, "GET", f"/v1/doctor?cwd={wanted}")
        assert (said.status, said.document["error"]["kind"]) == (400, "usage")
