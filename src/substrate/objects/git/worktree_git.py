"""Git on the user's own working copy, with their settings and none of their programs.

The user's configuration applies where it determines what a file is: excludes, line endings, file
modes. Every setting that would start a program (hooks, filters, drivers, a monitor, a pager) is
disabled, because a command that ran in the workspace may have planted it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError, SubstrateError, UsageError
from substrate.objects.git.git_command import CONFIG_TIMEOUT_S, REPOSITORY_VARIABLES
from substrate.system import environment
from substrate.system.process import Completed, run

_PINS = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "gpg.program=false",
    "protocol.allow=never",  # a partial clone would fetch what is missing
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "diff.orderFile=",
    "core.quotePath=false",
    "core.safecrlf=false",  # only warns
    "advice.addEmbeddedRepo=false",
    "core.fsync=committed,loose-object,reference",  # recovery refs must survive a crash
)
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # reading must not rewrite the user's index
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",  # stronger than any setting: nothing is fetched
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",  # messages are parsed
}
#: The format that `git apply` can read, whatever the user's diff settings are.
PATCH = (
    *("-p", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--no-renames", "--src-prefix=a/", "--dst-prefix=b/", "--diff-algorithm=histogram"),
    *("--ignore-submodules=none", "--submodule=short", "--no-relative", "-U3"),
)


class RawChange(NamedTuple):
    """One record of git's raw diff. Modes are git's (0: absent); a null id is unknown."""

    path: bytes
    status: str
    old_mode: int
    old_oid: bytes
    new_mode: int
    new_oid: bytes


class WorktreeGit:
    """Runs git for one working copy. `run` raises on failure; `ask` returns None."""

    def __init__(self, git_dir: Path, root: Path) -> None:
        self.git_dir = git_dir
        self.root = root
        kept = environment.current().variables
        self._env = {k: v for k, v in kept.items() if k not in REPOSITORY_VARIABLES}
        self._env |= _ENVIRONMENT
        self._filters: tuple[str, ...] | None = None
        self._config: dict[str, str] | None = None

    # -- running ------------------------------------------------------------------------------

    def run(
        self,
        *args: str | bytes,
        input: bytes | None = None,  # noqa: A002 (the name subprocess gave it)
        index: Path | None = None,
        work_tree: Path | None = None,
    ) -> bytes:
        done = self._run(args, input, index, work_tree, self._pins())
        if done.returncode != 0:
            raise _failed(args, done)
        return done.stdout

    def ask(self, *args: str | bytes, input: bytes | None = None) -> bytes | None:  # noqa: A002
        done = self._run(args, input, None, None, self._pins())
        return done.stdout if done.returncode == 0 else None

    def try_run(
        self,
        *args: str | bytes,
        index: Path | None = None,
        input: bytes | None = None,  # noqa: A002
    ) -> Completed:
        """For calls that may fail: the caller checks the result, or ignores it."""
        return self._run(args, input, index, None, self._pins())

    def _run(
        self,
        args: tuple[str | bytes, ...],
        stdin: bytes | None,
        index: Path | None,
        work_tree: Path | None,
        pins: tuple[str, ...],
        timeout_s: float | None = None,
    ) -> Completed:
        tree = work_tree or self.root
        words = [word for pin in pins for word in ("-c", pin)]
        # check-ignore takes its paths literally anyway, and rejects this option.
        literal = ["--literal-pathspecs"] if args[0] != "check-ignore" else []
        argv = ["git", "--no-pager", *literal, f"--git-dir={self.git_dir}"]
        env = self._env | ({"GIT_INDEX_FILE": str(index)} if index else {})
        command = [*argv, f"--work-tree={tree}", *words, *args]
        return run(command, cwd=tree, env=env, input=stdin, timeout_s=timeout_s)

    def _pins(self) -> tuple[str, ...]:
        """The pins, plus an empty command for every configured filter and driver."""
        if self._filters is None:
            self._filters = tuple(_disarmed(self.config()))
        return _PINS + self._filters

    # -- questions ----------------------------------------------------------------------------

    def config(self) -> Mapping[str, str]:
        """All effective settings, the last of each name."""
        if self._config is None:
            args = ("config", "-z", "--list")
            # An include of a FIFO would block forever, in every other git call as well.
            done = self._run(args, None, None, None, _PINS, CONFIG_TIMEOUT_S)
            if done.returncode != 0:
                raise RefusedError(
                    f"git does not accept this repository: {_said(done)}",
                    hint="see `git status` there",
                )
            pairs = (record.partition(b"\n") for record in done.stdout.split(b"\0") if record)
            self._config = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}
        return self._config

    def setting(self, name: str, default: str = "") -> str:
        return self.config().get(name, default).lower()

    def is_set(self, name: str, *, default: bool = False) -> bool:
        value = self.config().get(name)
        if value is None:
            return default
        return value.lower() in ("", "true", "yes", "on", "1")

    def commits(self, revisions: Iterable[str]) -> list[bytes]:
        """The commits of these revisions. Git reads them from stdin: none can be an option."""
        asked = list(revisions)
        for text in asked:
            if not text or any(c in text for c in "\n\r\0"):
                raise UsageError(f"not a revision: {text!r}", hint="give a branch, tag or commit")
        stdin = b"".join(os.fsencode(text) + b"^{commit}\n" for text in asked)
        out = self.run("cat-file", "--batch-check=%(objectname)", input=stdin)
        found = out.split(b"\n")[:-1]
        oids = []
        for text, line in zip(asked, found, strict=True):
            if len(line) != 40:
                what = "is ambiguous" if line.endswith(b" ambiguous") else "names no commit here"
                raise NotFoundError(f"{text!r} {what}", hint="`git log --all` shows what there is")
            oids.append(bytes.fromhex(line.decode("ascii")))
        return oids

    def attributes(
        self, paths: Iterable[bytes], names: tuple[str, ...], *, work_tree: Path, index: Path
    ) -> dict[bytes, dict[str, str]]:
        """The attributes of `paths` from the attribute files in `work_tree`, else in `index`."""
        stdin = b"".join(path + b"\0" for path in paths)
        if not stdin:
            return {}
        args = ("check-attr", "--stdin", "-z", *names)
        fields = self.run(*args, input=stdin, index=index, work_tree=work_tree).split(b"\0")
        out: dict[bytes, dict[str, str]] = {}
        for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
            out.setdefault(path, {})[name.decode("ascii")] = os.fsdecode(value)
        return out

    def as_checked_out(
        self, wanted: Iterable[tuple[bytes, bytes]], *, work_tree: Path
    ) -> list[bytes | None]:
        """The bytes that git would write for each ``(oid, path)``; None where it cannot tell.

        Git itself converts line endings, ``$Id$`` and encodings; external filters are off. The
        attributes come from the files in `work_tree`: this command does not read an index.
        """
        asked = list(wanted)
        out: list[bytes | None] = [None] * len(asked)
        # A batch cannot contain a name with a newline.
        batch = [n for n, (_, path) in enumerate(asked) if b"\n" not in path]
        if not batch:
            return out
        # Git prints the size of the blob, not of the converted content. So a request for a missing
        # object with a random name follows each request, and marks the end of its answer.
        mark = b"end-" + os.urandom(16).hex().encode()
        lines = (b"%s %s\n%s -\n" % (asked[n][0].hex().encode(), asked[n][1], mark) for n in batch)
        args = ("cat-file", "--filters", "--batch=%(objectname)")
        data = self.run(*args, input=b"".join(lines), work_tree=work_tree)
        for n, answer in zip(batch, data.split(mark + b" missing\n"), strict=False):
            name, _, content = answer.partition(b"\n")
            if name == asked[n][0].hex().encode():
                out[n] = content[:-1]
        return out

    def raw_diff(self, *args: str | bytes) -> list[RawChange]:
        """`args` is one of git's diff commands; this adds ``--raw -z`` and the like."""
        fixed = ("--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=dirty")
        return parse_raw(self.run(args[0], *fixed, *args[1:]))


