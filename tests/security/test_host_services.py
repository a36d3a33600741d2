"""No container engine, bus or hypervisor answers a command, wherever its socket is."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.world.interface import RunRequest, Wanted
from substrate.world.network.choose_network import network_for
from substrate.world.process import host_services
from substrate.world.select_strategy import choose_world
from tests.contract.as_user import NOBODY, as_user
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
USERS = (os.geteuid() if hasattr(os, "geteuid") else 0, NOBODY)
TIERS = ("workspace", "guarded", "full")
ABSTRACT = "substrate-test-bus"
pytestmark = pytest.mark.needs("linux", "root")

ASK = """
import json, os, socket, sys
said = {}
for name in json.load(open("asked.json")):
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect("\\0" + name[1:] if name[0] == "@" else name)
            said[name] = "connected"
        except OSError as error:
            said[name] = error.strerror
try:
    socket.socket(socket.AF_VSOCK).close()
    said["vsock"] = "made"
except OSError as error:
    said["vsock"] = error.strerror
for path in ("/dev/kmsg", "/dev/loop-control"):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        said[path] = os.major(os.stat(path).st_rdev), os.minor(os.stat(path).st_rdev)
    except OSError as error:
        said[path] = error.strerror
said["bus"] = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
json.dump(said, open("said.json", "w"))
"""


class Services:
    """Something listens at each place that the tables know, and where variables point."""

    def __init__(self, site: Site) -> None:
        self.site = site
        uid = site.case.uid
        self.home = site.base / "home"
        self.runtime = Path(f"/run/user/{uid}")
        self.made_runtime = not self.runtime.exists()
        self.sockets: list[socket.socket] = []
        self.paths = [self.home / name.replace("*", "any") for name in host_services.HOME]
        self.paths += [
            self.runtime / name if name.endswith((".sock", "-sock", "bus", "private"))
            else self.runtime / name / "control"
            for name in host_services.RUNTIME
        ]  # fmt: skip
        self.variables: dict[str, str] = {}
        for name in ("DOCKER_HOST", "CONTAINER_HOST", "BUILDKIT_HOST", "CONTAINERD_ADDRESS"):
            path = site.base / f"{name}.sock"
            self.paths.append(path)
            plain = name == "CONTAINERD_ADDRESS"
            self.variables[name] = str(path) if plain else f"unix://{path}"
        self.variables["DOCKER_CONFIG"] = str(self.home / "elsewhere")
        naming = [f"{name}/contexts/meta/abc/meta.json" for name in (".docker", "elsewhere")]
        for number, name in enumerate((*naming, *host_services.CONNECTIONS)):
            named = site.base / f"named{number}.sock"
            self.paths.append(named)
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(json.dumps({"x": {"Host": f"unix://{named}"}}))
        for path in self.paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._listen(str(path))
        self._listen("\0" + ABSTRACT)
        self.variables["DBUS_SESSION_BUS_ADDRESS"] = f"unix:abstract={ABSTRACT},guid=1"
        for path in (self.runtime, *self.runtime.rglob("*"), *self.home.rglob("*")):
            os.chown(path, uid, uid)
        for path in self.paths:
            os.chown(path, uid, uid)

    def _listen(self, address: str) -> None:
        if address[0] != "\0" and is_left_over(address):
            os.unlink(address)
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen(64)
        self.sockets.append(server)

    def ask(self, tier: str, *, allow: bool = False, net: str = "open") -> dict[str, object]:
        """What a command is answered; tier ``none``: without a world."""
        root = self.site.root
        names = [*map(str, self.paths), "@" + ABSTRACT]
        (root / "asked.json").write_text(json.dumps(names))
        (root / "ask.py").write_text(ASK)
        strategy = "direct" if tier == "none" else self.site.case.strategy
        wanted = Wanted(
            root, self.site.store, tier, required=True, strategy=strategy,
            allow_host_services=allow,
        )  # fmt: skip
        variables = {**self.variables, "HOME": str(self.home)}

        def work() -> str:
            os.chdir(root)
            os.environ.pop("XDG_RUNTIME_DIR", None)
            os.environ.update(variables)
            network = None if tier == "none" else network_for(net)
            request = RunRequest(root, shell=f"{PYTHON} -I ask.py", network=network)
            outcome = choose_world(wanted).run(request)
            above = outcome.layer.upper if outcome.layer is not None else root
            return (Path(os.fsdecode(above)) / "said.json").read_text()

        said: dict[str, object] = json.loads(as_user(self.site.case.uid, work))
        return said

    def close(self) -> None:
        for each in self.sockets:
            each.close()
        shutil.rmtree(self.runtime) if self.made_runtime else None


def is_left_over(address: str) -> bool:
    """Whether a killed run left its socket there: no process listens."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(address) == errno.ECONNREFUSED


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Other workers of the same run need the same runtime directory and the same bus."""
    with open("/run/substrate-test-services.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def services(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    case = Case("overlay", request.param)
    skip_unless_possible(case)
    with one_at_a_time(), make_site(case, monkeypatch) as site:
        made = Services(site)
        try:
            yield made
        finally:
            made.close()


def connected(said: dict[str, object]) -> set[str]:
    return {name for name, answer in said.items() if answer == "connected"}


def test_no_service_answers_from_inside_a_world(services: Services) -> None:
    everything = {*map(str, services.paths), "@" + ABSTRACT}
    assert connected(services.ask("none")) == everything
    for tier in TIERS:
        said = services.ask(tier)
        assert connected(said) == set(), tier
        assert said["bus"] == host_services.DISABLED


def test_the_user_can_allow_them(services: Services) -> None:
    said = services.ask("workspace", allow=True)
    assert connected(said) == {*map(str, services.paths), "@" + ABSTRACT}
    assert said["bus"] == services.variables["DBUS_SESSION_BUS_ADDRESS"]


@pytest.mark.needs("vsock")
@pytest.mark.parametrize("net", ["off", "allow:example.com:443"])
def test_no_network_means_no_hypervisor_either(services: Services, net: str) -> None:
    assert services.ask("none")["vsock"] == "made"
    assert services.ask("workspace", net=net)["vsock"] == os.strerror(97)
    assert services.ask("workspace")["vsock"] == "made"


@pytest.mark.needs("kernel-log")
def test_no_command_reaches_the_kernel_s_log_or_makes_loop_devices(services: Services) -> None:
    said = services.ask("workspace")
    null = os.stat("/dev/null").st_rdev
    shut = ([os.major(null), os.minor(null)], os.strerror(13), os.strerror(2))
    assert said["/dev/kmsg"] in shut
    assert said["/dev/loop-control"] in shut
    as_before = services.ask("none")["/dev/kmsg"]
    assert as_before == ([1, 11] if services.site.case.uid == 0 else os.strerror(13))
