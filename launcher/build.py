"""Which commands a wheel installs, and with which launcher: hatchling's hooks.

On POSIX `substrate` is `launcher/substrate`, and the wheel is for this system only; elsewhere, and
for `ctx` everywhere, it is what the installer writes.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_LAUNCHER = Path(__file__).with_name("substrate")
_ENTRY_POINTS = {"ctx": "substrate.cli.entry:ctx"}
_PORTABLE_ENTRY_POINTS = {**_ENTRY_POINTS, "substrate": "substrate.cli.entry:substrate"}


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
        build_data["shared_scripts"] = {str(_LAUNCHER): _LAUNCHER.name}
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
