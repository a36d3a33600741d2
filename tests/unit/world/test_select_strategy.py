"""The best available world, the obstacles to a better one, and when that is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError, UsageError, WorldFailedError
from substrate.system import environment
from substrate.world.capabilities import machine_probe
from substrate.world.capabilities.machine_probe import Finding
from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest, Wanted
from substrate.world.process import host_services
from substrate.world.select_strategy import Falling, choose_world
from substrate.world.strategies.direct import DirectWorld

pytestmark = pytest.mark.needs("linux")


class Unmakeable:
    """A world that the machine refuses every time."""

    isolation = Isolation("overlay", "workspace", "open", "")

    def run(self, request: RunRequest) -> RunOutcome:
        raise WorldFailedError("no world could be made: a mount: Operation not permitted")

    def discard(self, layer: Layer) -> None:
        """It never has one."""


@pytest.fixture
def wanted(tmp_path: Path) -> Wanted:
    (tmp_path / ".substrate-git").mkdir()
    return Wanted(tmp_path, tmp_path / ".substrate-git")


def believe(*findings: Finding) -> None:
    """As if these had been found at this boot."""
    machine_probe._remember(environment.current().substrate_home, list(findings))


def test_a_strategy_that_fails_is_followed_by_the_next_and_reported(tmp_path: Path) -> None:
    world = Falling([Unmakeable(), DirectWorld()])
    outcome = world.run(RunRequest(tmp_path, shell="echo ran > ran; exit 3"))
    assert (outcome.exit, outcome.isolation.strategy) == (3, "direct")
    assert outcome.isolation.reason.startswith("overlay: no world could be made: a mount")
    assert (tmp_path / "ran").exists()


def test_the_last_one_may_fail(tmp_path: Path) -> None:
    with pytest.raises(WorldFailedError):
        Falling([Unmakeable(), Unmakeable()]).run(RunRequest(tmp_path, shell="true"))


def test_a_required_world_is_never_replaced(wanted: Wanted) -> None:
    no = Finding("overlay", False, "forbidden here", "sysctl -w allowed=1")
    believe(no, Finding("copy-diff", False, "forbidden, too"))
    with pytest.raises(MissingDependencyError, match="forbidden here") as raised:
        choose_world(wanted._replace(required=True))
    assert "sysctl -w allowed=1" in raised.value.hint


def test_less_isolation_is_given_where_allowed_and_the_reason_reported(wanted: Wanted) -> None:
    believe(Finding("overlay", False, "forbidden here"))
    isolation = choose_world(wanted).isolation
    assert isolation.strategy == "direct"
    assert "overlay: forbidden here" in isolation.reason


def test_a_copy_only_where_something_is_required(wanted: Wanted) -> None:
    believe(Finding("overlay", False, "forbidden"), Finding("copy-diff", True))
    assert choose_world(wanted).isolation.strategy == "direct"
    assert choose_world(wanted._replace(required=True)).isolation.strategy == "copy-diff"


def test_the_root_directory_is_not_covered(wanted: Wanted) -> None:
    believe(Finding("overlay", True))
    isolation = choose_world(wanted._replace(root=Path("/"))).isolation
    assert (isolation.strategy, "root directory" in isolation.reason) == ("direct", True)


@pytest.mark.parametrize("field", ["tier", "strategy"])
def test_words_that_mean_nothing(wanted: Wanted, field: str) -> None:
    with pytest.raises(UsageError, match=f"no such {field}: nonsense"):
        choose_world(wanted._replace(**{field: "nonsense"}))  # type: ignore[arg-type]


def test_findings_of_another_boot_are_not_believed() -> None:
    believe(Finding("overlay", False, "long ago"))
    path = environment.current().substrate_home / "probe.json"
    record = json.loads(path.read_text())
    assert machine_probe.finding("overlay").why == "long ago"
    record["key"]["boot"] = "another"
    path.write_text(json.dumps(record))
    assert machine_probe.finding("overlay").why != "long ago"
    path.write_text("{torn")
    assert {found.name for found in machine_probe.probe()} >= {"overlay", "git"}


@pytest.mark.parametrize(("worked", "is_believed"), [(True, True), (False, False)])
def test_what_did_not_work_is_tried_again_after_a_while(worked: bool, is_believed: bool) -> None:
    """It may have been a full disk."""
    believe(Finding("overlay", worked, "then"), Finding("network", True))
    path = environment.current().substrate_home / "probe.json"
    record = json.loads(path.read_text())
    assert machine_probe.finding("overlay").why == "then"
    record["looked_ns"] -= 3600 * 10**9
    path.write_text(json.dumps(record))
    assert (machine_probe.finding("overlay").why == "then") is is_believed


@pytest.mark.parametrize(
    ("address", "paths"),
    [
        ("unix:path=/run/user/7/bus,guid=1", ["/run/user/7/bus"]),
        ("unix:path=/a;unix:path=/b", ["/a", "/b"]),
        ("unix:///run/docker.sock", ["/run/docker.sock"]),
        ("unix:abstract=/tmp/x", []),
        ("tcp://10.0.0.1:2375", []),
        ("", []),
    ],
)
def test_where_a_service_listens(address: str, paths: list[str]) -> None:
    assert host_services.socket_paths(address) == paths
