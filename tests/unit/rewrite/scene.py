"""A real repository with a base, a target and user work in it; checked without our own code."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

from substrate.rewrite.execute.run_rewrite import Request, RewriteOutcome, rewrite
from substrate.rewrite.execute.working_copy import open_working_copy

OURS = (b".git", b".manifold", b".substrate-git")
Shown = dict[bytes, tuple[str, int, bytes]]


class Scene:
    """`base` is a tag, `target` a branch; the working copy is on main, at the base."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")

    # -- making ---------------------------------------------------------------------------------

    def git(self, *words: str | bytes, stdin: bytes = b"", check: bool = True) -> bytes:
        done = subprocess.run(
            ["git", *words], cwd=self.root, input=stdin, capture_output=True, check=False
        )
        assert not check or done.returncode == 0, (words, done.stderr.decode())
        return done.stdout

    def path(self, name: str | bytes) -> bytes:
        return os.path.join(os.fsencode(self.root), os.fsencode(name))

    def write(self, name: str | bytes, content: str | bytes, mode: int | None = None) -> None:
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.islink(path):
            os.unlink(path)
        with open(path, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            os.chmod(path, mode)

    def link(self, name: str | bytes, to: str | bytes) -> None:
        path = self.path(name)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(os.fsencode(to), path)

    def remove(self, name: str | bytes) -> None:
        os.unlink(self.path(name))

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").decode().strip()

    def base(self) -> None:
        self.commit("base")
        self.git("tag", "base")

    def target(self) -> None:
        """What was changed since `base` becomes the target; the files go back to the base."""
        self.commit("target")
        self.git("branch", "target")
        self.git("checkout", "-q", "-B", "main", "base")

    # -- doing ----------------------------------------------------------------------------------

    def rewrite(
        self, base: str = "base", target: str = "target", policy: str = "warn", **more: bool
    ) -> RewriteOutcome:
        return rewrite(open_working_copy(self.root), Request(base, target, policy, **more))

    # -- looking --------------------------------------------------------------------------------

    def read(self, name: str | bytes) -> bytes:
        with open(self.path(name), "rb") as file:
            return file.read()

    def exists(self, name: str | bytes) -> bool:
        return os.path.lexists(self.path(name))

    def status(self) -> bytes:
        return self.git("status", "--porcelain=v2", "-z", "--untracked-files=all")

    def short(self) -> dict[str, str]:
        out = self.git("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
        return {os.fsdecode(r[3:]): r[:2].decode() for r in out.split(b"\0") if r}

    def index(self) -> bytes:
        return (self.root / ".git" / "index").read_bytes()

    def entries(self) -> bytes:
        return self.git("ls-files", "--stage", "-z")

    def stages(self, name: str) -> dict[int, bytes]:
        """Contents of an unmerged path by stage."""
        out = {}
        for line in self.git("ls-files", "--unmerged", "-z", "--", name).split(b"\0"):
            if line:
                meta = line.partition(b"\t")[0].split(b" ")
                out[int(meta[2])] = self.git("cat-file", "blob", meta[1].decode())
        return out

    def staged(self, name: str) -> bytes:
        return self.git("show", f":{name}")

    def tree(self) -> Shown:
        """Every path but ours: kind, mode, bytes."""
        out: Shown = {}
        stack = [b""]
        while stack:
            here = stack.pop()
            with os.scandir(os.path.join(os.fsencode(self.root), here)) as found:
                for entry in found:
                    if not here and entry.name in OURS:
                        continue
                    name = here + b"/" + entry.name if here else entry.name
                    at = entry.stat(follow_symlinks=False)
                    mode = stat.S_IMODE(at.st_mode)
                    if entry.is_dir(follow_symlinks=False):
                        out[name] = ("directory", mode, b"")
                        stack.append(name)
                    elif entry.is_symlink():
                        out[name] = ("link", 0, os.readlink(entry.path))
                    else:
                        with open(entry.path, "rb") as file:
                            out[name] = ("file", mode, file.read())
        return out

    def refs(self) -> dict[str, str]:
        out = self.git("for-each-ref", "--format=%(refname) %(objectname)").decode()
        pairs = (line.split(" ") for line in out.splitlines())
        return {name: oid for name, oid in pairs if not name.startswith("refs/manifold/")}

    def snapshots(self) -> list[str]:
        out = self.git("for-each-ref", "--format=%(refname)", "refs/manifold/recovery")
        return out.decode().splitlines()

    def in_snapshot(self, ref: str, name: str | bytes) -> bytes:
        return self.git("cat-file", "blob", os.fsencode(ref) + b":" + os.fsencode(name))

    def head(self) -> str:
        return (self.root / ".git" / "HEAD").read_text().strip()


def lines(*changed: str, of: int = 20) -> str:
    """Numbered lines; ``"3=three"`` says that line 3 reads otherwise."""
    said = dict(item.split("=", 1) for item in changed)
    return "".join(said.get(str(n), str(n)) + "\n" for n in range(1, of + 1))
