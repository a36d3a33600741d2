"""Every way out that a tier promises to hold is tried from inside, and held.

Each attack is also run without a world, where it must succeed: otherwise it proves nothing.
docs/security.md names these tests threat by threat.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import substrate
from substrate.world.interface import Layer, RunOutcome, RunRequest, Wanted
from substrate.world.layer import layer_dirs
from substrate.world.select_strategy import choose_world
from tests.capabilities import present
from tests.contract.as_user import NOBODY, as_user
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible

ATTACKS = Path(__file__).parent / "attacks.py"
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
ROOT = 0
TIERS = ("workspace", "guarded", "full")
USERS = (os.geteuid() if hasattr(os, "geteuid") else 0, NOBODY)
pytestmark = pytest.mark.needs("linux", "root")


class Attack(NamedTuple):
    name: str
    #: The weakest tier that holds it.
    held_from: str = "workspace"
    #: What only root could ever do: there is nothing to hold for others.
    root_only: bool = False
    #: The attack that shows that this one could work, where it is not itself.
    control: str = ""


ALL = (
    Attack("unmount"),
    Attack("unmount_nested"),
    Attack("by_handle", root_only=True),
    Attack("by_handle_nested", root_only=True, control="by_handle"),
    Attack("through_proc"),
    Attack("signal_victim"),
    Attack("trace_init"),
    Attack("daemon_socket"),
    Attack("host_service"),
    Attack("terminal_server"),
    Attack("forge_history"),
    Attack("forge_trace"),
    Attack("change_program", root_only=True),
    Attack("read_disk", root_only=True),
    Attack("kernel_knobs", root_only=True),
    Attack("capabilities", root_only=True),
    Attack("inherited"),
    Attack("write_outside", "guarded"),
    Attack("set_id", "guarded"),
    Attack("io_uring", "guarded"),
    Attack("thirty_two_bit", "full"),
    Attack("new_namespace", "full"),
    Attack("keyring", "full"),
)


class Stage:
    """A workspace, something worth attacking around it, and the facts an attacker may know."""

    def __init__(self, site: Site, outside: Path, victim: int) -> None:
        self.site = site
        self.outside = outside
        self.script = site.base / "attacks.py"
        shutil.copy(ATTACKS, self.script)
        os.chmod(self.script, 0o644)
        home = site.base / "home" / ".substrate"
        (site.store / "secret").write_text("s")
        (home / "run").mkdir(parents=True, exist_ok=True)
        (home / "trace.jsonl").write_text("")
        runtime = site.base / "runtime"
        tmux = runtime / f"tmux-{site.case.uid}"
        tmux.mkdir(parents=True)
        listeners = (home / "run" / "substrate.sock", runtime / "bus", tmux / "default")
        self._sockets = [_listen(path) for path in listeners]
        for path in (site.store / "secret", *home.rglob("*"), home, *runtime.rglob("*")):
            os.chown(path, site.case.uid, site.case.uid)
        self.facts = {
            "root": str(site.root),
            "base": str(site.base),
            "home": str(home),
            "outside": str(outside),
            "device": (site.root / "kept").stat().st_dev,
            "inode": (site.root / "kept").stat().st_ino,
            "handle": _handle(site.root / "kept").hex(),
            "victim": victim,
            "daemon_socket": str(home / "run" / "substrate.sock"),
            "bus_socket": str(runtime / "bus"),
            "tmux_socket": str(tmux / "default"),
            "program": str(Path(substrate.__file__).parent / "errors.py"),
        }
        self.runtime = runtime

    def attempt(
        self, attacks: list[str], tier: str, beside: tuple[Layer, ...] = ()
    ) -> dict[str, str]:
        """What each attack said, in a world of that tier, or (``none``) without one.

        `beside`: worlds of the same session in which processes go on.
        """
        facts = self.site.root / "facts.json"
        facts.write_text(json.dumps({**self.facts, "direct": tier == "none", "tier": tier}))
        out = self.site.base / "said"
        out.write_text("")
        os.chmod(out, 0o666)
        # Copy it into the workspace: `full` hides the directory of the test.
        shutil.copy(self.script, self.site.root / "attacks.py")
        stdin = os.open(self.site.root, os.O_RDONLY)
        stray = os.open(self.site.root, os.O_RDONLY)
        stdout = os.open(out, os.O_WRONLY)
        os.set_inheritable(stray, True)
        try:
            request = RunRequest(
                self.site.root,
                # Python itself refuses to start with a directory as stdin.
                shell="exec 9<&0 0</dev/null; echo company $(cd /proc; echo [0-9]*);"
                f" exec {PYTHON} -I attacks.py facts.json " + " ".join(attacks),
                stdin=stdin,
                stdout=stdout,
                env={"XDG_RUNTIME_DIR": str(self.runtime)},
                session_id="s-one",
                beside=beside,
            )
            self._run(request, tier)
        finally:
            for fd in (stdin, stray, stdout):
                os.close(fd)
        said = (line.partition(" ") for line in out.read_text().splitlines())
        return {name: answer for name, _, answer in said}

    def _run(self, request: RunRequest, tier: str) -> RunOutcome:
        strategy = "direct" if tier == "none" else self.site.case.strategy
        wanted = Wanted(self.site.root, self.site.store, tier, required=True, strategy=strategy)

        def work() -> RunOutcome:
            os.chdir(self.site.root)  # like a caller: the real directory
            os.environ["XDG_RUNTIME_DIR"] = os.environ["TMUX_TMPDIR"] = str(self.runtime)
            return choose_world(wanted).run(request)

        outcome = as_user(self.site.case.uid, work)
        self.site.made.append(outcome)
        return outcome

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def _listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    return server


def _handle(path: Path) -> bytes:
    """The kernel's file handle of `path`, as name_to_handle_at(2) gives it."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer((128).to_bytes(4, sys.byteorder), 8 + 128)
    mount = ctypes.c_int()
    done = libc.name_to_handle_at(-100, os.fsencode(path), buffer, ctypes.byref(mount), 0)
    assert done == 0, os.strerror(ctypes.get_errno())
    return buffer.raw[: 8 + int.from_bytes(buffer.raw[0:4], sys.byteorder)]


