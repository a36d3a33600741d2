"""Read any git repository, including the user's own, without letting it run or change anything.

A revision is text that the user typed. It never becomes an argument of git: it is written to the
stdin of ``git cat-file --batch``, where git cannot read it as an option. Where git has no such
input (`rev_list`), it follows ``--end-of-options``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple

from substrate.errors import AmbiguousError, DamagedStoreError, NotFoundError, UsageError
from substrate.system import environment
from substrate.system.files import read_bytes_or_none

if TYPE_CHECKING:
    from substrate.objects.git.git_command import Git
    from substrate.system.process import Conversation

# Modules that start git are imported on use: often only `plain_head` is needed.

#: Requests per window. Two windows are written before answers are read: together they fit into the
#: pipe, so that neither side can block the other.
_WINDOW = 256
#: The longest request, with its line feed.
_REQUEST_BYTES = 65
_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\s*")
_EVERYONES = ("--exclude=refs/manifold/*", "--exclude=refs/stash", "--all")
_HINT_REVISION = "give a branch, a tag, HEAD or a commit id"


class TreeEntry(NamedTuple):
    path: bytes
    #: Octal, as git writes it: 100644, 100755, 120000 (a link).
    mode: bytes
    oid: bytes


class TreeChange(NamedTuple):
    """One path that differs between two commits; an empty `oid` means that it was removed."""

    path: bytes
    mode: bytes
    oid: bytes


def plain_head(git_dir: Path) -> bytes | None:
    """The commit of HEAD, if one or two small files are enough to tell; None means: ask git."""
    try:
        text = read_bytes_or_none(git_dir / "HEAD") or b""
        if text.startswith(b"ref: refs/"):
            linked = _is_linked(git_dir)
            shared = (read_bytes_or_none(git_dir / "commondir") or b"") if linked else b"."
            name = os.fsdecode(text[5:].strip())
            text = read_bytes_or_none(git_dir / os.fsdecode(shared.strip()) / name) or b""
    except OSError:
        return None
    return bytes.fromhex(text.decode()) if _OID.fullmatch(text) else None


def _window_of(stdin: IO[bytes]) -> int:
    """The window for this pipe: the kernel gives small pipes to a user with very many of them."""
    try:
        import fcntl

        holds = fcntl.fcntl(stdin.fileno(), fcntl.F_GETPIPE_SZ)
    except (ImportError, AttributeError, OSError):  # only Linux can tell
        return _WINDOW
    return max(1, min(_WINDOW, holds // 2 // _REQUEST_BYTES))


def _is_linked(git_dir: Path) -> bool:
    return os.path.lexists(git_dir / "commondir")


class Repository:
    """One repository, read through one long-lived ``git cat-file``; use it in a ``with``."""

    def __init__(self, git_dir: Path, root: Path) -> None:
        self.git_dir = git_dir
        self._root = root
        self._reader: Conversation | None = None
        #: Requested blobs whose answers are not read yet.
        self._unread = 0

    @cached_property
    def _git(self) -> Git:
        from substrate.objects.git.git_command import Git

        return Git(self.git_dir, self._root)

    def __enter__(self) -> Repository:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._reader is None:
            return
        reader = self._reader
        stdin, stdout = self._streams()
        self._reader, self._unread = None, 0
        try:
            stdin.close()
        except BrokenPipeError:
            pass
        stdout.close()
        reader.wait()

    def resolve_commit(self, revision: str) -> bytes:
        """The id of the commit that `revision` names; tags are followed."""
        oid, _ = self._commit(revision)
        return oid

    def read_commit(self, revision: str) -> tuple[bytes, bytes]:
        """The commit's id and its raw object."""
        return self._commit(revision)

    def _commit(self, revision: str) -> tuple[bytes, bytes]:
        if not revision or "\n" in revision or "\0" in revision:
            raise UsageError(f"not a revision: {revision!r}", hint=_HINT_REVISION)
        kind, oid, data = self._ask(f"{revision}^{{commit}}".encode("utf-8", "surrogateescape"))
        if kind == b"ambiguous":
            raise AmbiguousError(
                f"{revision!r} is ambiguous", hint="give a few more characters of the commit id"
            )
        if kind != b"commit":
            if revision == "HEAD":
                raise NotFoundError(
                    "this repository has no commit yet", hint="commit something first"
                )
            raise NotFoundError(f"no commit is called {revision!r}", hint=_HINT_REVISION)
        return oid, data

    def read_blobs(self, oids: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The blobs in the requested order; a missing blob means a damaged repository."""
        stdin, _ = self._streams()
        wanted = iter(oids)
        size = _window_of(stdin)
        try:
            window = self._ask_for(stdin, islice(wanted, size))
            while window:
                # Request the next window first: git unpacks it while we use this one.
                following = self._ask_for(stdin, islice(wanted, size))
                yield from self._read_window(window)
                window = following
        finally:
            if self._unread:
                self.close()  # unread answers would be mistaken for those to later requests

    def _ask_for(self, stdin: IO[bytes], oids: Iterable[bytes]) -> list[bytes]:
        asked = list(oids)
        self._unread += len(asked)
        with suppress(BrokenPipeError):  # git is gone: the missing answer reports it
            stdin.write(b"".join([oid.hex().encode() + b"\n" for oid in asked]))
            stdin.flush()
        return asked

    def _read_window(self, window: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        _, stdout = self._streams()
        readline, read = stdout.readline, stdout.read
        for oid in window:
            head = readline()
            name, is_blob, size = head.partition(b" blob ")
            if is_blob and name != oid.hex().encode():
                raise self._unreadable()
            if head and not is_blob:
                raise DamagedStoreError(
                    f"the repository lacks the content {oid.hex()}",
                    hint="`git fsck` says what is wrong with it; a partial clone must be completed",
                )
            data = read(int(size) + 1) if head else b""  # with the line feed after it
            if not head or len(data) <= int(size):
                raise self._unreadable()
            self._unread -= 1
            yield oid, data[:-1]

    def list_tree(self, commit: bytes) -> list[TreeEntry]:
        """Every file and link of a commit, sorted by path. Submodules have no content here."""
        out = self._git.run("ls-tree", "-r", "-z", "--full-tree", commit.hex()).stdout
        entries = []
        for record in out.split(b"\0"):
            if record:
                head, _, path = record.partition(b"\t")
                mode, kind, oid = head.split(b" ")
                if kind == b"blob":
                    entries.append(TreeEntry(path, mode, bytes.fromhex(oid.decode())))
        entries.sort()
        return entries

    def tree_changes(self, old: bytes, new: bytes) -> list[TreeChange]:
        """The files that differ between two commits; a rename is a removal and an addition."""
        fixed = ("-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--no-ext-diff")
        out = self._git.run("diff-tree", *fixed, old.hex(), new.hex(), "--").stdout
        fields = out.split(b"\0")
        changes = []
        for head, path in zip(fields[0::2], fields[1::2], strict=False):
            _, mode, _, oid, _ = head.split(b" ")
            gone = mode in (b"000000", b"160000")
            changes.append(TreeChange(path, mode, b"" if gone else bytes.fromhex(oid.decode())))
        return changes

    def rev_list(self, revision: str | None) -> list[bytes]:
        """The commits of a range (``A..B``) or, for None, of every ref; parents come first.

        Snapshots by `substrate rewrite` and `git stash` do not count as commits.
        """
        what = ["--end-of-options", revision] if revision is not None else [*_EVERYONES, "HEAD"]
        if revision is not None and ("\n" in revision or "\0" in revision):
            raise UsageError(f"not a range: {revision!r}", hint=_HINT_REVISION)
        fixed = ("rev-list", "--topo-order", "--reverse")
        done = self._git.run(*fixed, *what, "--", check=False)
        if done.returncode != 0:
            if revision is None:
                raise NotFoundError("this repository has no commit yet", hint="commit something")
            raise NotFoundError(f"no commits are called {revision!r}", hint=_HINT_REVISION)
        return [bytes.fromhex(line.decode()) for line in done.stdout.split()]

    # -- the conversation ---------------------------------------------------------------------

    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._reader is None:
            from substrate.objects.git.git_command import pinned_environment
            from substrate.system.process import converse

            self._reader = converse(
                self._git.argv("cat-file", "--batch"),
                cwd=self._git.work_tree or self.git_dir,
                env=pinned_environment(environment.current().variables),
            )
        return self._reader.stdin, self._reader.stdout

    def _ask(self, name: bytes) -> tuple[bytes, bytes, bytes]:
        stdin, _ = self._streams()
        stdin.write(name + b"\n")
        stdin.flush()
        return self._answer()

    def _unreadable(self) -> DamagedStoreError:
        return DamagedStoreError(
            f"git cannot read the repository {self.git_dir}", hint="`git fsck` says why"
        )

    def _answer(self) -> tuple[bytes, bytes, bytes]:
        """``(kind, id, content)``; the kind is ``missing`` or ``ambiguous`` if there is none."""
        _, stdout = self._streams()
        head = stdout.readline()
        if not head:
            raise self._unreadable()
        # The name that git repeats before "missing" may itself contain blanks.
        fields = head.rstrip(b"\n").rsplit(b" ", 2)
        if fields[-1] in (b"missing", b"ambiguous"):
            return fields[-1], b"", b""
        oid, kind, size = fields
        data = stdout.read(int(size))
        stdout.read(1)
        return kind, bytes.fromhex(oid.decode()), data
