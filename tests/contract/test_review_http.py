"""Reviewing over HTTP: rows, diffs, files, previews and events, on the daemon's socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.program import Program
from tests.daemon_http import Answer, UnixConnection, request
from tests.daemons import Daemon, daemon_in

pytestmark = pytest.mark.needs("linux")
OLD = "".join(f"line {n}\n" for n in range(1, 21))


class Reviewed:
    """A project with some history, and its daemon."""

    def __init__(self, daemon: Daemon, program: Program) -> None:
        self.daemon = daemon
        self.program = program
        self.cwd = program.cwd

    def get(self, route: str, **query: object) -> Answer:
        words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        where = f"{route}?cwd={quote(str(self.cwd))}&{words}"
        return request(self.daemon.socket, "GET", where)

    def found(self, route: str, **query: object) -> dict[str, Any]:
        answer = self.get(route, **query)
        assert answer.status == 200, answer.body
        return answer.document

    def post(self, route: str, **body: object) -> Answer:
        where = f"{route}?cwd={quote(str(self.cwd))}"
        return request(self.daemon.socket, "POST", where, body)

    def entries(self, **query: object) -> list[dict[str, Any]]:
        rows = self.found("/v1/rows", n=500, **query)["rows"]
        return [row for row in rows if row["row"] == "entry"]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    base = tmp_path_factory.mktemp("daemon")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as started:
        yield started.serve()


@pytest.fixture
def reviewed(daemon: Daemon, tmp_path: Path) -> Reviewed:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text(OLD)
    program = Program(project, {**daemon.env, "SUBSTRATE_SESSION_ID": "s-1"})
    program.sh("true")
    program.sh("sed -i 's/line 2$/LINE 2/; s/line 18/LINE 18/' a.txt; echo new > new.txt")
    program("-c", "rm new.txt; echo said; exit 3").is_status(3)
    return Reviewed(daemon, program)


def test_rows_by_index(reviewed: Reviewed) -> None:
    found = reviewed.found("/v1/rows", n=100)
    kinds = [(row["row"], row.get("kind")) for row in found["rows"]]
    commands = [("entry", "command")] * 3
    assert kinds == [("entry", "baseline"), ("session", None), *commands]
    assert found["total"] == 5
    last = found["rows"][-1]
    assert (last["exit"], last["files"], last["deleted_files"]) == (3, 1, 1)
    sed = found["rows"][3]
    assert (sed["additions"], sed["deletions"], sed["undone"]) == (3, 2, False)
    assert reviewed.found("/v1/rows", **{"from": 2, "n": 2})["rows"] == found["rows"][2:4]
    assert reviewed.found("/v1/rows", **{"from": -1, "n": 9})["rows"] == found["rows"][4:]
    assert [row["exit"] for row in reviewed.entries(filter="failed")] == [3]
    assert [row["id"] for row in reviewed.entries(q="SED -i")] == [sed["id"]]
    assert reviewed.get("/v1/rows", filter="nonsense").status == 400
    assert reviewed.get("/v1/rows", n="many").status == 400


def test_what_verbs_answer(reviewed: Reviewed) -> None:
    log = reviewed.found("/v1/log", n=2)
    assert [one["exit"] for one in log["commands"]] == [3, 0]
    more = reviewed.found("/v1/log", n=2, cursor=log["next_cursor"])
    assert len(more["commands"]) == 2 and more["next_cursor"] is None
    sed = log["commands"][1]
    assert reviewed.found(f"/v1/entries/{sed['command_id']}")["kind"] == "command"
    lines = reviewed.found("/v1/blame", path="a.txt", lines="2,2")["lines"]
    assert [one["command_id"] for one in lines] == [sed["command_id"]]
    assert reviewed.found("/v1/worlds")["worlds"] == []
    assert reviewed.found("/v1/recover")["recoveries"] == []
    assert reviewed.found("/v1/search", q="nowhere")["matches"] == []
    assert reviewed.get("/v1/entries/c-nothing").error["kind"] == "not-found"
    assert reviewed.get("/v1/entries/--help").status == 400
    assert request(reviewed.daemon.socket, "GET", "/v1/log").status == 400, "which workspace?"


def test_diffs_files_and_output(reviewed: Reviewed) -> None:
    sed, last = reviewed.entries()[-2:]
    files = {one["path"]: one for one in reviewed.found("/v1/diff", scope=sed["id"])["files"]}
    first, second = files["a.txt"]["hunks"]
    assert first["lines"][1:3] == [["-", 2, None, "line 2"], ["+", None, 2, "LINE 2"]]
    assert [line[1] for line in second["lines"] if line[0] == " "] == [15, 16, 17, 19, 20]
    assert files["new.txt"]["change"] == "added"
    wide = reviewed.found("/v1/diff", scope="s-1")
    assert [one["path"] for one in wide["files"]] == ["a.txt"], "new.txt came and went"
    now = reviewed.found("/v1/tree/now")["entries"]
    assert [one["name"] for one in now] == ["a.txt"]
    then = reviewed.found(f"/v1/tree/{sed['id']}")["entries"]
    assert [one["name"] for one in then] == ["a.txt", "new.txt"]
    assert reviewed.found(f"/v1/file/{sed['id']}", path="new.txt")["lines"] == ["new"]
    assert reviewed.get("/v1/file/now", path="new.txt").status == 404
    assert reviewed.get("/v1/file/now", path="../x").status == 400
    assert reviewed.found(f"/v1/output/{last['id']}")["lines"] in (["said"], [])


def test_a_preview_is_carried_out_or_refused(reviewed: Reviewed) -> None:
    sed = reviewed.entries()[-2]
    shown = reviewed.post("/v1/preview", verb="undo", scope=sed["id"]).document
    [file] = shown["files"]
    assert (file["path"], file["status"]) == ("a.txt", "restored")
    assert ["-", 2, None, "LINE 2"] in file["hunks"][0]["lines"], "it reads now, then after"
    assert "line 2\n" not in (reviewed.cwd / "a.txt").read_text()

    edited = (reviewed.cwd / "a.txt").read_text().replace("line 10", "mine")
    (reviewed.cwd / "a.txt").write_text(edited)
    stale = reviewed.post("/v1/carry-out", plan_id=shown["plan_id"])
    assert (stale.status, stale.error["kind"]) == (409, "stale")
    assert (reviewed.cwd / "a.txt").read_text() == edited

    shown = reviewed.post("/v1/preview", verb="undo", scope=sed["id"]).document
    assert (shown["merged"], shown["files"][0]["yours"]) == (["a.txt"], [10])
    done = reviewed.post("/v1/carry-out", plan_id=shown["plan_id"])
    assert done.status == 200, done.body
    assert (reviewed.cwd / "a.txt").read_text() == OLD.replace("line 10", "mine")
    assert done.document["merged"] == ["a.txt"]
    again = reviewed.post("/v1/carry-out", plan_id=shown["plan_id"])
    assert again.status == 409
    assert [row["undone"] for row in reviewed.entries() if row["id"] == sed["id"]] == [True]

    back = reviewed.post("/v1/preview", verb="undo", scope=done.document["command_id"]).document
    assert reviewed.post("/v1/carry-out", plan_id=back["plan_id"]).status == 200
    assert (reviewed.cwd / "a.txt").read_text() == edited


def test_one_hunk_and_one_file(reviewed: Reviewed) -> None:
    sed = reviewed.entries()[-2]
    files = reviewed.found("/v1/diff", scope=sed["id"])["files"]
    hunk = files[0]["hunks"][1]["id"]
    wanted = {"verb": "undo", "scope": sed["id"], "hunks": [hunk]}
    shown = reviewed.post("/v1/preview", **wanted).document
    assert reviewed.post("/v1/carry-out", plan_id=shown["plan_id"]).status == 200
    assert "LINE 2\n" in (reviewed.cwd / "a.txt").read_text()
    assert "line 18\n" in (reviewed.cwd / "a.txt").read_text()
    wanted = {"verb": "rollback", "scope": reviewed.entries()[1]["id"], "paths": ["a.txt"]}
    shown = reviewed.post("/v1/preview", **wanted).document
    assert reviewed.post("/v1/carry-out", plan_id=shown["plan_id"]).status == 200
    assert (reviewed.cwd / "a.txt").read_text() == OLD
    for wrong in ({"verb": "rm"}, {"scope": "--exact"}, {"hunks": ["--take"]}, {"paths": [""]}):
        assert reviewed.post("/v1/preview", **{**wanted, **wrong}).status == 400, wrong
    assert reviewed.post("/v1/carry-out", plan_id="pl-guessed").status == 409


def test_events_resume(reviewed: Reviewed) -> None:
    connection = UnixConnection(reviewed.daemon.socket)
    where = f"/v1/events?cwd={quote(str(reviewed.cwd))}"
    connection.request("GET", where, headers={"Last-Event-ID": "3"})
    response = connection.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    reviewed.program.sh("echo more > more.txt")
    seen: list[dict[str, Any]] = []
    numbers = []
    while len(seen) < 2:
        line = response.readline().decode()
        if line.startswith("id: "):
            numbers.append(int(line[4:]))
        if line.startswith("data: ") and "kind" in line:
            seen.append(json.loads(line[6:]))
    connection.close()
    assert numbers == [4, 5]
    assert seen[1]["id"] == reviewed.entries()[-1]["id"]


@pytest.mark.needs("world-overlay")
def test_a_world_that_collides_with_the_repository_is_decided_in_a_terminal(
    reviewed: Reviewed,
) -> None:
    """A second attempt would mean the world's branch, also against newer commits."""
    program = reviewed.program
    git = "git init -q -b main; git add -A; git commit -qm base"
    program.sh(git)
    program("run", "--hold", "--", "sh", "-c", "echo A > a.txt; git commit -qam world").went_well()
    [world] = program.json("world", "list")["worlds"]
    wanted = {"verb": "apply", "scope": world["world_id"], "paths": []}
    program.sh("echo mine > mine; git add mine; git commit -qm mine")
    program("world", "apply", world["world_id"])
    [again] = program.json("world", "list")["worlds"]
    answer = reviewed.post("/v1/preview", **{**wanted, "scope": again["world_id"]})
    assert answer.status in (403, 409), answer.body
    assert "decide in a terminal" in answer.document["error"]["message"]
