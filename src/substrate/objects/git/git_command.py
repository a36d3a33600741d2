"""The only builder of git command lines. Every option that others could change is pinned here.

A command that ran in the workspace may have planted configuration, attributes, hooks or
environment variables: none of them may run anything, or change what our own git calls mean.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from substrate.errors import DamagedStoreError, DiskFullError, SubstrateError
from substrate.model import RelPath
from substrate.objects.snapshots import EMPTY_TREE
from substrate.system import environment
from substrate.system.files import make_directory
from substrate.system.process import Completed, run

_PINNED_CONFIG = (
    # Programs that git would start.
    f"core.hooksPath={os.devnull}",  # hooks
    "core.fsmonitor=false",  # a file-system monitor, run by anything that reads the index
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "diff.external=",
    "gpg.program=false",
    "protocol.allow=never",  # a partial clone would fetch what is missing
    # Files outside the repository that change what is read or shown.
    f"core.attributesFile={os.devnull}",  # filters and diff drivers
    f"core.excludesFile={os.devnull}",
    "blame.ignoreRevsFile=",
    "diff.orderFile=",
    # Work that git would begin on its own.
    "gc.auto=0",  # we decide when to pack; a killed gc leaves temporaries
    "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
    # The shape of output that we read or show.
    "color.ui=false",
    "core.quotePath=false",
    "core.abbrev=auto",
    "diff.noprefix=false",  # `git apply` cannot read a patch without prefixes
    "diff.mnemonicPrefix=false",
    "diff.renames=false",
    "diff.algorithm=histogram",
    "diff.submodule=short",
    "diff.statGraphWidth=40",
    "log.showSignature=false",
    "merge.conflictStyle=merge",
    # Packs: only .pack and .idx; big binaries without deltas, because trying deltas on them takes
    # minutes; cheap compression, because most of the saving is in the deltas.
    "pack.writeReverseIndex=false",
    "pack.writeBitmaps=false",
    "pack.compression=1",
    "pack.packSizeLimit=0",
    "core.bigFileThreshold=4m",
)

_PINNED_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # refs/replace would show contents that were not recorded
    "GIT_NO_LAZY_FETCH": "1",
    # Not every git knows GIT_NO_LAZY_FETCH, and `protocol.ext.allow` in a planted config overrides
    # `protocol.allow`: a promisor remote at ext::COMMAND would run COMMAND. This overrides both.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_FLUSH": "0",
    "LC_ALL": "C",  # messages are parsed
    # For versions of git that do not know GIT_CONFIG_GLOBAL yet.
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
}
#: The only variables kept from the user's environment: what a program needs to start.
_KEPT_VARIABLES = ("PATH", "SYSTEMROOT", "PATHEXT", "COMSPEC", "TMPDIR", "TEMP", "TMP")

#: The number of conflicts `merge_file` reports for contents that are not text.
BINARY = -1
#: How much of a content git reads to tell text from binary.
_TEXT_PROBE_BYTES = 8000
_MERGE_FAILED = 128
#: Git's messages for a full disk or quota.
_NO_SPACE = ("No space left on device", "Out of diskspace", "Disk quota exceeded")


def pinned_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment for our own git calls, made from the user's."""
    kept = {name: value for name, value in variables.items() if name.upper() in _KEPT_VARIABLES}
    return kept | _PINNED_ENVIRONMENT


def git_version() -> str:
    """Git's version, such as ``2.39.5``; raises like `process.run`."""
    said = run(["git", "--no-pager", "version"], timeout_s=10).stdout.decode("utf-8", "replace")
    return said.strip().removeprefix("git version ")