@contextmanager
def staged(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    uid = case.uid
    skip_unless_possible(case)
    # Neither the workspace nor temporary.
    outside = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/lib"))
    os.chown(outside, uid, uid)
    with make_site(case, monkeypatch) as site:
        line = "trap : USR1; while :; do sleep 1; done"
        victim = subprocess.Popen(["sh", "-c", line], user=uid, group=uid, extra_groups=[])
        made = Stage(site, outside, victim.pid)
        try:
            yield made
        finally:
            made.close()
            victim.kill()
            victim.wait()
            shutil.rmtree(outside)


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with staged(Case("overlay", request.param), monkeypatch) as made:
        yield made


CASES = [
    Case(strategy, uid) for strategy in ("overlay", "fuse-overlayfs", "copy-diff") for uid in USERS
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case.strategy}-uid{case.uid}")
def said(request: pytest.FixtureRequest) -> Iterator[tuple[int, dict[str, dict[str, str]]]]:
    """What every attack said, by tier: all of a tier's attacks run in one world."""
    case: Case = request.param
    uid = case.uid
    names = [attack.name for attack in ALL if _makes_sense(attack, uid)]
    with pytest.MonkeyPatch.context() as patch, staged(case, patch) as stage:
        answers = {tier: stage.attempt(names, tier) for tier in ("none", *TIERS)}
        assert (stage.site.root / "kept").read_text() == "kept\n"
        yield uid, answers


def _makes_sense(attack: Attack, uid: int) -> bool:
    if attack.name == "thirty_two_bit" and os.uname().machine != "x86_64":
        return False
    return uid == ROOT or not attack.root_only


@pytest.mark.parametrize(
    ("said", "attack"),
    [(case, attack) for case in CASES for attack in ALL if _makes_sense(attack, case.uid)],
    indirect=["said"],
    ids=lambda one: one.name if isinstance(one, Attack) else f"{one.strategy}-uid{one.uid}",
)
def test_it_is_held_from_its_tier_on(
    said: tuple[int, dict[str, dict[str, str]]], attack: Attack
) -> None:
    _, answers = said
    control = answers["none"].get(attack.control or attack.name, "it did not run")
    assert control.startswith("through: "), f"without a world: {control}"
    for tier in TIERS[TIERS.index(attack.held_from) :]:
        answer = answers[tier].get(attack.name, "it did not run")
        assert answer.startswith("held: "), f"{tier}: {answer}"


def test_among_processes_of_earlier_commands_it_is_held_as_well(stage: Stage) -> None:
    """A world that shares its session's pid namespace holds what one of its own holds."""
    left = stage._run(
        RunRequest(stage.site.root, shell="sleep 300 & echo $! > number", session_id="s-one"),
        "workspace",
    )
    assert left.layer is not None
    number = (left.layer.upper / "number").read_text().strip()
    try:
        attacks = [a for a in ALL if a.held_from == "workspace"]
        names = [a.name for a in attacks if _makes_sense(a, stage.site.case.uid)]
        answers = stage.attempt(names, "workspace", (left.layer,))
        assert number in answers.pop("company").split(), "it did not see the others"
        assert set(answers) == set(names)
        assert {name: a for name, a in answers.items() if not a.startswith("held: ")} == {}
    finally:
        stage._run(
            RunRequest(stage.site.root, argv=("kill", number), session_id="s-one",
                       beside=(left.layer,)),
            "workspace",
        )  # fmt: skip


_WATCHER = """
import os, sys, time
root, device, inode, stop, said = sys.argv[1], *map(int, sys.argv[2:4]), *sys.argv[4:6]
seen, found = set(), set()
before = set(os.listdir('/proc'))
deadline = time.monotonic() + 120
while not os.path.exists(stop) and time.monotonic() < deadline:
    for pid in set(os.listdir('/proc')) - before:
        if not pid.isdigit():
            continue
        seen.add(pid)
        try:
            links = ['root', 'cwd'] + ['fd/' + fd for fd in os.listdir(f'/proc/{pid}/fd')]
        except OSError:
            links = ['root', 'cwd']
        for link in links:
            for below in (root + '/kept', '/kept', '/../../../kept'):
                try:
                    have = os.stat(f'/proc/{pid}/{link}{below}')
                except OSError:
                    continue
                if (have.st_dev, have.st_ino) == (device, inode):
                    found.add(link)
    with open(said, 'w') as file:
        file.write(f'{len(seen)} {sorted(found)}')
"""


def test_a_world_that_is_being_made_among_others_shows_them_nothing(stage: Stage) -> None:
    """A process of an earlier command looks at all that comes up, as early as it can."""
    watcher = stage.site.root / "watcher.py"
    watcher.write_text(_WATCHER)
    stop, said = stage.site.base / "stop", stage.site.base / "said-by-watcher"
    said.touch()
    os.chown(said, stage.site.case.uid, stage.site.case.uid)
    kept = (stage.site.root / "kept").stat()
    words = f"{stage.site.root} {kept.st_dev} {kept.st_ino} {stop} {said}"
    line = f"{PYTHON} -I watcher.py {words} > /dev/null 2>&1 &"
    left = stage._run(RunRequest(stage.site.root, shell=line, session_id="s-one"), "workspace")
    assert left.layer is not None and left.left_running
    # On a busy machine it may be looking elsewhere: until it has looked at enough of them.
    for number in range(400):
        if number >= 12 and _looked_at(said) >= 12:
            break
        request = RunRequest(
            stage.site.root, argv=("true",), session_id="s-one", beside=(left.layer,)
        )
        assert stage._run(request, "workspace").exit == 0
    stop.touch()
    deadline = time.monotonic() + 60
    while layer_dirs.is_running(left.layer):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert _looked_at(said) >= 12, "it saw nobody"
    assert said.read_text().partition(" ")[2] == "[]"


def _looked_at(said: Path) -> int:
    """How many processes; it may be writing just now."""
    number = said.read_text().partition(" ")[0]
    return int(number) if number else 0


def test_a_forged_attribute_says_nothing(stage: Stage) -> None:
    """A command cannot write what we read: that its directory hides everything below it."""
    script = (
        "import os\n"
        "for name in ('user.overlay.opaque', 'trusted.overlay.opaque'):\n"
        "    try: os.setxattr('dir', name, b'y')\n"
        "    except OSError: pass\n"
        "    else: open('tried', 'w')\n"
        "open('dir/new', 'w')\n"
    )
    request = RunRequest(stage.site.root, argv=(PYTHON, "-I", "-c", script))
    outcome = stage._run(request, "workspace")
    assert outcome.exit == 0
    layer = outcome.layer
    assert layer is not None
    mine = (layer.xattr_prefix + b"opaque").decode()
    assert mine not in os.listxattr(layer.upper / "dir", follow_symlinks=False)
    assert (layer.upper / "tried").exists(), "none of the two could even be tried"


def test_nothing_set_uid_works_from_the_workspace(stage: Stage) -> None:
    request = RunRequest(
        stage.site.root, argv=("grep", f" {stage.site.root} ", "/proc/self/mountinfo")
    )
    out = stage.site.base / "out"
    fd = os.open(out, os.O_WRONLY | os.O_CREAT, 0o666)
    stage._run(request._replace(stdout=fd), "workspace")
    os.close(fd)
    options = out.read_text().split(" ")[5].split(",")
    assert {"nosuid", "nodev"} <= set(options)


@pytest.mark.parametrize("tier", ["guarded", "full"])
def test_what_was_declared_can_be_written(stage: Stage, tier: str) -> None:
    outside = stage.outside
    request = RunRequest(stage.site.root, argv=("touch", f"{outside}/made", "inside"))
    wanted = Wanted(
        stage.site.root, stage.site.store, tier, required=True, strategy="overlay",
        writable=(outside,),
    )  # fmt: skip
    outcome = as_user(stage.site.case.uid, lambda: choose_world(wanted).run(request))
    stage.site.made.append(outcome)
    assert outcome.exit == 0
    assert (outside / "made").exists()
    assert (outcome.layer is not None) and (outcome.layer.upper / "inside").exists()


def test_temporary_files_can_be_written(stage: Stage) -> None:
    for tier, visible in (("guarded", True), ("full", False)):
        path = Path(tempfile.gettempdir(), f"substrate-test-{os.getpid()}-{tier}")
        request = RunRequest(stage.site.root, argv=("touch", str(path)))
        try:
            assert stage._run(request, tier).exit == 0
            assert path.exists() is visible
        finally:
            path.unlink(missing_ok=True)


def test_every_attack_is_in_the_list() -> None:
    from tests.security import attacks

    assert present("linux")
    found = {
        name
        for name, value in vars(attacks).items()
        if callable(value)
        and getattr(value, "__module__", "") == attacks.__name__
        and list(getattr(value, "__annotations__", {})) == ["facts", "return"]
    }
    assert found == {attack.name for attack in ALL}
