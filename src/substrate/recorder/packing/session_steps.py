"""Recorded history as a pack's parts: the tree before a point, and each entry as a step."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.history.store import Entry, HistoryStore
from substrate.model import Change, Kind, Node, RelPath, display
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.packs.format import PREFIX, Input, Output, Step
from substrate.packs.replay import BASE_NAME, TreeEntry, base_record, to_name
from substrate.packs.store import Objects
from substrate.packs.tools import change_json, leaves
from substrate.system import clock
from substrate.trace.redact import redact, redact_argv

Json = dict[str, object]
#: Where the content of outside changes is kept, so that the pack refers to it.
_OUTSIDE = ".ctx/outside"
_CHUNK = 1 << 20


class Captured(NamedTuple):
    """A command's stdout, as far as it is known."""

    #: Where it is kept; `None` if it is not kept, or if it was empty.
    data: Path | None = None
    sha256: str = ""
    is_empty: bool = False
    #: stderr was captured on its own; otherwise it may be part of this.
    alone: bool = True


class SessionBuilder:
    """Takes entries of history, oldest first, and writes their contents into a pack's store.

    With `exact` the commands stay unchanged, secrets included: for an immediate replay. In a pack
    their secrets are replaced.
    """

    def __init__(
        self,
        history: HistoryStore,
        objects: Objects,
        spans: Mapping[str, Json],
        *,
        exact: bool,
    ) -> None:
        self._history = history
        self._objects = objects
        self._spans = spans
        self._exact = exact
        self._refs: dict[bytes, str] = {}
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.commands: list[str | tuple[str, ...]] = []
        self.redacted: list[int] = []
        self.without_span = 0
        self.without_stdout = 0
        self._own_paths: set[RelPath] = set()
        self._others: list[Input] = []

    # -- the tree before ------------------------------------------------------------------------

    def base(self, snapshot: Snapshot, root: Path, commit: bytes | None) -> None:
        entries: list[TreeEntry] = []
        files: list[tuple[RelPath, Node]] = []
        full: set[bytes] = set()
        directories: list[TreeEntry] = []
        for path, node in snapshots.walk(self._history.objects, snapshot):
            full.add(path.rpartition(b"/")[0])
            if node.kind is Kind.FILE:
                files.append((path, node))
                if node.mode != 0o644 or to_name(path).encode() != path:
                    entries.append(TreeEntry(path, "file", node.mode))
            elif node.kind is Kind.SYMLINK:
                target = self._history.objects.read_blob(node.oid)
                entries.append(TreeEntry(path, "symlink", 0, target))
            elif node.kind is Kind.DIRECTORY:
                directories.append(TreeEntry(path, "directory", node.mode))
            elif node.kind is Kind.FIFO:
                entries.append(TreeEntry(path, "fifo", node.mode))
        entries += [d for d in directories if d.mode != 0o755 or d.path not in full]
        record = base_record(os.fsdecode(root), commit.hex() if commit else "", entries)
        stored = self._objects.write(record.encode())
        self.inputs = [Input(BASE_NAME, stored.ref, stored.size)]
        for path, node in files:
            self._refs.pop(node.oid, None)  # the content itself must be in the pack, not its hash
            ref = self._content(node.oid)
            self.inputs.append(Input(to_name(path), ref, self._objects.size(ref)))

    # -- steps ----------------------------------------------------------------------------------

    def command(self, entry: Entry, changes: Sequence[Change] | None) -> None:
        """A command of the session. `changes` is None if a squash holds them with others."""
        span = self._spans.get(entry.span_id or "", {})
        parameters = self._parameters(entry, span)
        result: Json = {}
        if entry.exit is not None:
            result["exit"] = entry.exit
        output_ref = ""
        captured = captured_stdout(span)
        if not captured.alone:
            parameters["stderr"] = "perhaps in stdout"
        if captured.is_empty:
            output_ref = self._objects.write(b"").ref
        elif captured.data is not None:
            output_ref = self._objects.write_chunks(_chunks(captured.data)).ref
        elif captured.sha256:
            result["stdout"] = PREFIX + captured.sha256
        else:
            self.without_stdout += 1
        if changes is not None:
            self.changed_by_session(changes)
            result["changed"] = [self._change(change, keep=False) for change in leaves(changes)]
        self._add("command", "shell", parameters, entry, output_ref, result)

    def outside(self, entry: Entry, changes: Sequence[Change]) -> None:
        """A change by others during the session: replay applies it."""
        told = [self._change(change, keep=True) for change in leaves(changes)]
        if not told:
            return
        parameters: Json = {"why": f"{entry.kind}: {entry.command}", "changes": told}
        self._add("external", "apply_changes", parameters, entry, "", {"changed": told})

    def changed_by_session(self, changes: Sequence[Change]) -> None:
        self._own_paths.update(change.path for change in leaves(changes))

    def outputs(self, snapshot: Snapshot) -> tuple[Output, ...]:
        """The files that the session's own commands changed, in their final state."""
        out = []
        for path in sorted(self._own_paths):
            node = snapshots.lookup(self._history.objects, snapshot, path)
            if node.kind is Kind.FILE:
                out.append(Output(to_name(path), self._content(node.oid)))
        return tuple(out)

    def all_inputs(self) -> tuple[Input, ...]:
        return (*self.inputs, *self._others)

    def _add(
        self, kind: str, tool: str, parameters: Json, entry: Entry, output_ref: str, result: Json
    ) -> None:
        self.steps.append(
            Step(
                index=len(self.steps), type=kind, tool=tool, parameters=parameters,
                output_ref=output_ref, deterministic=True, timestamp=clock.iso(entry.ts_ns),
                result=result,
            )
        )  # fmt: skip

    def _parameters(self, entry: Entry, span: Json) -> Json:
        command = exact_command(entry)
        shown = command if self._exact else _redacted(command)
        if shown != command:
            self.redacted.append(len(self.steps))
        self.commands.append(shown)
        parameters: Json = {
            "command": shown if isinstance(shown, str) else list(shown),
            "command_id": entry.command_id,
        }
        if isinstance(entry.detail.get("cwd"), str):
            parameters["cwd"] = entry.detail["cwd"]
        context = entry.detail.get("replay_context") or span.get("replay_context")
        if not isinstance(context, dict):
            self.without_span += 1
            return parameters
        if isinstance(context.get("env"), dict):
            parameters["env"] = context["env"]
        if isinstance(context.get("umask"), str):
            parameters["umask"] = context["umask"]
        if context.get("stdin") not in (None, "null", "closed"):
            parameters["stdin_kind"] = context["stdin"]
        return parameters

    # -- contents -------------------------------------------------------------------------------

    def _change(self, change: Change, *, keep: bool) -> Json:
        """One changed path; with `keep` its content goes into the pack, else only its hash."""
        node = change.new
        if node.has_content:
            ref = self._content(node.oid) if keep else self._hash(node.oid)
            if keep:
                name = f"{_OUTSIDE}/{len(self.steps)}/{to_name(change.path)}"
                self._others.append(Input(name, ref, self._objects.size(ref)))
            self._refs[node.oid] = ref
        return change_json(change, self._refs)

    def _content(self, oid: bytes) -> str:
        return self._objects.write(self._history.objects.read_blob(oid)).ref

    def _hash(self, oid: bytes) -> str:
        known = self._refs.get(oid)
        if known is None:
            data = self._history.objects.read_blob(oid)
            known = PREFIX + hashlib.sha256(data).hexdigest()
        return known