class Git:
    """Git on one of our own repositories, independent of any configuration by others."""

    def __init__(
        self, git_dir: Path, work_tree: Path | None = None, objects_dir: str | None = None
    ) -> None:
        """`objects_dir`: use the objects there and in its alternates."""
        self.git_dir = git_dir
        self.work_tree = work_tree
        self._env = pinned_environment(environment.current().variables)
        if objects_dir is not None:
            self._env["GIT_OBJECT_DIRECTORY"] = objects_dir

    def argv(self, *args: str | bytes) -> list[str | bytes]:
        # Without an explicit work tree git would use the current directory as one, and read the
        # attribute files there.
        options = [f"--git-dir={self.git_dir}", f"--work-tree={self.work_tree or self.git_dir}"]
        pins = [word for pin in _PINNED_CONFIG for word in ("-c", pin)]
        return ["git", "--no-pager", "--literal-pathspecs", *options, *pins, *args]

    def run(
        self,
        *args: str | bytes,
        input: bytes | None = None,  # noqa: A002 (the name subprocess gave it)
        check: bool = True,
        extra_env: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a git subcommand and capture its output; with `check`, failure is an error."""
        env = self._env | dict(extra_env or {})
        cwd = self.work_tree or self.git_dir
        done = run(self.argv(*args), cwd=cwd, env=env, input=input)
        if check and done.returncode != 0:
            raise _failed(args, done)
        return done

    def fsck_strict(self) -> list[str]:
        """The problems that plain ``git fsck --strict`` finds, one line each; empty if none."""
        done = self.run("fsck", "--strict", "--full", "--no-dangling", "--no-progress", check=False)
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
        found = [line for line in lines if line and not line.startswith(("notice:", "dangling "))]
        if done.returncode != 0 and not found:
            found = [f"git fsck exited with status {done.returncode}"]
        return found if done.returncode != 0 else []

    def pack_reachable(self, tips: Iterable[bytes], into: Path, *, threads: int = 0) -> Path | None:
        """Pack everything that `tips` (commits or trees) reach into a new pack below `into`.

        `into` is an empty directory of the caller, on the same filesystem; git's own temporaries
        go there too, so that removing it cleans up after any kill. Returns the ``.pack``, with its
        ``.idx`` beside it; None if the tips reach nothing.
        """
        wanted = b"".join(tip.hex().encode() + b"\n" for tip in tips)
        if not wanted:
            return None
        args = ["--revs", "--delta-base-offset", "--window=10", "--depth=50"]
        return self._pack_objects(args, wanted, into, threads)

    def pack_exactly(self, oids: Iterable[bytes], into: Path, *, threads: int = 0) -> Path | None:
        """Pack exactly these objects, reusing existing deltas where possible."""
        wanted = b"".join(oid.hex().encode() + b"\n" for oid in oids)
        if not wanted:
            return None
        return self._pack_objects(["--delta-base-offset", "--window=0"], wanted, into, threads)

    def _pack_objects(
        self, args: list[str], wanted: bytes, into: Path, threads: int
    ) -> Path | None:
        objects = into / "objects"
        for directory in (objects, objects / "pack", objects / "info"):
            make_directory(directory)
        (objects / "info/alternates").write_bytes(_alternate_line(self.git_dir / "objects"))
        # All paths are relative to `into`, where git starts: git creates missing directories, and
        # would recreate those of a project that was moved in between.
        done = Git(self.git_dir, into).run(
            "pack-objects",
            "-q",
            "--non-empty",
            f"--threads={threads}",
            *args,
            "objects/pack/pack",
            input=wanted,
            extra_env={"GIT_OBJECT_DIRECTORY": "objects"},
        )
        name = done.stdout.decode("ascii", "replace").strip()
        return objects / "pack" / f"pack-{name}.pack" if name else None

    def diff_text(
        self,
        old_commit: bytes | None,
        new_commit: bytes | None,
        paths: Iterable[RelPath] = (),
        *,
        color: bool = False,
        stat: bool = False,
        context: int = 3,
        words: bool = False,
        whole: bool = False,
    ) -> bytes:
        """The difference as text. None means the empty tree.

        `words`: marked word by word. `whole`: a patch for programs, binary files included.
        """
        shape = ["--stat=100"] if stat else ["-p", f"--unified={context}"]
        shape += ["--word-diff=plain"] if words else []
        shape += ["--binary", "--full-index"] if whole else []
        painted = ["--color=always"] if color else ["--no-color"]
        return self._diff_tree([*shape, *painted], old_commit, new_commit, paths)

    def numstat(
        self,
        old_commit: bytes | None,
        new_commit: bytes | None,
        paths: Iterable[RelPath] = (),
    ) -> dict[RelPath, tuple[int, int] | None]:
        """Lines added and removed by path; None for a binary file."""
        out = self._diff_tree(["--numstat", "-z"], old_commit, new_commit, paths)
        counts: dict[RelPath, tuple[int, int] | None] = {}
        for record in out.split(b"\0"):
            if record:
                added, removed, path = record.split(b"\t", 2)
                binary = added == b"-"
                counts[RelPath(path)] = None if binary else (int(added), int(removed))
        return counts

    def _diff_tree(
        self,
        shape: list[str],
        old_commit: bytes | None,
        new_commit: bytes | None,
        paths: Iterable[RelPath],
    ) -> bytes:
        fixed = ("-r", "--no-ext-diff", "--no-textconv", "--no-renames", "--root")
        ends = ((old_commit or EMPTY_TREE).hex(), (new_commit or EMPTY_TREE).hex())
        return self.run("diff-tree", *fixed, *shape, *ends, "--", *paths).stdout

    def blame_porcelain(
        self, commit: bytes, path: RelPath, lines: tuple[int, int] | None = None
    ) -> bytes:
        """``git blame --porcelain`` of a file as of `commit`, of a range of lines if given."""
        part = [f"-L{lines[0]},{lines[1]}"] if lines else []
        fixed = ("--porcelain", "--no-textconv")
        return self.run("blame", *fixed, *part, commit.hex(), "--", path).stdout

    def merge_file(
        self,
        base: bytes,
        ours: bytes,
        theirs: bytes,
        *,
        scratch: Path,
        favor: str | None = None,
        labels: tuple[str, str, str] = ("ours", "base", "theirs"),
    ) -> tuple[bytes, int]:
        """A three-way merge of contents: the result and its number of conflicts.

        `favor` (``ours``, ``theirs``, ``union``) decides conflicts. `BINARY` conflicts mean that
        the contents are not text and nothing was merged. `scratch` is a directory for temporaries.
        """
        if theirs in (ours, base):
            return ours, 0
        if base == ours:
            return theirs, 0
        if any(b"\0" in content[:_TEXT_PROBE_BYTES] for content in (base, ours, theirs)):
            return ours, BINARY
        # Imported here: most commands never merge.
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(dir=scratch, prefix="merge-") as directory:
            files = [Path(directory, name) for name in ("ours", "base", "theirs")]
            for file, content in zip(files, (ours, base, theirs), strict=True):
                file.write_bytes(content)
            named = [word for label in labels for word in ("-L", label)]
            decided = [f"--{favor}"] if favor else []
            names = [str(file) for file in files]
            args = ("merge-file", "-p", "-q", *decided, *named, *names)
            done = self.run(*args, check=False)
        if not 0 <= done.returncode < _MERGE_FAILED:
            raise _failed(("merge-file",), done)
        return done.stdout, done.returncode


#: Variables that would make git use another repository than the named one.
REPOSITORY_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
)


#: Reading settings takes milliseconds; if it takes this long, it never ends.
CONFIG_TIMEOUT_S = 20.0


class UserGit:
    """Queries to the user's own repository, with their configuration. Runs and writes nothing.

    Uses only subcommands that read: configuration, attributes, object headers.
    """

    def __init__(self, git_dir: Path, work_tree: Path) -> None:
        self._options = [f"--git-dir={git_dir}", f"--work-tree={work_tree}"]
        self._work_tree = work_tree
        kept = environment.current().variables
        self._env = {k: v for k, v in kept.items() if k not in REPOSITORY_VARIABLES}
        self._env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
        self._env["GIT_ALLOW_PROTOCOL"] = ""

    def _run(self, *args: str, input: bytes = b"") -> bytes | None:  # noqa: A002
        pins = ("-c", "core.fsmonitor=false", "-c", "protocol.allow=never")
        argv = ["git", "--no-pager", *self._options, *pins, *args]
        # Git would wait forever for settings that include a FIFO.
        timeout_s = CONFIG_TIMEOUT_S if args[0] == "config" else None
        done = run(argv, cwd=self._work_tree, env=self._env, input=input, timeout_s=timeout_s)
        return done.stdout if done.returncode == 0 else None

    def config(self) -> dict[str, str] | None:
        """All effective settings, the last of each name; None if git rejects the repository."""
        out = self._run("config", "-z", "--list")
        if out is None:
            return None
        pairs = (record.partition(b"\n") for record in out.split(b"\0") if record)
        return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}

    def paths_with_attributes(self, paths: Iterable[bytes], names: tuple[str, ...]) -> set[bytes]:
        """The paths that have one of these attributes; all of them if git fails."""
        asked = list(paths)
        stdin = b"".join(path + b"\0" for path in asked)
        out = self._run("check-attr", "--stdin", "-z", *names, input=stdin)
        if out is None:
            return set(asked)
        fields = out.split(b"\0")
        rows = zip(fields[0::3], fields[2::3], strict=False)
        return {path for path, value in rows if value not in (b"unspecified", b"unset")}

    def sizes(self, oids: Iterable[bytes]) -> dict[bytes, int]:
        """The sizes of those objects that exist."""
        asked = list(oids)
        lines = self._size_lines(asked).split(b"\n")[:-1]
        if len(lines) != len(asked):
            return {}
        rows = zip(asked, lines, strict=True)
        return {oid: int(line) for oid, line in rows if line.isdigit()}  # else: "... missing"

    def other_sizes(self, oids: Sequence[bytes], expected: Sequence[int]) -> list[int]:
        """The indexes of objects that are missing or have another size than expected."""
        wanted = b"%d\n" * len(expected) % tuple(expected)
        found = self._size_lines(oids)
        if found == wanted:  # nearly always, and one comparison for all
            return []
        pairs = zip(found.split(b"\n"), wanted.split(b"\n")[:-1], strict=False)
        same = {number for number, (one, other) in enumerate(pairs) if one == other}
        return [number for number in range(len(oids)) if number not in same]

    def _size_lines(self, oids: Sequence[bytes]) -> bytes:
        stdin = b"".join(oids).hex("\n", 20).encode() + b"\n"
        command = ("cat-file", "--buffer", "--batch-check=%(objectsize)")
        return self._run(*command, input=stdin) or b""


def _alternate_line(objects: Path) -> bytes:
    """A line of ``info/alternates``, quoted for git if the path is unusual."""
    path = os.fsencode(os.path.abspath(objects))
    if path[:1] in (b'"', b"#") or b"\n" in path:
        path = b'"%s"' % path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return path + b"\n"


def _failed(args: tuple[str | bytes, ...], done: Completed) -> SubstrateError:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = lines[-1] if lines else f"exit status {done.returncode}"
    message = f"git {os.fsdecode(args[0])} failed: {said}"
    if any(words in line for line in lines for words in _NO_SPACE):
        return DiskFullError(message, hint="free some disk space and try again")
    from substrate.objects.store import HINT  # imports hashlib and OpenSSL: 3 ms

    return DamagedStoreError(message, hint=HINT)
