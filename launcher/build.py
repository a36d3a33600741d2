"""Which commands a wheel installs, and with which launcher: hatchling's hooks.

On POSIX `substrate` is our own, and the wheel is for this system only; elsewhere, and for `ctx`
everywhere, it is what the installer writes. On Linux with a C compiler it is `client.c`, which
starts Python only when it must; without one it is the shell script `substrate`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_HERE = Path(__file__).parent
_SCRIPT = _HERE / "substrate"
_ENTRY_POINTS = {"ctx": "substrate.cli.startup:ctx"}
_PORTABLE_ENTRY_POINTS = {**_ENTRY_POINTS, "substrate": "substrate.cli.startup:substrate"}


def _has_sh() -> bool:
    return os.name == "posix"


class Commands(MetadataHookInterface):
    """The commands for which the installer writes the script."""

    def update(self, metadata: dict[str, object]) -> None:
        metadata["scripts"] = _ENTRY_POINTS if _has_sh() else _PORTABLE_ENTRY_POINTS


class Launcher(BuildHookInterface):  # type: ignore[type-arg]
    """The command that brings its own."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        if not _has_sh():
            return
        self._scratch = tempfile.mkdtemp(prefix="substrate-launcher-")
        program = _compiled(Path(self._scratch), self.metadata.version) or _SCRIPT
        build_data["shared_scripts"] = {str(program): "substrate"}
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, object], artifact_path: str) -> None:
        if _has_sh():
            shutil.rmtree(self._scratch, ignore_errors=True)


def _compiled(scratch: Path, version: str) -> Path | None:
    """`client.c` as a program; None where it cannot be had. CC names the compiler, as usual."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if sys.platform != "linux":
        return None
    script = _SCRIPT.read_text()
    python = script.partition("-c '")[2].partition("'")[0]
    texts = {"LAUNCHER": script, "PYTHON": python, "VERSION": version}
    lines = [f"#define {name} {_c_string(text)}\n" for name, text in texts.items()]
    (scratch / "launcher.h").write_text("".join(lines))
    program = scratch / "substrate"
    words = [*compiler, "-std=gnu11", "-O2", "-s", f"-I{scratch}", str(_HERE / "client.c")]
    words += ["-o", str(program)]
    # Without shared libraries it starts in two thirds of the time, and runs beside any libc.
    for linking in (["-static"], []):
        try:
            done = subprocess.run([*words, *linking], capture_output=True, check=False)
        except OSError:
            return None
        if done.returncode == 0:
            return program
    return None


def _c_string(text: str) -> str:
    """JSON's escapes are C's, for ASCII."""
    return json.dumps(text)
