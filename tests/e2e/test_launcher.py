"""The `substrate` that a wheel installs on POSIX: a launcher of our own beside pip's `ctx`.

Wheels are built here from the sources, with a compiler and without one, and laid out as an
installer would. What the compiled one says to the daemon: test_compiled_client.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate import __version__

pytestmark = pytest.mark.needs("posix")

SOURCES = Path(__file__).resolve().parents[2]
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
VERSION = f"substrate {__version__}\n"


COMPILED = pytest.param("cc", marks=pytest.mark.needs("linux", "compiler"), id="compiled")
SCRIPT = pytest.param("false", id="script")


@pytest.fixture(scope="module", params=[COMPILED, SCRIPT])
def compiler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wheel(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    env = {**os.environ, "CC": compiler, "TMPDIR": str(directory)}
    subprocess.run(words, cwd=SOURCES, check=True, capture_output=True, env=env)
    assert [path.suffix for path in directory.iterdir()] == [".whl"]  # nothing left behind
    (built,) = directory.glob("*.whl")
    return built


Install = Callable[..., Path]


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Install:
    """Lays a prefix out and returns the launcher in it."""

    def lay_out(name: str = "prefix", site: str = SITE, first_lines: str = "") -> Path:
        prefix = tmp_path / name
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(prefix / site)
        (scripts,) = (prefix / site).glob("*.data/scripts")
        bin_directory = prefix / "bin"
        scripts.rename(bin_directory)
        (bin_directory / "substrate").chmod(0o755)
        first = first_lines or f"#!{sys.executable}\n"
        (bin_directory / "ctx").write_text(first + "import sys\n")
        return bin_directory / "substrate"

    return lay_out


def said(*words: str | Path, cwd: Path | None = None, **env: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_wheel_has_one_launcher_and_says_for_which_system(wheel: Path, compiler: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        declared = archive.read(entry_points).decode()
        first = archive.read(next(name for name in names if name.endswith("scripts/substrate")))[:4]
    assert [name.partition(".data/")[2] for name in names if ".data/" in name] == [
        "scripts/substrate"
    ]
    assert "ctx = substrate.cli.startup:ctx" in declared
    assert "substrate = " not in declared  # pip would write its own over ours
    assert first == (b"#!/b" if compiler == "false" else b"\x7fELF")
    assert not wheel.name.endswith("-any.whl")


def test_it_is_found_however_it_is_called(install: Install, tmp_path: Path) -> None:
    launcher = install("with a space")
    link = tmp_path / "link"
    link.symlink_to(launcher)
    second = tmp_path / "second"
    second.symlink_to("link")
    bin_directory = launcher.parent
    assert said(launcher, "--version") == VERSION
    assert said(link, "--version") == VERSION
    assert said(second, "--version") == VERSION
    assert said("./substrate", "--version", cwd=bin_directory) == VERSION
    if launcher.read_bytes().startswith(b"#!"):
        assert said("sh", "substrate", "--version", cwd=bin_directory) == VERSION
    assert said("bin/../bin/./substrate", "--version", cwd=bin_directory.parent) == VERSION
    for entry in (str(bin_directory), f"{bin_directory}/", "bin", "./bin//"):
        path = f"{entry}{os.pathsep}{os.environ['PATH']}"
        assert said("substrate", "--version", cwd=bin_directory.parent, PATH=path) == VERSION


def test_words_arrive_as_they_are(install: Install, tmp_path: Path) -> None:
    launcher = install()
    words = ["a b", "", "*", "-c", "$HOME", "'", "\\", "\n", "\udcff"]
    printed = said(
        launcher, "run", "--", sys.executable, "-c",
        "import sys; print(ascii(sys.argv[1:]))", *words,
        SUBSTRATE_HOME=str(tmp_path / "home"), SUBSTRATE_DAEMON="off", cwd=tmp_path,
    )  # fmt: skip
    assert printed == f"{words!a}\n"


@pytest.mark.parametrize(
    "first_lines",
    [
        "#!/bin/sh\n'''exec' \"LONG/bin/python\" \"$0\" \"$@\"\n' '''\n",
        f"#!{sys.executable} -sP\n",
    ],
    ids=["a path too long for a first line", "options"],
)
def test_other_first_lines_that_installers_write(install: Install, first_lines: str) -> None:
    launcher = install(first_lines=first_lines)
    (launcher.parent / "python").symlink_to(sys.executable)
    assert said(launcher, "--version") == VERSION


def test_where_site_alone_knows_the_place(install: Install) -> None:
    """As of an editable install, or in a distribution's own directories."""
    launcher = install(site="elsewhere")
    environment = launcher.parents[1] / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (environment / SITE / "substrate.pth").write_text(str(launcher.parents[1] / "elsewhere"))
    (launcher.parent / "ctx").write_text(f"#!{environment}/bin/python\n")
    assert said(launcher, "--version") == VERSION


