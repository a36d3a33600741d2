"""A real overlay as a world: no isolation beyond its mount, all that arrival needs.

Its script replaces a command; the test may change the real tree before and after it.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest
from substrate.world.layer import layer_dirs

ISOLATION = Isolation("overlay", "workspace", "open", "a test")


class ScriptWorld:
    """Runs `script` in an overlay of `root`; `meanwhile` happens to the real tree after it."""

    def __init__(
        self,
        root: Path,
        script: str,
        meanwhile: Callable[[], None] = lambda: None,
        namespace: str = "trusted",
        worlds: Path | None = None,
    ) -> None:
        self.root = root
        self.script = script
        self.meanwhile = meanwhile
        self.namespace = namespace
        self.worlds = worlds or root / ".substrate-git" / "worlds"
        self.layer: Layer | None = None

    @property
    def isolation(self) -> Isolation:
        return ISOLATION

    def run(self, request: RunRequest) -> RunOutcome:
        directory = self.worlds / (request.world_id or "wld_test")
        upper, work = directory / "upper", directory / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        os.mknod(upper / ".substrate-git", stat.S_IFCHR, os.makedev(0, 0))
        options = f"lowerdir={self.root},upperdir={upper},workdir={work}"
        options += ",userxattr" if self.namespace == "user" else ",index=on"
        mount = f'mount -t overlay overlay -o "{options}" "{self.root}"'
        inside = f"set -e; {mount}; cd /; cd '{self.root}'; {self.script}"
        done = subprocess.run(["unshare", "-m", "bash", "-c", inside], check=False)
        self.meanwhile()
        prefix = f"{self.namespace}.overlay.".encode()
        self.layer = Layer(directory.name, directory, upper, self.root, "overlay", prefix)
        layer_dirs.note_kind(self.layer)  # to be found if it waits
        return RunOutcome(done.returncode, None, False, 7, ISOLATION, layer=self.layer)

    def discard(self, layer: Layer) -> None:
        subprocess.run(["rm", "-rf", str(layer.directory)], check=True)
