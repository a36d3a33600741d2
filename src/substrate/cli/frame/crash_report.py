"""The report of an unexpected exception, to fix the bug with.

It contains versions, the arguments of the call and the traceback, with secrets redacted; never
the environment. It stays on this machine, readable by its owner only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import substrate
from substrate.system import clock, ids

if TYPE_CHECKING:
    from substrate.system import Environment

_WITHHELD = "(withheld: it could not be redacted)"


def write_report(error: BaseException, argv: Sequence[str], environment: Environment) -> Path:
    """Write the report and return its path; `OSError` if it cannot be written anywhere."""
    text = report(error, argv)
    now = clock.iso(clock.now_ns())
    name = f"{now[:19].replace(':', '').replace('-', '')}Z-{ids.new_id('c')[2:]}.txt"
    try:
        return _write_private(environment.substrate_home / "crash", name, text)
    except OSError:
        # Substrate's own directory may be the problem: read-only, full, not a directory.
        from tempfile import mkdtemp

        return _write_private(Path(mkdtemp(prefix="substrate-crash-")), name, text)


def report(error: BaseException, argv: Sequence[str]) -> str:
    """The text of the report."""
    import platform
    import traceback

    trace = "".join(traceback.format_exception(error))
    return "\n".join(
        (
            f"substrate {substrate.__version__}",
            f"python    {sys.version.split()[0]} ({sys.executable})",
            f"platform  {platform.platform()}",
            f"time      {clock.iso(clock.now_ns())}",
            f"arguments {_redacted_words(argv)}",
            "",
            _redacted(trace),
        )
    )


# If the redactor fails, show nothing: a poor report is better than a leaked key. The excepts are
# broad because the reported bug may be in the redactor.


def _redacted(text: str) -> str:
    try:
        from substrate.recorder import redact

        return redact(text)
    except Exception:  # noqa: BLE001
        return _WITHHELD


def _redacted_words(argv: Sequence[str]) -> str:
    try:
        from substrate.recorder import redact_argv

        return " ".join(repr(word) for word in redact_argv(argv))
    except Exception:  # noqa: BLE001
        return _WITHHELD


def _write_private(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / name
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path
