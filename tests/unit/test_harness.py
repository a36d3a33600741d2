"""The test harness itself: would it notice a failure?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capabilities import CAPABILITIES, is_expected_skip, present

ROOT = Path(__file__).parents[2]
#: Never empty: no user is both root and not root.
ABSENT = [name for name in CAPABILITIES if not present(name)]
PRESENT = [name for name in CAPABILITIES if present(name)]


def run_pytest(directory: Path, text: str, *options: str, home: Path) -> tuple[int, str]:
    """Run one test file on the same ground, in a pytest of its own."""
    sample = directory / "test_sample.py"
    sample.write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    where = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory)]
    done = subprocess.run(
        [*command, *where, *options, str(sample)],
        cwd=directory,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "SUBSTRATE_SESSION_ID": "s-the-developers-own",
            "GIT_DIR": "/nowhere",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def skipping(reason: str) -> str:
    return f"import pytest\ndef test_it():\n    pytest.skip({reason!r})\n"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_unexpected_skip_fails_a_strict_run(
    tmp_path: Path, private_environment: Path, workers: str
) -> None:
    text = skipping("did not feel like it")
    status, said = run_pytest(
        tmp_path, text, "--strict-skips", "-n", workers, home=private_environment
    )
    assert status == 1
    assert "unexpected skips" in said
    assert "did not feel like it" in said
    assert run_pytest(tmp_path, text, home=private_environment)[0] == 0


def test_an_expected_skip_passes_a_strict_run(tmp_path: Path, private_environment: Path) -> None:
    text = f"import pytest\n@pytest.mark.needs({ABSENT[0]!r})\ndef test_it():\n    assert False\n"
    status, said = run_pytest(tmp_path, text, "--strict-skips", home=private_environment)
    assert status == 0, said


def test_only_a_missing_capability_is_a_reason() -> None:
    assert all(is_expected_skip(f"Skipped: needs {name}") for name in ABSENT)
    assert all(is_expected_skip(f"needs {name}: as in this case") for name in ABSENT)
    assert not any(is_expected_skip(f"needs {name}") for name in PRESENT)
    assert not is_expected_skip("needs luck")


def test_writing_to_the_real_home_fails_the_test(tmp_path: Path, private_environment: Path) -> None:
    text = (
        "from pathlib import Path\n"
        "def test_it():\n"
        f"    Path({str(private_environment)!r}, '.substrate').mkdir()\n"
    )
    status, said = run_pytest(tmp_path, text, home=private_environment)
    assert status == 1
    assert "written to the real home directory: .substrate" in said


def test_a_long_test_runs_only_when_asked_for(tmp_path: Path, private_environment: Path) -> None:
    text = "import pytest\n@pytest.mark.long\ndef test_it():\n    pass\n"
    assert "1 deselected" in run_pytest(tmp_path, text, home=private_environment)[1]
    assert "1 passed" in run_pytest(tmp_path, text, "--long", home=private_environment)[1]


def test_the_environment_has_no_past(tmp_path: Path, private_environment: Path) -> None:
    text = (
        "import os, subprocess\n"
        "def test_it():\n"
        f"    assert os.environ['HOME'] != {str(private_environment)!r}\n"
        "    assert 'SUBSTRATE_SESSION_ID' not in os.environ\n"
        "    assert os.listdir(os.environ['HOME']) == []\n"
        "    subprocess.run(['git', 'init', '-q', 'repo'], check=True)\n"
        "    said = subprocess.check_output(['git', '-C', 'repo', 'var', 'GIT_AUTHOR_IDENT'])\n"
        "    assert said.startswith(b'Ada Tester ')\n"
    )
    status, said = run_pytest(tmp_path, text, home=private_environment)
    assert status == 0, said
