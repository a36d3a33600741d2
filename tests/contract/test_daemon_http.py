"""The agent over HTTP, as docs/agent.md and the seed have it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent_http import Answer, UnixConnection, request
from tests.agents import Agent, agent_in, until

pytestmark = pytest.mark.needs("linux")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    base = tmp_path_factory.mktemp("agent")
    with agent_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as started:
        yield started.serve()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def post(agent: Agent, route: str, body: object) -> Answer:
    return request(agent.socket, "POST", route, body, {"content-type": "application/json"})


def execute(agent: Agent, cwd: Path, cmd: str, **more: Any) -> Answer:
    return post(agent, "/v1/execute", {"cmd": cmd, "cwd": str(cwd), **more})


def test_capabilities(agent: Agent) -> None:
    found = request(agent.socket, "GET", "/v1/capabilities").document
    assert {"version", "features", "strategies"} <= set(found)
    for strategy in found["strategies"]:
        assert strategy["works"] or strategy["why"]


def test_the_sockets_are_their_owners_alone(agent: Agent) -> None:
    for path in (agent.socket, agent.directory / "door.sock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(agent.directory.stat().st_mode) == 0o700


def test_a_command_and_its_answer(agent: Agent, project: Path) -> None:
    (project / "old").write_text("old\n")
    (project / "gone").write_text("gone\n")
    cmd = "echo new > made; echo more >> old; rm gone; echo out; echo err >&2; exit 3"
    answer = execute(
        agent, project, cmd,
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
    span = request(agent.socket, "GET", f"/v1/trace/{found['span_id']}").document["events"]
    assert [event["event_type"] for event in span] == ["command_start", "command_complete"]
    assert span[1]["agent_id"] == "robot"
    assert span[1]["command_id"] == found["command_id"]


def test_the_environment_is_laid_over_the_agents(agent: Agent, project: Path) -> None:
    answer = execute(agent, project, 'printf "%s|" "$A" "$PATH"', env={"A": "x y\n"})
    assert answer.stdout.decode() == f"x y\n|{os.environ['PATH']}|"


@pytest.mark.parametrize("cmd", ["-v", "--help", "printf -- '-c'", "exit 125"])
def test_a_command_is_never_taken_for_an_option(agent: Agent, project: Path, cmd: str) -> None:
    bare = subprocess.run(["bash", "-c", cmd], capture_output=True, check=False)
    answer = execute(agent, project, cmd)
    assert (answer.document["exit"], answer.stdout) == (bare.returncode, bare.stdout)


def test_bytes_that_are_no_text(agent: Agent, project: Path) -> None:
    assert execute(agent, project, r"printf '\377\0\n'").stdout == b"\xff\0\n"


def test_output_beyond_the_cap_is_dropped_and_said(agent: Agent, project: Path) -> None:
    answer = execute(agent, project, "head -c 9000000 /dev/zero; echo end >&2")
    assert len(answer.stdout) == 4 * 1024 * 1024
    assert answer.document["output_truncated"] is True
    assert answer.stderr == b"end\n"


def test_a_background_child_does_not_hold_the_answer(agent: Agent, project: Path) -> None:
    assert execute(agent, project, "sleep 5 & echo done").stdout == b"done\n"


def test_a_time_limit(agent: Agent, project: Path) -> None:
    answer = execute(agent, project, "sleep 60", timeout_s=0.2)
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
def test_what_is_wrong_is_named(agent: Agent, body: object, word: str) -> None:
    answer = post(agent, "/v1/execute", body)
    assert (answer.status, answer.error["kind"]) == (400, "usage")
    assert word in answer.error["message"]


def test_errors_are_json_too(agent: Agent) -> None:
    assert request(agent.socket, "GET", "/v1/nothing").error["kind"] == "not-found"
    assert request(agent.socket, "GET", "/v1/execute").status == 405
    for span in ("spn_none", "..%2fetc%2fpasswd", "x"):
        assert request(agent.socket, "GET", f"/v1/trace/{span}").error["kind"] == "not-found"


def test_a_stream_tells_as_it_happens(agent: Agent, project: Path) -> None:
    connection = UnixConnection(agent.socket)
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


def test_cancel_by_span(agent: Agent, project: Path) -> None:
    connection = UnixConnection(agent.socket)
    body = json.dumps({"cmd": "sleep 60", "cwd": str(project)})
    connection.request("POST", "/v1/execute/stream", body)
    response = connection.getresponse()
    span_id = json.loads(response.readline())["span_id"]
    assert post(agent, "/v1/execute/cancel", {"span_id": span_id}).document["cancelled"] is True
    last = json.loads(response.read().splitlines()[-1])
    connection.close()
    assert (last["code"], last["outcome"]) == (143, "killed")
    assert post(agent, "/v1/execute/cancel", {"span_id": span_id}).status == 404
    assert post(agent, "/v1/execute/cancel", {"span_id": ["x"]}).status == 404


def test_a_client_that_goes_away_takes_its_command_along(agent: Agent, project: Path) -> None:
    connection = UnixConnection(agent.socket)
    told = project.parent / "told"  # outside the project, where a world hides nothing
    cmd = f"touch begun {told}; sleep 60; touch ended"
    connection.request("POST", "/v1/execute", json.dumps({"cmd": cmd, "cwd": str(project)}))
    until(told.exists)
    connection.close()
    until(lambda: any(span["workspace"] == str(project) for span in agent.completed()))
    span = next(span for span in agent.completed() if span["workspace"] == str(project))
    assert (span["outcome"], span["changed_files"]) == ("killed", ["begun"])


def test_the_seeds_own_lines(agent: Agent, project: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    curl = ["curl", "-sS", "--unix-socket", os.path.relpath(agent.socket, project)]
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


def test_a_server_that_died_comes_back(agent: Agent) -> None:
    request(agent.socket, "GET", "/v1/capabilities")
    state = agent.state()
    assert state
    os.kill(state["server_pid"], 9)
    assert request(agent.socket, "GET", "/v1/capabilities").status == 200