def test_a_project_cannot_put_its_modules_in_our_place(install: Install, tmp_path: Path) -> None:
    launcher = install()
    project = tmp_path / "project"
    (project / "substrate").mkdir(parents=True)
    for name in ("substrate/__init__.py", "posix.py", "site.py", "sitecustomize.py", "argparse.py"):
        (project / name).write_text("raise SystemExit('taken over')\n")
    assert said(launcher, "--version", cwd=project, PYTHONPATH=str(project)) == VERSION


def test_the_way_to_the_daemon_imports_no_os(install: Install) -> None:
    """`os` alone costs two of the milliseconds that a whole small command may add."""
    site = install().parents[1] / SITE
    code = (
        f"import sys; sys.path.append({str(site)!r})\n"
        "from substrate.cli import startup\n"
        "from substrate.client import offer_to_daemon as client\n"
        "from substrate.protocol import daemon_wire as door\n"
        "request = door.Request(b'run', [b'-c'], [b'A=b'], version=b'1', install=b'')\n"
        "client.install()\n"
        "request.encode()\n"
        "client.is_run([b'-c']), client.has_terminal()\n"
        "client.daemon_paths.socket_path({b'HOME': b'/home/u', b'SUBSTRATE_SOCKET': b'/run/s'})\n"
        "print(*sorted({'os', 'site', 're', 'socket', 'enum'} & set(sys.modules)))\n"
    )
    assert said(sys.executable, "-I", "-S", "-c", code) == "\n"


@pytest.mark.needs("linux")
@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_command_gets_no_locale_that_the_user_did_not_set(
    install: Install, tmp_path: Path, given: dict[str, str]
) -> None:
    """Python sets LC_CTYPE for itself where the locale is C."""
    launcher = install()
    env = {"PATH": os.environ["PATH"], "SUBSTRATE_HOME": str(tmp_path / "home"), **given}
    env["SUBSTRATE_DAEMON"] = "off"
    for start in ([str(launcher)], [sys.executable, "-m", "substrate"]):
        done = subprocess.run(
            [*start, "run", "--", "env"],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith("LC_")]
        assert lines == [f"{name}={value}" for name, value in given.items()]


@pytest.mark.needs("linux")
@pytest.mark.parametrize("compiler", [COMPILED], indirect=True)
def test_a_function_that_bash_exports_is_the_commands(install: Install, tmp_path: Path) -> None:
    """Not with the script: dash starts it, and drops such variables."""
    given = {"BASH_FUNC_greet%%": "() { echo hello; }", "SUBSTRATE_DAEMON": "off"}
    given["SUBSTRATE_HOME"] = str(tmp_path / "home")
    assert said(install(), "-c", "greet", cwd=tmp_path, **given) == "hello\n"


@pytest.mark.needs("linux")
def test_doctor_says_which_one_it_is(install: Install, compiler: str, tmp_path: Path) -> None:
    told = subprocess.run(
        [install(), "doctor", "--json"], cwd=tmp_path, capture_output=True, check=False,
        env={**os.environ, "SUBSTRATE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    found = {row["name"]: row for row in json.loads(told.stdout)["findings"]}
    assert found["client"]["works"] == (compiler != "false")
    assert bool(found["client"]["fix"]) == (compiler == "false")


@pytest.mark.needs("linux")
def test_a_directory_as_stdin_is_the_commands(install: Install, tmp_path: Path) -> None:
    """Python would not even start with it."""
    launcher = install()
    project = tmp_path / "project"
    project.mkdir()
    line = "cat; readlink /proc/self/fd/0; env | grep STREAMS_ASIDE"
    here = os.open(project, os.O_RDONLY | os.O_DIRECTORY)
    try:
        done = subprocess.run(
            [launcher, "-c", line], cwd=project, stdin=here, capture_output=True, text=True,
            check=False, timeout=60,
        )  # fmt: skip
    finally:
        os.close(here)
    assert (done.returncode, done.stdout) == (1, f"{project}\n")
    assert done.stderr == "cat: -: Is a directory\n"
