"""What a test sees of a workspace and its store, by means of its own.

Nothing here imports the product: plain `os`, plain git, and the installed program's output.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

STORE = b".substrate-git"


class Seen(NamedTuple):
    """One path: its kind, all its mode bits (0 for a link), its bytes or where it leads."""

    kind: str
    mode: int
    content: bytes = b""

    def __repr__(self) -> str:
        text = self.content if len(self.content) < 60 else hashlib.sha1(self.content).digest()
        return f"{self.kind} {self.mode:04o} {text!r}"


Tree = dict[bytes, Seen]


def tree(root: Path) -> Tree:
    """Every path below `root` but the store and git directories, read afresh."""
    out: Tree = {}
    _walk(os.fsencode(root), b"", out)
    return out


def _walk(root: bytes, below: bytes, out: Tree) -> None:
    with os.scandir(os.path.join(root, below) if below else root) as found:
        for item in found:
            if item.name == STORE or (item.name == b".git" and item.is_dir(follow_symlinks=False)):
                continue
            path = below + b"/" + item.name if below else item.name
            status = item.stat(follow_symlinks=False)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                out[path] = Seen("directory", mode)
                _walk(root, path, out)
            elif stat.S_ISLNK(status.st_mode):
                out[path] = Seen("symlink", 0, os.readlink(item.path))
            elif stat.S_ISREG(status.st_mode):
                out[path] = Seen("file", mode, Path(os.fsdecode(item.path)).read_bytes())
            else:
                out[path] = Seen("special", mode)


def differences(found: Tree, expected: Tree) -> list[str]:
    """What is not as expected, a line a path; empty when all is well."""
    return [
        f"{path!r}: expected {expected.get(path)}, found {found.get(path)}"
        for path in sorted(found.keys() | expected.keys())
        if found.get(path) != expected.get(path)
    ]


def all_bytes(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below `directory` (a git directory, say) with its mode and content."""
    return {
        str(file.relative_to(directory)): (stat.S_IMODE(file.lstat().st_mode), file.read_bytes())
        for file in sorted(directory.rglob("*"))
        if file.is_file() and not file.is_symlink()
    }


class Cli(NamedTuple):
    """The installed program, run in a workspace by a real process."""

    workspace: Path
    home: Path
    umask: int = 0o022
    uid: int | None = None
    extra: Mapping[str, str] = {}
    #: The interpreter's arguments to run the program, if `-m substrate` is not enough; the
    #: program then changes to `uid` by itself.
    launcher: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        kept = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env.update({name: v for name, v in os.environ.items() if name.startswith("GIT_")})
        env.update(HOME=str(self.home), SUBSTRATE_HOME=str(self.home / ".substrate"))
        env["SUBSTRATE_DAEMON"] = "off"  # what is killed or counted is this very process
        env.update(self.extra)
        return env

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, *(self.launcher or ("-m", "substrate")), *words]

    def spawn(
        self, argv: Sequence[str], *, as_user: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        user: dict[str, object] = {}
        if self.uid is not None and as_user:
            user = {"user": self.uid, "group": self.uid, "extra_groups": []}
        return subprocess.run(
            argv, cwd=self.workspace, env=self.environment, umask=self.umask,
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=240, **user,  # type: ignore[call-overload]
        )  # fmt: skip

    def __call__(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return self.spawn(self.argv(*words), as_user=not self.launcher)

    def ok(self, *words: str) -> str:
        done = self(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stderr.decode()}"
        return done.stdout.decode()

    def json(self, *words: str) -> dict[str, object]:
        answer: dict[str, object] = json.loads(self.ok(*words, "--json"))
        return answer

    def log(self) -> list[dict[str, object]]:
        commands = self.json("log", "--limit", "0")["commands"]
        assert isinstance(commands, list)
        return commands

    def git(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        where = str(self.workspace / ".substrate-git" / ".git")
        return self.spawn(["git", f"--git-dir={where}", *words])


def store_problems(cli: Cli) -> list[str]:
    """What git, the program's own check and a look at the files say against a store."""
    out = []
    checked = cli.git("fsck", "--strict", "--full")
    complaints = [
        line
        for line in (checked.stdout + checked.stderr).decode().splitlines()
        if not line.startswith(("dangling ", "notice: ", "Checking "))
    ]
    if checked.returncode or complaints:
        out.append(f"git fsck: {checked.returncode} {complaints}")
    own = cli("fsck")
    if own.returncode:
        out.append(f"substrate fsck: {own.returncode} {(own.stdout + own.stderr).decode()}")
    found = [*leftovers(cli.workspace), *unlisted_worlds(cli)]
    return out + [f"left over: {name}" for name in found]


def unlisted_worlds(cli: Cli) -> list[str]:
    """Worlds that exist but are in no list."""
    worlds = cli.workspace / ".substrate-git" / "worlds"
    names = [path.name for path in worlds.iterdir()] if worlds.is_dir() else []
    if not names:
        return []
    listed = cli.json("world", "list")["worlds"]
    assert isinstance(listed, list)
    return [name for name in names if name not in {world["world_id"] for world in listed}]


def leftovers(workspace: Path) -> list[str]:
    """Temporary files in the store or the tree: names made for a moment that outlived it."""
    store = workspace / ".substrate-git"
    out = [f"journal/{path.name}" for path in (store / "journal").iterdir()]
    for path in store.rglob("*"):
        name = path.name
        if path.relative_to(store).parts[0] == "worlds":
            continue  # what a command left in a world that waits is its own business
        if name.startswith(("tmp", ".tmp", ".substrate-")) or name.endswith((".tmp", ".lock")):
            out.append(str(path.relative_to(store)))
    ours = (".substrate-git", ".substrateignore")
    found = [path for path in workspace.rglob(".substrate*") if path.name not in ours]
    return out + [str(path.relative_to(workspace)) for path in found]


def trace_lines(cli: Cli) -> list[dict[str, object]]:
    text = (cli.home / ".substrate" / "trace.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