def parse_raw(data: bytes) -> list[RawChange]:
    """``:100644 100755 <oid> <oid> M NUL path NUL …``"""
    fields = data.split(b"\0")
    out = []
    for meta, path in zip(fields[0::2], fields[1::2], strict=False):
        old_mode, new_mode, old_oid, new_oid, status = meta[1:].split(b" ")
        out.append(
            RawChange(
                path, status[:1].decode("ascii"), int(old_mode, 8), _oid(old_oid),
                int(new_mode, 8), _oid(new_oid),
            )
        )  # fmt: skip
    return out


def _oid(text: bytes) -> bytes:
    oid = bytes.fromhex(text.decode("ascii"))
    return oid if any(oid) else b""


def _disarmed(config: Mapping[str, str]) -> list[str]:
    pins = []
    for key in config:
        section, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        if section == "filter" and name and "\n" not in name:
            pins.append(f"filter.{name}.{last}=" + ("false" if last == "required" else ""))
        elif section == "diff" and name and last in ("command", "textconv"):
            pins.append(f"diff.{name}.{last}=")
    return pins


def _said(done: Completed) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"exit status {done.returncode}"


def _failed(args: tuple[str | bytes, ...], done: Completed) -> SubstrateError:
    return RefusedError(
        f"git {os.fsdecode(args[0])} failed: {_said(done)}", hint="see `git status` there"
    )
