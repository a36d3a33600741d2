"""What every world promises: run one command, say how it ended and how it was isolated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from substrate.model import Change

#: Weakest first: docs/security.md says what each of them enforces.
TIERS = ("none", "workspace", "guarded", "full")
#: Best first.
STRATEGIES = ("overlay", "fuse-overlayfs", "copy-diff", "direct")

#: How much of each stream is kept; its hash and its size are always those of the whole.
CAPTURE_CAP_BYTES = 16 * 1024 * 1024


class Isolation(NamedTuple):
    """What really applied to a command, for its span, not what was requested."""

    #: One of `STRATEGIES`.
    strategy: str
    #: One of `TIERS`.
    tier: str
    #: ``open``, ``off`` or ``allow:…``.
    network: str
    #: Why this and not more, and what it therefore cannot promise.
    reason: str


class Layer(NamedTuple):
    """Where a world's changes are after the command, until they are applied or discarded."""

    #: ``wld_…``
    world_id: str
    #: ``<store>/worlds/<id>``, mode 0700; below ``$SUBSTRATE_HOME`` where the workspace's file
    #: system cannot hold an upper. Contains ``upper``, ``work`` and ``meta.json``.
    directory: Path
    upper: Path
    #: The workspace's root.
    lower: Path
    #: ``overlay``: whiteouts and opaque directories; ``copy``: a whole copy of the tree, to be
    #: compared with what `lower` held when the command started.
    kind: str
    #: ``trusted.overlay.`` or ``user.overlay.``. Read no other: a command can set the other one.
    xattr_prefix: bytes


class Captured(NamedTuple):
    """One stream of a command: the hash of all of it, and the beginning of it on disk."""

    sha256: str
    size_bytes: int
    #: Where it is kept, up to the cap; `None` if nothing is kept.
    path: Path | None
    #: Whether `path` holds less than all of it.
    truncated: bool


class Capture(NamedTuple):
    """Where the streams of a command are kept."""

    directory: Path
    cap_bytes: int = CAPTURE_CAP_BYTES


class ResourceLimits(NamedTuple):
    """What a command and all it starts may use together; `None` means no limit of ours."""

    pids: int | None = None
    memory_bytes: int | None = None
    #: In processors: 0.5 is half of one.
    cpus: float | None = None


class Network(Protocol):
    """What happens to a command's network; the hooks are called in this order."""

    @property
    def mode(self) -> str:
        """``open``, ``off`` or ``allow:…``: what really applies, for `Isolation.network`."""
        ...

    def refuse_abstract(self, names: tuple[bytes, ...]) -> None:
        """Before everything else: abstract sockets that the command may not connect to."""
        ...

    def watch_writes(self) -> None:
        """Before everything else: record which file changes the tier refuses."""
        ...

    def before_fork(self) -> None:
        """In the process that waits for the command, before anything is forked."""
        ...

    def in_child(self) -> None:
        """In the command's process: namespaces made, capabilities not yet dropped, before exec.

        Descriptors made in `before_fork` are open (close-on-exec); send what the waiting side needs
        over them.
        """
        ...

    def parent(self, child_pid: int, fds: tuple[int, ...]) -> None:
        """In the waiting process, once the command's process exists (`child_pid` as seen here)."""
        ...

    def finish(self) -> tuple[str, ...]:
        """After the command: the scopes it used."""
        ...

    @property
    def denied(self) -> tuple[str, ...]:
        """After `finish`: what was refused, as scopes, or ``dns:name``."""
        ...

    @property
    def failed(self) -> tuple[str, ...]:
        """After `finish`: scopes that it was allowed to reach and that did not answer."""
        ...

    @property
    def refused_writes(self) -> tuple[tuple[bytes, str], ...]:
        """After `finish`: paths that the tier kept the command from changing, and the calls."""
        ...

    @property
    def writes_notice(self) -> str:
        """After `finish`: why the list may be incomplete; empty if complete, or not made."""
        ...

    @property
    def passed_nothing(self) -> bool:
        """After the command: it certainly passed no descriptor to a process outside."""
        ...

    @property
    def notice(self) -> str:
        """After `finish`: what its account cannot promise; usually empty."""
        ...


