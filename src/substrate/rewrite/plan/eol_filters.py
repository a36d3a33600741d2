"""From blobs to the bytes of files and back: line endings, ``$Id$``, encodings; never a program.

The target's attributes apply, as in ``git checkout``: the attribute files of the new state are
written to a directory of their own, where git finds only them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from substrate.errors import RefusedError
from substrate.model import BlobReader, BlobWriter, Kind, Node, RelPath, ancestors, display, join
from substrate.rewrite.execute import WorkingCopy
from substrate.rewrite.plan.diff_states import Survey
from substrate.workspace.paths import blob_id

_ATTRIBUTES = b".gitattributes"
_BUILT_IN_MERGES = ("text", "binary", "union")


class Conversion:
    """Conversions for the paths of one rewrite; runs no git if nothing converts."""

    def __init__(self, copy: WorkingCopy, survey: Survey, blobs: BlobReader, scratch: Path) -> None:
        self._copy = copy
        self._survey = survey
        self._blobs = blobs
        self._shadow = scratch / "attributes"
        self._values: dict[bytes, dict[str, str]] = {}
        if survey.converts:
            self._lay_out(survey.target)
            names = ("filter", "merge", "text", "eol", "ident", "working-tree-encoding", "crlf")
            self._values = copy.git.attributes(
                survey.target, names, work_tree=self._shadow, index=copy.index_file
            )

    def merge_driver(self, path: RelPath) -> str:
        """``text``, ``union`` or ``binary``; an external driver is never run, so: binary."""
        value = self._values.get(path, {}).get("merge", "unspecified")
        if value in ("unspecified", "set"):
            value = self._copy.git.config().get("merge.default", "text")
        if value == "unset":
            return "binary"
        if value in _BUILT_IN_MERGES:
            return value
        # Git treats a driver without configuration as a plain text merge.
        return "binary" if f"merge.{value}.driver" in self._copy.git.config() else "text"

    def to_files(
        self, wanted: Mapping[RelPath, Node], batch: BlobWriter, *, now: bool = False
    ) -> dict[RelPath, Node]:
        """Each node with its file's content; `now`: by the attributes in the work tree."""
        out = dict(wanted)
        if not self._survey.converts:
            return out
        asked = [(path, node) for path, node in wanted.items() if node.kind is Kind.FILE]
        contents = self._copy.git.as_checked_out(
            [(node.oid, path) for path, node in asked],
            work_tree=self._copy.root if now else self._shadow,
        )
        for (path, node), content in zip(asked, contents, strict=True):
            if content is None:
                raise RefusedError(
                    f"{display(path)} has a name that cannot be converted",
                    hint="its line endings or encoding are converted, but its name holds a newline",
                )
            if blob_id(content) != node.oid:
                out[path] = node._replace(oid=batch.add_blob(content))
        return out

    def refuse_filtered(self, paths: Iterable[RelPath]) -> None:
        """Refuse to write files whose content only an external filter can produce."""
        for path in paths:
            name = self._values.get(path, {}).get("filter", "unspecified")
            config = self._copy.git.config()
            steps = ("smudge", "process", "clean")
            if any(config.get(f"filter.{name}.{step}") for step in steps):
                raise RefusedError(
                    f"{display(path)} would have to be written by the filter {name!r}, which"
                    " Substrate does not run",
                    hint="move it with git itself, or leave it out of the target; nothing was"
                    " changed",
                )

    def clean_ids(self, paths: Iterable[RelPath]) -> dict[RelPath, bytes]:
        """The blob that git would make of each file now; empty unless something converts."""
        asked = [path for path in paths if path.find(b"\n") < 0 and path[:1] != b'"']
        if not self._survey.converts or not asked:
            return {}
        stdin = b"".join(path + b"\n" for path in asked)
        out = self._copy.git.ask("hash-object", "--stdin-paths", input=stdin)
        lines = (out or b"").split()
        if len(lines) != len(asked):
            return {}  # a file disappeared since it was listed
        ids = (bytes.fromhex(line.decode("ascii")) for line in lines)
        return dict(zip(asked, ids, strict=True))

    # -- the attribute files of the new state ---------------------------------------------------

    def _lay_out(self, target: Iterable[RelPath]) -> None:
        places = {join(above, _ATTRIBUTES) for path in target for above in _above(path)}
        self._shadow.mkdir(mode=0o700, parents=True, exist_ok=True)
        indexed = self._indexed(places)
        for place in places:
            content = self._content(place, indexed)
            if content is None:
                continue
            file = os.path.join(os.fsencode(self._shadow), place)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file, "wb") as out:
                out.write(content)

    def _content(self, place: RelPath, indexed: Mapping[bytes, bytes]) -> bytes | None:
        change = self._survey.target.get(place)
        if change is not None:
            wanted = change.new
            return self._blobs.read_blob(wanted.oid) if wanted.kind is Kind.FILE else None
        if place in indexed:
            return self._blobs.read_blob(indexed[place])
        file = os.path.join(os.fsencode(self._copy.root), place)
        if os.path.islink(file) or not os.path.isfile(file):
            return None
        with open(file, "rb") as found:
            return found.read()

    def _indexed(self, places: Iterable[RelPath]) -> dict[bytes, bytes]:
        """List the whole index and pick attribute files: a pathspec for each would be slow."""
        out = self._copy.git.run("ls-files", "-z", "--stage")
        wanted = set(places)
        found: dict[bytes, bytes] = {}
        at = out.find(_ATTRIBUTES + b"\0")
        while at >= 0:
            start = out.rfind(b"\0", 0, at) + 1
            meta, _, path = out[start : at + len(_ATTRIBUTES)].partition(b"\t")
            mode, oid, stage = meta.split(b" ")
            if path in wanted and stage == b"0" and mode.startswith(b"100"):
                found[path] = bytes.fromhex(oid.decode("ascii"))
            at = out.find(_ATTRIBUTES + b"\0", at + 1)
        return found


def _above(path: RelPath) -> list[RelPath]:
    return [*ancestors(path), RelPath(b"")]
