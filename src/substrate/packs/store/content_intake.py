"""Write contents into the store, and report problems with their line."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from substrate.errors import UsageError
from substrate.packs.format import Problem, Source, Spilled, is_ref, line_of, short, store_spilled
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.object_files import CHUNK, Stored, open_regular

#: Further problems are only counted.
_LISTED = 10


class LogFile(NamedTuple):
    """A log that can be read twice: once for its contents, again to find a problem's line."""

    name: str
    file: IO[bytes]
    #: `path` contents are relative to the first of these, and must be inside one of them.
    roots: Sequence[Path]


class ContentWriter:
    """Writes contents into the store; those that cannot be stored are in `problems`."""

    def __init__(self, store: Store, roots: Sequence[Path]) -> None:
        self._objects = store.objects
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self.problems: list[Problem] = []

    def store(self, source: Source) -> Stored:
        try:
            if source.kind == "text":
                if isinstance(source.value, Spilled):
                    return store_spilled(self._objects, source.value)
                return self._objects.write(source.value.encode())
            if source.kind == "base64":
                return self._objects.write_chunks(_decoded(source.value))
            if source.kind == "ref":
                return self._known(source)
            return self._objects.write_chunks(self._file(source))
        except ValueError as error:
            self.problems.append(Problem(source.place, str(error), source.origin))
            return Stored("", 0)

    def _known(self, source: Source) -> Stored:
        ref = source.value
        if not isinstance(ref, str) or not is_ref(ref):
            raise ValueError("is not a content address (sha256:…)")
        if ref not in self._objects:
            raise ValueError(f"there is no object {short(ref)} in this store")
        return Stored(ref, self._objects.size(ref))

    def _file(self, source: Source) -> Iterator[bytes]:
        name = source.value if isinstance(source.value, str) else source.value.text()
        if "\0" in name:
            raise ValueError("a file's name cannot hold a NUL")
        path = Path(os.path.realpath(self._roots[0] / name))
        if not any(path.is_relative_to(root) for root in self._roots):
            raise ValueError(
                f"{name} is outside the project and the log's directory; copy it there first"
            )
        try:
            fd = open_regular(path)
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from None
        with os.fdopen(fd, "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk


def _decoded(value: str | Spilled) -> Iterator[bytes]:
    """Decode base64 strictly, in pieces of whole groups of four."""
    pieces = [value.encode()] if isinstance(value, str) else value.chunks()
    rest = b""
    try:
        for piece in pieces:
            whole = rest + b"".join(piece.split())
            cut = len(whole) // 4 * 4
            # Keep the last group for the next round: only the last one may contain `=`.
            cut -= 4 if cut == len(whole) and cut else 0
            if b"=" in whole[:cut]:
                raise ValueError("is not base64: it goes on after a =")
            yield base64.b64decode(whole[:cut], validate=True)
            rest = whole[cut:]
        yield base64.b64decode(rest, validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not base64: {error}") from None


def mistakes(log: LogFile, problems: Sequence[Problem], hint: str) -> UsageError:
    """One error that lists all problems of a file, each with its line."""
    if len(problems) == 1:
        (problem,) = problems
        return UsageError(f"{log.name}, line {_line(log, problem)}: {problem}", hint=hint)
    found = sorted((_line(log, problem), str(problem)) for problem in problems[:_LISTED])
    lines = [f"line {line}: {problem}" for line, problem in found]
    if len(problems) > _LISTED:
        lines.append(f"and {len(problems) - _LISTED} more")
    listed = "\n".join(lines)
    return UsageError(f"{log.name} has {len(problems)} mistakes:\n{listed}", hint=hint)


def _line(log: LogFile, problem: Problem) -> int:
    log.file.seek(0)
    return line_of(log.file, problem.origin)