class RunRequest(NamedTuple):
    """One command: `argv`, or a line for the shell in `shell`; exactly one of them is given."""

    cwd: Path
    argv: tuple[str | bytes, ...] = ()
    shell: str | bytes = ""
    #: On top of our own environment; a value of `None` removes the variable.
    env: Mapping[str, str | None] = {}
    #: A descriptor to read from; `None` is our own stdin.
    stdin: int | None = None
    timeout_s: float | None = None
    #: End what the command left running when it has ended.
    kill_children: bool = False
    #: Descriptors to write to; `None` means our own.
    stdout: int | None = None
    stderr: int | None = None
    #: Give the command its own terminal, relayed to our stdin and stdout.
    pty: bool = False
    #: `None`: the streams are passed through and not kept.
    capture: Capture | None = None
    limits: ResourceLimits = ResourceLimits()
    network: Network | None = None
    #: The world's id; a new one if empty.
    world_id: str = ""
    #: The session it belongs to, and the worlds in which processes of earlier commands are still
    #: running. Worlds of the same session and of the same kind can see each other's processes.
    session_id: str = ""
    beside: tuple[Layer, ...] = ()
    #: Names below the root that do not exist there now: locks. If another process creates one
    #: later, the command must not see it, because the command works on its own copy.
    absent: tuple[bytes, ...] = ()
    #: Called once, when a process inside connects to the world's socket, with the listening
    #: socket (which is closed afterwards) and the pid of the world's init. The command finds the
    #: socket's path in ``SUBSTRATE_BROKER``.
    on_call: Callable[[int, int], None] | None = None
    #: Work to do while the command runs, if the strategy waits for the command in this process;
    #: its result is ignored, and it may not be called at all.
    meanwhile: Callable[[], object] | None = None
    #: Called before a command works on the real files, if it comes to that.
    before_real_files: Callable[[], object] | None = None


class RunOutcome(NamedTuple):
    """How it ended, in a shell's terms."""

    #: The command's own status, 128+n for a death by signal n, 124 after a timeout, 126 and 127
    #: if it could not be started.
    exit: int
    signal: int | None
    timed_out: bool
    duration_ms: int
    isolation: Isolation
    #: What it reached over the network: ``tcp:host:port``. Empty where it was not watched.
    scopes_used: tuple[str, ...] = ()
    #: What it tried to reach and was refused, as scopes, or ``dns:name``.
    net_denied: tuple[str, ...] = ()
    #: What it was allowed to reach, but did not: no process listened there, or none answered.
    net_failed: tuple[str, ...] = ()
    #: Paths that the tier kept it from changing, and the calls; None: not watched.
    fs_denied: tuple[tuple[bytes, str], ...] | None = None
    #: Why the list may be incomplete; empty if it is complete.
    fs_denied_notice: str = ""
    #: What it changed, from a world that knows; `None`: the caller must scan the workspace.
    changed: tuple[Change, ...] | None = None
    #: Why it could not be started, or another notice for the user. Usually empty.
    notice: str = ""
    #: Its changes are in this layer and have not reached the workspace. `None`: it worked on the
    #: real files, and the caller must scan.
    layer: Layer | None = None
    #: `None` where the stream was not captured: a terminal, or capturing was not requested.
    stdout: Captured | None = None
    stderr: Captured | None = None
    #: Processes that the command left running in its world. Its upper may still change, so files
    #: must be copied from it, not renamed out of it.
    left_running: int = 0
    #: If the world itself failed while the command ran: why the layer, which may hold less than
    #: the command wrote, must not be applied automatically. Usually empty.
    broken: str = ""


class Wanted(NamedTuple):
    """What a caller wants a command to run in; `select_strategy.choose_world` finds it."""

    #: The workspace's root and its store (which need not exist).
    root: Path
    store: Path
    #: One of `TIERS`.
    tier: str = "workspace"
    #: Less than `tier` is an error, not a fallback.
    required: bool = False
    #: ``open``, ``off`` or ``allow:…``.
    network: str = "open"
    #: One of `STRATEGIES`, or `None` for the best that works here.
    strategy: str | None = None
    #: Why a weaker one was asked for (``--no-world``), for `Isolation.reason`.
    why: str = ""
    #: Container and bus sockets stay reachable.
    allow_host_services: bool = False
    #: Directories that `guarded` and `full` let the command write to, besides the workspace.
    writable: tuple[Path, ...] = ()
    #: The same for directories that the user did not name: a symlink there is not followed.
    git_writable: tuple[Path, ...] = ()
    #: Paths in those that stay read-only, and what `full` shows besides the system.
    read_only: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()


class World(Protocol):
    """A strategy for running commands."""

    @property
    def isolation(self) -> Isolation:
        """What will apply to the next command, as far as it is known beforehand."""
        ...

    def run(self, request: RunRequest) -> RunOutcome:
        """Run it in the foreground: our descriptors and signals are its own."""
        ...

    def discard(self, layer: Layer) -> None:
        """Remove what a world left behind; no error if it is gone already."""
        ...
