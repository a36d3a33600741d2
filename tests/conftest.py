"""What every test gets: an empty home, a pinned git, no variables of ours, expected skips only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import portable, watched_git
from tests.capabilities import is_expected_skip, present

# No test depends on the machine's speed; a failure prints how to reproduce it. The ordinary run
# tries the same examples every time, so that red means "you broke it"; `--long` tries new ones.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")

#: Where a test that forgot its own home would leave traces, of ours or of git's.
_WATCHED = (
    ".substrate",
    ".substrate-git",
    ".substrateignore",
    ".ctx",
    ".manifold",
    ".gitconfig",
    ".config/git",
)
_REAL_HOME = Path(os.path.expanduser("~"))

#: Variables whose value on the developer's machine must not reach a test.
_FOREIGN_PREFIXES = ("SUBSTRATE_", "GIT_", "XDG_", "CLAUDE", "CODEX_", "GEMINI_", "LC_")
_FOREIGN = (
    *("AI_AGENT", "NO_COLOR", "FORCE_COLOR", "PAGER", "EDITOR", "VISUAL", "BASH_ENV", "ENV"),
    *("COLUMNS", "LINES"),
    # They change how our own streams behave, and would hide a missing flush or an encoding slip.
    *("PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS"),
)

_PINNED = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Ada Tester",
    "GIT_AUTHOR_EMAIL": "ada@example.invalid",
    "GIT_COMMITTER_NAME": "Ada Tester",
    "GIT_COMMITTER_EMAIL": "ada@example.invalid",
}


@pytest.fixture(scope="session", autouse=True)
def git_calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory where the product's git calls of this run are written down, and judged."""
    directory = tmp_path_factory.mktemp("git-calls")
    with watched_git.watching(directory):
        yield directory


@pytest.fixture(autouse=True)
def private_environment(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """A clean environment; yields the home directory made for this test.

    The home is beside the test's `tmp_path`, not in it: a test may use `tmp_path` itself as its
    workspace. The fixture `monkeypatch` is not used: a test that calls its `undo` would get the
    real home back.
    """
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_FOREIGN_PREFIXES) or name in _FOREIGN:
                patch.delenv(name)
        for name, value in _PINNED.items():
            patch.setenv(name, value)
        patch.setenv("HOME", str(home))
        patch.setenv("SUBSTRATE_HOME", str(home / ".substrate"))
        # No test leaves a daemon behind; the tests of the daemon start their own.
        patch.setenv("SUBSTRATE_DAEMON", "off")
        if request.config.getoption("--portable"):
            patch.setenv("SUBSTRATE_WORLD_STRATEGY", "direct")
        if speed := request.config.getoption("--speed"):
            patch.setenv("SUBSTRATE_DAEMON_SPEED", speed)
        yield home


@pytest.fixture(autouse=True)
def real_home_untouched() -> Iterator[None]:
    """Fail the test that wrote to the real home directory."""
    before = _traces(_REAL_HOME)
    yield
    after = _traces(_REAL_HOME)
    changed = sorted(name for name in after if after[name] != before[name])
    assert not changed, f"written to the real home directory: {', '.join(changed)}"


def _traces(home: Path) -> dict[str, tuple[int, int] | None]:
    return {name: _stamp(home / name) for name in _WATCHED}


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("substrate")
    group.addoption("--long", action="store_true", help="run the long sweeps too")
    group.addoption(
        "--agents",
        action="store_true",
        help="run the tests with the real coding agents too (scripts/test --agents installs them)",
    )
    group.addoption(
        "--portable",
        action="store_true",
        help="run the tests that macOS and Windows run, without worlds (tests/portable.py)",
    )
    group.addoption(
        "--speed",
        choices=("on", "off"),
        help="off: the daemons of the tests run without their speed layer",
    )
    group.addoption(
        "--strict-skips",
        action="store_true",
        default=os.environ.get("CI", "").lower() in ("1", "true"),
        help="fail if a test was skipped for a reason that is not expected here (default in CI)",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--long"):
        settings.load_profile("search")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what this system cannot even import; None lets others decide."""
    if not config.getoption("--portable"):
        return None
    return portable.is_left_out(collection_path, portable.chosen()) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long sweeps are left out, not skipped: a skip always means "cannot run here".

    So are the tests with real coding agents, and those of the daemon's speed layer in a run
    without it.
    """
    unwanted = {
        *(() if config.getoption("--long") else ("long",)),
        *(() if config.getoption("--agents") else ("agents",)),
        *(("speed_layer",) if config.getoption("--speed") == "off" else ()),
    }

    def is_left_out(item: pytest.Item) -> bool:
        return any(item.get_closest_marker(name) is not None for name in unwanted)

    chosen = [item for item in items if not is_left_out(item)]
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        for capability in marker.args:
            if not present(capability):
                pytest.skip(f"needs {capability}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under `--strict-skips` turn a green run with unexpected skips red.

    With xdist the reports end up in the controller: its terminal reporter has them all.
    """
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not config.getoption("--strict-skips"):
        return
    unexpected = [
        (report.nodeid, reason)
        for report in reporter.stats.get("skipped", [])
        if not is_expected_skip(reason := _reason(report))
    ]
    if unexpected:
        reporter.section("unexpected skips", red=True)
        for nodeid, reason in unexpected:
            reporter.line(f"{nodeid}: {reason}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    return str(report.longrepr)