def exact_command(entry: Entry) -> str | tuple[str, ...]:
    """The exact command from the private ledger: a shell line, or its arguments."""
    exact = entry.detail.get("exact")
    if not isinstance(exact, str):
        return entry.command
    if exact.startswith("["):
        try:
            words = json.loads(exact)
        except ValueError:
            return exact
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            return tuple(words)
    return exact


def _redacted(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if isinstance(command, str):
        return redact(display(os.fsencode(command)))
    return tuple(redact_argv([display(os.fsencode(word)) for word in command]))


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def captured_stdout(span: Json) -> Captured:
    """What a span says about its command's stdout; the file only if its hash still matches."""
    said = span.get("stdout")
    if not isinstance(said, dict) or not isinstance(said.get("sha256"), str):
        return Captured()
    sha256 = str(said["sha256"]).removeprefix(PREFIX)
    errors = span.get("stderr")
    alone = isinstance(errors, dict) and errors.get("sha256") is not None
    if said.get("bytes") == 0:
        return Captured(None, sha256, True, alone)
    path = said.get("ref")
    if isinstance(path, str) and _is_intact(Path(path), sha256):
        return Captured(Path(path), sha256, False, alone)
    return Captured(None, sha256, False, alone)


def _is_intact(path: Path, sha256: str) -> bool:
    digest = hashlib.sha256()
    try:
        for chunk in _chunks(path):
            digest.update(chunk)
    except OSError:
        return False
    return digest.hexdigest() == sha256
