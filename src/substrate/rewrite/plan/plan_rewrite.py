"""Decide everything a rewrite will do before it starts: plan, index entries, conflicts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath, ancestors
from substrate.objects.git import BINARY, Git
from substrate.objects.index import Stages
from substrate.objects.store import Batch
from substrate.rewrite.execute import WorkingCopy
from substrate.rewrite.plan.diff_states import Survey
from substrate.rewrite.plan.directory_plan import Planner, Wish, below_any, plan_of
from substrate.rewrite.plan.eol_filters import Conversion
from substrate.rewrite.plan.merge_path import (
    Replay,
    Sides,
    TextMerge,
    Verdict,
    with_executable,
)
from substrate.workspace.apply import Op, Plan
from substrate.workspace.paths import blob_id, node_at

_LABELS = ("target", "base", "your work")


class Decision(NamedTuple):
    plan: Plan
    #: The new index entry of each path that changes there.
    entries: dict[RelPath, Node | Stages]
    conflicts: dict[RelPath, str]
    merged: tuple[RelPath, ...]
    #: Ignored files that the target replaces.
    overwritten: tuple[RelPath, ...]
    #: The current file of every path that was read: the snapshot must contain them.
    present: dict[RelPath, Node]
    #: Paths of the target's change that contain user work.
    with_work: tuple[RelPath, ...]
    #: Old and new index entry of each planned path: for files that change at the last moment.
    late: dict[RelPath, tuple[Node, Node]]


class Files:
    """Reads files of the working copy. Contents that are not stored yet go into the batch."""

    def __init__(self, root: Path, batch: Batch, known: Iterable[bytes] = ()) -> None:
        self._root = root
        self._batch = batch
        self._known = set(known)
        self.nodes: dict[RelPath, Node] = {}

    def add_blob(self, data: bytes) -> bytes:
        oid = blob_id(data)
        return oid if oid in self._known else self._batch.add_blob(data)

    def node(self, path: RelPath) -> Node:
        found = self.nodes.get(path)
        if found is None:
            found = self.nodes[path] = node_at(self._root, path, self)
        return found


class Decider:
    def __init__(
        self,
        copy: WorkingCopy,
        survey: Survey,
        batch: Batch,
        conversion: Conversion,
        scratch: Path,
        umask: int,
    ) -> None:
        self._copy = copy
        self._survey = survey
        self._batch = batch
        self._conversion = conversion
        self._scratch = scratch
        self._umask = umask
        changes = [*survey.target.values(), *survey.staged.values()]
        known = {node.oid for change in changes for node in (change.old, change.new) if node.oid}
        self.files = Files(copy.root, batch, known)
        self._trust_modes = copy.git.is_set("core.filemode", default=True)
        self._untracked = frozenset(survey.untracked)
        self._merge_git = Git(copy.common_dir)
        self._ignored: dict[RelPath, bool] | None = None
        self._targets: dict[RelPath, Node] = {}

    def decide(self, *, defer_untracked: bool = False) -> Decision:
        survey = self._survey
        self._targets = self._conversion.to_files(
            {path: change.new for path, change in survey.target.items()}, self._batch
        )
        clean = self._clean_paths()
        verdicts = {path: self._verdict(path, path in clean) for path in survey.target}
        for path in self._clashing_in_index():
            verdicts[path] = self._refused(path, "you staged something in its place")
        wishes = {path: self._wish(path, verdict) for path, verdict in verdicts.items()}
        if defer_untracked:
            for path in survey.untracked:
                wishes.setdefault(path, Wish(self.files.node(path), ABSENT))
        layout = Planner(
            self._copy.root, self.files.node, self._gives_way, 0o777 & ~self._umask
        ).lay_out(wishes)
        for path, why in layout.blocked.items():
            verdicts[path] = self._refused(path, why)
        self._conversion.refuse_filtered(
            op.path for op in layout.ops if op.become.kind is Kind.FILE
        )
        plan = plan_of(layout.ops)
        return Decision(
            plan=plan,
            entries=self._index_changes(verdicts),
            conflicts={path: v.conflict for path, v in sorted(verdicts.items()) if v.conflict},
            merged=tuple(sorted(p for p, v in verdicts.items() if v.merged and not v.conflict)),
            overwritten=self._overwritten(plan.ops),
            present=dict(self.files.nodes),
            with_work=tuple(sorted(p for p in verdicts if p not in clean)),
            late={
                path: (self._index_node(path), v.entry)
                for path, v in verdicts.items()
                if isinstance(v.entry, Node)
            },
        )

    # -- one path -------------------------------------------------------------------------------

    def _index_node(self, path: RelPath) -> Node:
        if path in self._survey.intent_to_add:
            return ABSENT
        staged = self._survey.staged.get(path)
        return staged.new if staged is not None else self._survey.target[path].old

    def _work_node(self, path: RelPath) -> Node:
        """ABSENT for a directory in place of a file: the files in it have their own paths."""
        node = self.files.node(path)
        return ABSENT if node.kind is Kind.DIRECTORY else node

    def _clean_paths(self) -> set[RelPath]:
        clean, unsure = set(), []
        for path in self._survey.target:
            index, work = self._index_node(path), self._as_git_sees(path)
            if index == work:
                clean.add(path)
            elif index.kind is work.kind is Kind.FILE and index.mode == work.mode:
                unsure.append(path)
        for path, oid in self._conversion.clean_ids(unsure).items():
            if oid == self._index_node(path).oid:
                clean.add(path)
        return clean

    def _as_git_sees(self, path: RelPath) -> Node:
        work = self._work_node(path)
        if work.kind is Kind.SYMLINK:
            return Node(Kind.SYMLINK, 0, work.oid)
        if work.kind is not Kind.FILE:
            return work
        index = self._index_node(path)
        if not self._trust_modes and index.kind is Kind.FILE:
            return Node(Kind.FILE, index.mode, work.oid)
        return Node(Kind.FILE, 0o755 if work.mode & 0o100 else 0o644, work.oid)

    def _verdict(self, path: RelPath, is_clean: bool) -> Verdict:
        if path in self._survey.unmerged:
            return Verdict(ABSENT, self._work_node(path), conflict="was in conflict before")
        change = self._survey.target[path]
        work = self._work_node(path)
        if not self._trust_modes and work.kind is Kind.FILE:
            mode = self._index_node(path).mode or change.new.mode
            work = work._replace(mode=with_executable(work.mode, mode))
        index = self._index_node(path)
        ignored = index == ABSENT and self._gives_way(path)
        sides = Sides(change.old, change.new, index, work, is_clean, ignored)
        return self._replay(path).decide(sides)

    def _replay(self, path: RelPath) -> Replay:
        def to_file(node: Node) -> Node:
            return self._to_file(path, node)

        def was_file(node: Node) -> Node:
            return self._conversion.to_files({path: node}, self._batch, now=True)[path]

        merge = self._text_merge(self._conversion.merge_driver(path))
        return Replay(self._batch.read_blob, self._batch.add_blob, merge, to_file, was_file)

    def _to_file(self, path: RelPath, node: Node) -> Node:
        if node == self._survey.target[path].new:
            return self._targets[path]
        return self._conversion.to_files({path: node}, self._batch)[path]

    def _text_merge(self, driver: str) -> TextMerge:
        def merge(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool] | None:
            if driver == "binary":
                return None
            favor = "union" if driver == "union" else None
            content, count = self._merge_git.merge_file(
                base, ours, theirs, scratch=self._scratch, favor=favor, labels=_LABELS
            )
            return None if count == BINARY else (content, count == 0)

        return merge

    def _refused(self, path: RelPath, why: str) -> Verdict:
        change = self._survey.target[path]
        stages = Stages(change.old, change.new, self._index_node(path))
        return Verdict(stages, self._work_node(path), conflict=why)

    # -- the tree -------------------------------------------------------------------------------

    def _gives_way(self, path: RelPath) -> bool:
        """Ignored: exists, not tracked, not listed as untracked, not in a nested repository."""
        survey = self._survey
        if path in self._untracked or path in survey.intent_to_add or path in survey.unmerged:
            return False
        if path in survey.staged or path in survey.dirty or below_any(path, survey.nested):
            return False
        change = survey.target.get(path)
        if change is not None and change.old != ABSENT:
            return False
        if self.files.node(path).kind in (Kind.DIRECTORY, Kind.ABSENT):
            return False
        return self._is_ignored(path)

    def _is_ignored(self, path: RelPath) -> bool:
        """Ask git, so that a file created a moment ago is not mistaken for an ignored one."""
        if self._ignored is None:
            added = [p for p, c in self._survey.target.items() if c.old == ABSENT]
            there = {p for p in added if self.files.node(p).has_content}
            self._ignored = dict.fromkeys(there, False) | self._ask_ignored(there)
        if path not in self._ignored:
            self._ignored |= {path: False, **self._ask_ignored({path})}
        return self._ignored[path]

    def _ask_ignored(self, paths: set[RelPath]) -> dict[RelPath, bool]:
        # With "./" git cannot read a name as pathspec magic.
        stdin = b"".join(b"./" + path + b"\0" for path in paths)
        out = self._copy.git.ask("check-ignore", "-z", "--stdin", input=stdin)
        return {RelPath(path[2:]): True for path in (out or b"").split(b"\0") if path}

    def _wish(self, path: RelPath, verdict: Verdict) -> Wish:
        now = self.files.node(path)
        wanted = verdict.work
        if now.kind is Kind.DIRECTORY and wanted == ABSENT:
            return Wish(now, now)
        if verdict.convert and wanted != ABSENT:
            wanted = self._exact(self._to_file(path, wanted), now)
        return Wish(now, wanted)

    def _exact(self, node: Node, now: Node) -> Node:
        """The node with its file mode: that of the file it replaces, else from the umask."""
        if node.kind is not Kind.FILE:
            return node
        if now.kind is Kind.FILE:
            mode = with_executable(now.mode, node.mode) if self._trust_modes else now.mode
            return node._replace(mode=mode, xattrs=now.xattrs)
        full = 0o777 if node.mode & 0o100 else 0o666
        return node._replace(mode=full & ~self._umask)

    def _clashing_in_index(self) -> set[RelPath]:
        """A staged file where the target has a directory, or the reverse: one index cannot hold
        both as merged entries."""
        target, staged = self._survey.target, self._survey.staged
        added = {p for p, c in target.items() if c.new != ABSENT}
        users = {p for p, c in staged.items() if c.new != ABSENT and c.old == ABSENT}
        out = {path for path in added if any(above in users for above in ancestors(path))}
        out |= {above for path in users - added for above in ancestors(path) if above in added}
        return out

    def _index_changes(self, verdicts: dict[RelPath, Verdict]) -> dict[RelPath, Node | Stages]:
        return {
            path: verdict.entry
            for path, verdict in verdicts.items()
            if path not in self._survey.unmerged and verdict.entry != self._index_node(path)
        }

    def _overwritten(self, ops: tuple[Op, ...]) -> tuple[RelPath, ...]:
        found = [op.path for op in ops if op.expect.has_content and self._gives_way(op.path)]
        return tuple(sorted(found))


def is_as_recorded(node: Node, recorded: Node) -> bool:
    """Whether a file matches an index entry, byte for byte."""
    if (node.kind, node.oid) != (recorded.kind, recorded.oid):
        return False
    return node.kind is not Kind.FILE or bool(node.mode & 0o100) == bool(recorded.mode & 0o100)
