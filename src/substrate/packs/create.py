"""From an execution log to a stored pack."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from substrate.errors import UsageError
from substrate.packs.json_stream import JsonSyntaxError
from substrate.packs.log_fields import Log, LogContent, LogStep, Source, check_log
from substrate.packs.log_items import Problem, gather, line_of
from substrate.packs.manifest import Input, Manifest, Output, Pack, Prompt, Step
from substrate.packs.objects import CHUNK, Stored, open_regular
from substrate.packs.refs import set_latest
from substrate.packs.spill import Scratch, Spilled, store_spilled
from substrate.packs.store import Store

#: More problems than this are counted, not listed.
_LISTED = 10
_FORMAT_HINT = "docs/packs.md describes the log; `ctx pack --help` shows a small one"


class LogFile(NamedTuple):
    """A log that can be read twice: once for what it says, again to tell a problem's line."""

    name: str
    file: IO[bytes]
    #: `path` contents are relative to the first of these, and must lie in one of them.
    roots: Sequence[Path]


def pack_log(store: Store, log: LogFile) -> Pack:
    """Store a log's contents and its manifest, list the pack, and make it the latest.

    The same log always gives the same pack. `UsageError` names every field that is wrong.
    """
    with store.writing("packing a log"), Scratch(store.scratch) as scratch:
        try:
            items = gather(log.file, scratch.spill)
        except JsonSyntaxError as error:
            raise UsageError(
                f"{log.name}, line {error.line}: {error.problem}", hint=_FORMAT_HINT
            ) from None
        checked, problems = check_log(items)
        if checked is None:
            raise _wrong_log(log, problems)
        writer = _Writer(store, log)
        manifest = writer.manifest(checked)
        if writer.problems:
            raise _wrong_log(log, writer.problems)
        return publish(store, manifest)


def publish(store: Store, manifest: Manifest) -> Pack:
    """Store and list a manifest whose contents are stored; `latest` follows. Call in `writing`."""
    pack = store.add(manifest)
    set_latest(store, pack.ref)
    return pack


class _Writer:
    """Contents into the store, one after the other."""

    def __init__(self, store: Store, log: LogFile) -> None:
        self._objects = store.objects
        self._roots = [Path(os.path.realpath(root)) for root in log.roots]
        self.problems: list[Problem] = []

    def manifest(self, log: Log) -> Manifest:
        return Manifest(
            created=log.created,
            model=log.model,
            system_prompt=self._store(log.system_prompt).ref,
            prompts=tuple(Prompt(p.label, self._store(p.source).ref) for p in log.prompts),
            inputs=tuple(self._input(item) for item in log.inputs),
            steps=tuple(self._step(step) for step in log.steps),
            outputs=tuple(Output(o.label, self._store(o.source).ref) for o in log.outputs),
            environment=log.environment,
        )

    def _input(self, item: LogContent) -> Input:
        stored = self._store(item.source)
        return Input(item.label, stored.ref, stored.size)

    def _step(self, step: LogStep) -> Step:
        return Step(
            index=step.number,
            type=step.type,
            tool=step.tool,
            parameters=step.parameters,
            output_ref=self._store(step.output).ref if step.output is not None else "",
            deterministic=step.deterministic,
            timestamp=step.timestamp,
        )

    def _store(self, source: Source) -> Stored:
        try:
            if source.kind == "text":
                if isinstance(source.value, Spilled):
                    return store_spilled(self._objects, source.value)
                return self._objects.write(source.value.encode())
            if source.kind == "base64":
                return self._objects.write_chunks(_decoded(source.value))
            return self._objects.write_chunks(self._file(source))
        except ValueError as error:
            self.problems.append(Problem(source.place, str(error), source.origin))
            return Stored("", 0)

    def _file(self, source: Source) -> Iterator[bytes]:
        name = source.value if isinstance(source.value, str) else source.value.text()
        if "\0" in name:
            raise ValueError("a file's name cannot hold a NUL")
        path = Path(os.path.realpath(self._roots[0] / name))
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ValueError(
                f"{name} lies outside the project and the log's directory; copy it there first"
            )
        try:
            fd = open_regular(path)
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from None
        with os.fdopen(fd, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk


def _decoded(value: str | Spilled) -> Iterator[bytes]:
    """Base64, strictly, in pieces of whole groups of four."""
    pieces = [value.encode()] if isinstance(value, str) else value.chunks()
    rest = b""
    try:
        for piece in pieces:
            whole = rest + b"".join(piece.split())
            cut = len(whole) // 4 * 4
            # The last group stays for the next round: only there may `=` stand.
            cut -= 4 if cut == len(whole) and cut else 0
            if b"=" in whole[:cut]:
                raise ValueError("is not base64: it goes on after a =")
            yield base64.b64decode(whole[:cut], validate=True)
            rest = whole[cut:]
        yield base64.b64decode(rest, validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not base64: {error}") from None


def _wrong_log(log: LogFile, problems: Sequence[Problem]) -> UsageError:
    if len(problems) == 1:
        (problem,) = problems
        return UsageError(f"{log.name}, line {_line(log, problem)}: {problem}", hint=_FORMAT_HINT)
    found = sorted((_line(log, problem), str(problem)) for problem in problems[:_LISTED])
    lines = [f"line {line}: {problem}" for line, problem in found]
    if len(problems) > _LISTED:
        lines.append(f"and {len(problems) - _LISTED} more")
    listed = "\n".join(lines)
    return UsageError(f"{log.name} has {len(problems)} mistakes:\n{listed}", hint=_FORMAT_HINT)


def _line(log: LogFile, problem: Problem) -> int:
    log.file.seek(0)
    return line_of(log.file, problem.origin)
