"""`launcher/client.c`: what it passes to the daemon, and when it leaves a call to Python.

It is compiled here with every warning and the sanitizers, and with a fake shell launcher that
reports when it runs: there is no Python where `ctx` expects it. At the other end of the socket the
test itself answers, with the daemon's own code for the protocol: so it can send answers that a
daemon never would.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate.client import hook_passthrough
from substrate.client import offer_to_daemon as python_client
from substrate.protocol import daemon_wire
from tests.contract.as_user import NOBODY

pytestmark = pytest.mark.needs("linux", "compiler")

SOURCE = Path(__file__).resolve().parents[2] / "launcher" / "client.c"
SITE = f"lib/python3.{sys.version_info[1]}/site-packages"
IN_PYTHON = "in python:"
#: Replaces our program where Python is started directly.
SHOWS = "import sys; print([*sys.argv[1:], open('/proc/self/environ').read()], end='')"
#: Without a terminal: with one, no call goes to the daemon.
APART = {"start_new_session": True, "stdin": subprocess.DEVNULL}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compiled")
    says = f'printf "%s" "{IN_PYTHON}$0"; printf " %s" "$@"; exit 99'
    texts = {"LAUNCHER": says, "PYTHON": SHOWS, "VERSION": "7.8.9"}
    lines = [f"#define {name} {json.dumps(text)}\n" for name, text in texts.items()]
    (directory / "launcher.h").write_text("".join(lines))
    words = ["cc", "-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    made = directory / "substrate"
    common = [f"-I{directory}", str(SOURCE), "-o", str(made)]
    if subprocess.run([*words, *sanitizers, *common], check=False, capture_output=True).returncode:
        subprocess.run([*words, *common], check=True)  # a compiler without its sanitizers
    return made


class Place:
    """A prefix with the program in it, and a fake daemon with given answers."""

    def __init__(self, top: Path, program: Path) -> None:
        self.top = top
        self.bin = top / "prefix" / "bin"
        self.package = top / "prefix" / SITE / "substrate"
        self.bin.mkdir(parents=True)
        self.package.mkdir(parents=True)
        (self.package / "__init__.py").touch()
        self.program = self.bin / "substrate"
        self.program.write_bytes(program.read_bytes())
        self.program.chmod(0o755)
        (self.bin / "ctx").write_text(f"#!{self.bin}/python3\nimport sys\n")
        self.env = {"PATH": os.environ["PATH"], "SUBSTRATE_SOCKET": str(top / "a.sock")}
        #: The kernel's limit is on what the interpreter may map; LSan cannot trace in containers.
        self.env["ASAN_OPTIONS"] = "detect_leaks=0"
        self.directory = top / "a.agent"
        self.uid = os.geteuid()
        self.requests: list[tuple[daemon_wire.Request, list[tuple[int, int]]]] = []
        self._listening: socket.socket | None = None

    def serve(self, answer: Callable[[socket.socket], None], directory: Path | None = None) -> None:
        """Meet one caller after the other, until the end of the test."""
        place, ours = directory or self.directory, os.geteuid()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        listening = socket.socket(socket.AF_UNIX)
        fd = os.open(place, os.O_PATH)
        listening.bind(f"/proc/self/fd/{fd}/door.sock")
        os.close(fd)
        os.seteuid(self.uid)  # the peer of a socket is the user that called `listen`
        listening.listen(8)
        os.seteuid(ours)
        self._listening = listening

        def loop() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        request, descriptors = daemon_wire.receive_request(connection)
                    except (EOFError, ValueError):
                        continue
                    identities = [os.fstat(one) for one in descriptors]
                    for one in descriptors:
                        os.close(one)
                    seen = [(found.st_dev, found.st_ino) for found in identities]
                    self.requests.append((request, seen))
                    try:
                        answer(connection)
                    except OSError:
                        continue

        threading.Thread(target=loop, daemon=True).start()

    def close(self) -> None:
        if self._listening is not None:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def __call__(self, *words: str, **more: object) -> tuple[int, str, str]:
        options: dict[str, object] = {"env": self.env, "cwd": self.top, **APART, **more}
        done = subprocess.run(  # type: ignore[call-overload]
            [self.program, *words], capture_output=True, text=True, check=False, timeout=60,
            **options,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def stayed(self, *words: str, **more: object) -> bool:
        """Whether the call went to Python, with its words."""
        status, out, err = self(*words, **more)
        assert status == 99 and err == "", (status, out, err)
        assert out == f"{IN_PYTHON}{self.program} {' '.join(words)}"
        return True


@pytest.fixture
def place(program: Path, tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "p", program)
    yield made
    made.close()


def replies(*parts: tuple[bytes, bytes]) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        for kind, payload in parts:
            daemon_wire.send_reply(connection, kind, payload)

    return answer


STARTED = (daemon_wire.STARTED, b"999999999")
FINE = replies(STARTED, (daemon_wire.EXITED, b"0"))


def test_the_daemon_gets_what_python_would_send(place: Place) -> None:
    place.serve(FINE)
    place.env |= {"EMPTY": "", "ODD": "a\nb=c", "BYTES": "\udcff"}
    words = ["--net", "off", "-c", "x 'y'", "", "\udcfe", "-C"]
    assert place(*words, umask=0o027) == (0, "", "")
    [(request, [stdin, stdout, stderr, here])] = place.requests
    assert request.kind == b"run" and request.flags == b""
    assert request.argv == [os.fsencode(word) for word in words]
    assert dict(entry.split(b"=", 1) for entry in request.env) == {
        os.fsencode(name): os.fsencode(value) for name, value in place.env.items()
    }
    assert (request.version, request.install) == (b"7.8.9", os.fsencode(place.package))
    assert request.umask == 0o027
    found = place.top.stat()
    assert here == (found.st_dev, found.st_ino)
    null = Path(os.devnull).stat()
    assert stdin == (null.st_dev, null.st_ino) and len({stdin, stdout, stderr}) == 3


_WORDS = ["-c", "-f", "run", "--help", "-h", "--version", "--", "-x", "log", "", "--net", "-C",
          "--timeout", "--session", "--limit-pids", "--json", "--isolate=full"]  # fmt: skip


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(st.sampled_from(_WORDS), max_size=5))
def test_the_same_calls_are_offered_as_by_python(place: Place, words: list[str]) -> None:
    if place._listening is None:
        place.serve(FINE)
    before = len(place.requests)
    status, out, _ = place(*words)
    offered = python_client.is_run([word.encode() for word in words])
    assert (status, out.startswith(IN_PYTHON)) == ((0, False) if offered else (99, True))
    assert len(place.requests) - before == offered


def test_every_option_with_a_value_is_known_to_both() -> None:
    text = SOURCE.read_text().partition("valued[] = {")[2].partition("NULL")[0]
    assert set(text.replace('"', " ").replace(",", " ").split()) == {
        option.decode() for option in python_client._VALUED
    }


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SUBSTRATE_DAEMON", "Off"),
        ("SUBSTRATE_AGENT", "Off"),
        ("SUBSTRATE_PARENT_SPAN", "s"),
        ("SUBSTRATE_WORLD_ID", "w"),
    ],
)
def test_a_call_that_is_not_for_the_daemon_stays(place: Place, variable: str, value: str) -> None:
    place.serve(FINE)
    place.env[variable] = ""
    assert place("-c", "x")[0] == 0
    place.env[variable] = value
    assert place.stayed("-c", "x")


#: The arguments, the caller, and whether the call is a hook of that caller.
HOOKS = [
    (["-c", "echo $0"], "claude-code_2-1-325_harness", True),
    (["-c", "echo $0"], "_harness", True),
    (["-c", "echo $0"], "claude-code_2-1-325_agent", False),
    (["-c", "echo $0"], "harness", False),
    (["-c", "echo $0"], "", False),
    (["-c", ""], "x_harness", False),
    (["-c"], "x_harness", False),
    (["-c", "echo $0", "more"], "x_harness", False),
    (["--net", "off", "-c", "echo $0"], "x_harness", False),
    (["run", "echo"], "x_harness", False),
]


@pytest.mark.parametrize(("words", "who", "is_hook"), HOOKS)
def test_an_agents_hook_goes_straight_through(
    place: Place, words: list[str], who: str, is_hook: bool
) -> None:
    place.env["AI_AGENT"] = who
    assert hook_passthrough.is_hook(words, {b"AI_AGENT": who.encode()}) == is_hook
    if is_hook:
        assert place(*words) == (0, "/bin/bash\n", "")
    else:
        assert place.stayed(*words)


@pytest.mark.parametrize(
    ("said", "is_hook"),
    [("enabled", False), ("Enabled", False), ("on", False), ("", True), ("Disabled", True)],
)
def test_no_hook_goes_through_where_a_world_is_required(
    place: Place, said: str, is_hook: bool
) -> None:
    place.env |= {"AI_AGENT": "x_harness", "SUBSTRATE_WORLD": said}
    env = {b"AI_AGENT": b"x_harness", b"SUBSTRATE_WORLD": said.encode()}
    assert hook_passthrough.is_hook(["-c", "echo $0"], env) == is_hook
    if is_hook:
        assert place("-c", "echo $0") == (0, "/bin/bash\n", "")
    else:
        assert place.stayed("-c", "echo $0")


def test_with_a_terminal_or_a_closed_descriptor_it_stays(place: Place) -> None:
    place.serve(FINE)
    leader, follower = os.openpty()
    try:
        assert place.stayed("-c", "x", stdin=follower)
    finally:
        os.close(leader)
        os.close(follower)
    closed = subprocess.run(
        ["sh", "-c", 'exec "$0" -c x <&-', str(place.program)],
        env=place.env, start_new_session=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert closed.returncode == 99 and place.requests == []


@pytest.mark.parametrize(
    ("line", "names"),
    [
        *(("cat /dev/fd/63", True), ("cat <&3", True), ("echo >&10", True), ("read <&$fd", True)),
        *(("x 2>&1 >&2 <&0", False), ("a && b & c <& 3", False), ("&3", False), (">&", False)),
    ],
)
def test_with_more_descriptors_it_stays_if_one_is_named(
    place: Place, line: str, names: bool
) -> None:
    """As with `<(command)`: the command is to have them, too."""
    place.serve(FINE)
    assert python_client.names_descriptor([b"-c", line.encode()]) == names
    assert place("-c", line)[0] == 0
    more = os.open(os.devnull, os.O_RDONLY)
    try:
        assert place("-c", line, pass_fds=(more,))[0] == (99 if names else 0)
    finally:
        os.close(more)


@pytest.mark.parametrize(
    ("variable", "flags", "names"),
    [
        *(("MAKEFLAGS", " -j2 --jobserver-auth=3,4", True), ("MAKEFLAGS", "w", False)),
        *(("MAKEFLAGS", "--jobserver-fds=3,4 -j", True), ("OTHER", "--jobserver-auth=3,4", False)),
        *(("MAKEFLAGS", " -j2 --jobserver-auth=fifo:/tmp/G1", False), ("MAKEFLAGS", "", False)),
        *(
            ("MAKEFLAGS", "--jobserver-auth=-2,-2", False),
            ("MAKEFLAGS", "--jobserver-auth=", False),
        ),
        ("CARGO_MAKEFLAGS", "-j --jobserver-fds=8,9 --jobserver-auth=8,9", True),
    ],
)
def test_with_the_descriptors_of_a_job_server_it_stays(
    place: Place, variable: str, flags: str, names: bool
) -> None:
    place.serve(FINE)
    place.env[variable] = flags
    assert python_client.names_job_server({variable.encode(): flags.encode()}) == names
    assert place("-c", "make")[0] == 0  # make has not handed them on
    more = os.open(os.devnull, os.O_RDONLY)
    try:
        assert place("-c", "make", pass_fds=(more,))[0] == (99 if names else 0)
    finally:
        os.close(more)


def test_python_gets_the_words_and_the_environment_as_they_are(place: Place) -> None:
    """A shell on the way would leave out functions of bash's and other odd names."""
    (place.bin / "ctx").write_text(f"#!{sys.executable} -sP\n")
    place.env |= {"BASH_FUNC_f%%": "() { :; }", "a.b": "1", "EMPTY": "", "LC_ALL": "C"}
    status, out, err = place("-c", "x 'y'", "")
    assert (status, err) == (0, "")
    entries = "".join(f"{name}={value}\0" for name, value in place.env.items())
    prefixes = [sys.executable.rpartition("/bin/")[0], str(place.bin.parent)]
    assert ast.literal_eval(out) == [str(place.program), *prefixes, "-c", "x 'y'", "", entries]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [(daemon_wire.DECLINED, b"stale")],
        [(daemon_wire.DECLINED, b"x" * 9000)],
        [(daemon_wire.EXITED, b"0")],
        [(daemon_wire.STARTED, b"")],
        [(daemon_wire.STARTED, b"0")],
        [(daemon_wire.STARTED, b"-5")],
        [(daemon_wire.STARTED, b"12x")],
        [(daemon_wire.STARTED, b"9" * 30)],
        [(daemon_wire.STARTED, b"%d" % (2**32 + 999999999))],
        [(b"?", b"what")],
    ],
)
def test_before_the_start_anything_odd_is_left_to_python(
    place: Place, parts: list[tuple[bytes, bytes]]
) -> None:
    place.serve(replies(*parts))
    assert place.stayed("-c", "x")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [(daemon_wire.EXITED, b"")],
        [(daemon_wire.EXITED, b"none")],
        [(daemon_wire.DECLINED, b"stale")],
        [STARTED],
        [(b"\0", b"")],
    ],
)
def test_after_the_start_a_daemon_that_goes_is_reported(
    place: Place, parts: list[tuple[bytes, bytes]]
) -> None:
    """Python would run the command a second time."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as command:
        place.serve(replies((daemon_wire.STARTED, b"%d" % command.pid), *parts))
        try:
            assert place("-c", "x") == (125, "", python_client._LOST.decode())
            assert command.wait(10) == -signal.SIGKILL
        finally:
            command.kill()


def test_a_reply_too_large_is_no_reply(place: Place) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(daemon_wire.STARTED + struct.pack(">I", 0xFFFFFFFF) + b"1" * 100)

    place.serve(answer)
    assert place.stayed("-c", "x")


@pytest.mark.parametrize(("said", "status"), [(b"3", 3), (b"255", 255), (b"300", 44)])
def test_the_status_is_the_daemons(place: Place, said: bytes, status: int) -> None:
    place.serve(replies(STARTED, (daemon_wire.REPORT, b"r" * 70_000), (daemon_wire.EXITED, said)))
    assert place("-c", "x") == (status, "", "")


def test_replies_arrive_in_any_pieces(place: Place) -> None:
    def answer(connection: socket.socket) -> None:
        for byte in b"S\0\0\0\x09999999999X\0\0\0\x0242":
            connection.sendall(bytes((byte,)))
            time.sleep(0.001)

    place.serve(answer)
    assert place("-c", "x")[0] == 42


def test_a_large_environment_is_sent_whole_or_not_at_all(place: Place) -> None:
    place.serve(FINE)
    words = ["-c", *(["w" * 100_000] * 12)]
    assert place(*words)[0] == 0
    assert place.requests[-1][0].argv == [word.encode() for word in words]


# ---------------------------------------------------------------------------- which daemon


def test_only_a_daemon_in_a_place_of_our_own_is_asked(place: Place) -> None:
    place.serve(FINE)
    place.directory.chmod(0o750)
    assert place.stayed("-c", "x")
    place.directory.chmod(0o700)
    real = place.directory.rename(place.top / "real.agent")
    place.directory.symlink_to(real)
    assert place.stayed("-c", "x") and place.requests == []


@pytest.mark.needs("root", "other-user")
def test_a_daemon_of_another_user_is_not_asked(place: Place) -> None:
    place.serve(FINE)
    os.chown(place.directory, NOBODY, NOBODY)
    assert place.stayed("-c", "x") and place.requests == []


@pytest.mark.needs("root", "other-user")
def test_the_answer_must_come_from_us(place: Place) -> None:
    place.uid = NOBODY
    place.serve(FINE)
    assert place.stayed("-c", "x") and place.requests == []


@pytest.mark.parametrize("form", ["named", "long"])
def test_the_agents_place_may_be_named(place: Place, form: str) -> None:
    top = place.top / ("d" * 100) if form == "long" else place.top
    place.env["SUBSTRATE_SOCKET"] = str(top / "named")
    place.serve(FINE, top / "named.agent")
    assert place("-c", "x") == (0, "", "")


@pytest.mark.needs("root", "other-user")
@pytest.mark.parametrize("form", ["home", "substrate-home"])
def test_a_users_daemon_is_in_the_users_home(program: Path, form: str) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        place = Place(Path(open_to_all, "p"), program)
        place.uid = NOBODY
        home = place.top / ".substrate"
        del place.env["SUBSTRATE_SOCKET"]
        place.env |= {"HOME": str(place.top)} if form == "home" else {"SUBSTRATE_HOME": str(home)}
        try:
            place.serve(FINE, home / "run" / "substrate.agent")
            for path in (
                home / "run" / "substrate.agent",
                home / "run" / "substrate.agent" / "door.sock",
            ):
                os.chown(path, NOBODY, NOBODY)
            assert place("-c", "x", user=NOBODY, group=NOBODY, extra_groups=[]) == (0, "", "")
        finally:
            place.close()


@pytest.mark.parametrize("written", ["a.sock", "{}/./a.sock", "{}//a.sock", "{}/p/../a.sock"])
def test_a_path_that_must_be_worked_out_is_left_to_python(place: Place, written: str) -> None:
    place.serve(FINE)
    place.env["SUBSTRATE_SOCKET"] = written.format(place.top)
    assert place.stayed("-c", "x")


def test_no_daemon_no_ctx_no_package_or_two_of_them(place: Place) -> None:
    assert place.stayed("-c", "x")
    place.serve(FINE)
    assert place("-c", "x")[0] == 0
    other = place.top / "prefix/lib/python3.12/site-packages/substrate"
    if other == place.package:
        other = place.top / "prefix/lib/python3.13/site-packages/substrate"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    assert place.stayed("-c", "x")
    (other / "__init__.py").unlink()
    (place.bin / "ctx").write_text("#!/bin/sh\n")
    assert place.stayed("-c", "x")
    (place.bin / "ctx").unlink()
    assert place.stayed("-c", "x")


def test_the_package_may_be_below_another_python(place: Place, tmp_path: Path) -> None:
    """First below the Python that `ctx` names, then beside the program itself."""
    place.serve(FINE)
    (place.bin / "ctx").write_text(f"#!{tmp_path}/elsewhere/bin/python3.11 -sP\n")
    assert place("-c", "x")[0] == 0
    assert place.requests[-1][0].install == os.fsencode(place.package)
    other = tmp_path / "elsewhere" / SITE / "substrate"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    assert place("-c", "x")[0] == 0
    assert place.requests[-1][0].install == os.fsencode(other)


# ------------------------------------------------------------------------------- signals


def _catches(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (caught,) = (line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)


class _Calling:
    """A call that the daemon has started and has not ended."""

    def __init__(self, place: Place, group: int = 999999999) -> None:
        self.got = b""
        self._heard = threading.Condition()
        self._end = threading.Event()

        def answer(connection: socket.socket) -> None:
            daemon_wire.send_reply(connection, daemon_wire.STARTED, b"%d" % group)
            connection.settimeout(0.05)
            while not self._end.is_set():
                try:
                    said = connection.recv(64)
                except TimeoutError:
                    continue
                if not said:
                    return
                with self._heard:
                    self.got += said
                    self._heard.notify_all()
            daemon_wire.send_reply(connection, daemon_wire.EXITED, b"5")

        place.serve(answer)
        self.process = subprocess.Popen(
            [place.program, "-c", "x"], env=place.env, cwd=place.top, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        while not _catches(self.process.pid, signal.SIGUSR2):  # it knows of the start
            assert self.process.poll() is None
            time.sleep(0.01)

    def heard(self, count: int) -> bytes:
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.got) >= count, 60)
        return self.got

    def end(self) -> int:
        self._end.set()
        return self.process.wait(60)


def test_signals_are_passed_on(place: Place) -> None:
    call = _Calling(place)
    sent = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]
    for count, number in enumerate([*sent, signal.SIGUSR2], 1):
        call.process.send_signal(number)
        assert call.heard(count)[-1] == number
    assert call.end() == 5


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_a_signal_before_the_start_ends_it(place: Place, name: str) -> None:
    """It would be lost to a daemon that declines, or never answers."""
    asked, end = threading.Event(), threading.Event()

    def answer(_: socket.socket) -> None:
        asked.set()
        end.wait(60)

    place.serve(answer)
    with subprocess.Popen(
        [place.program, "-c", "x"], env=place.env, cwd=place.top, **APART
    ) as call:  # type: ignore[call-overload]
        try:
            assert asked.wait(60)
            call.send_signal(signal.Signals[name])
            assert call.wait(60) == -signal.Signals[name]
        finally:
            call.kill()
            end.set()


def test_a_signal_that_is_ignored_stays_ignored(place: Place) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        call = _Calling(place)
    finally:
        signal.signal(signal.SIGHUP, before)
    call.process.send_signal(signal.SIGHUP)
    for count, number in enumerate((signal.SIGUSR1, signal.SIGUSR2), 1):
        call.process.send_signal(number)
        call.heard(count)
    assert call.got == bytes((signal.SIGUSR1, signal.SIGUSR2))
    assert call.end() == 5


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _becomes(pid: int, state: str) -> None:
    for _ in range(3000):
        if _state(pid) == state:
            return
        time.sleep(0.01)
    raise AssertionError(f"{pid} is {_state(pid)}, not {state}")


def test_stopping_it_stops_the_command_and_going_on_goes_on(place: Place) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as command:
        try:
            call = _Calling(place, command.pid)
            call.process.send_signal(signal.SIGTSTP)
            _becomes(call.process.pid, "T")
            _becomes(command.pid, "T")
            call.process.send_signal(signal.SIGCONT)
            _becomes(command.pid, "S")
            assert call.end() == 5
        finally:
            command.kill()
