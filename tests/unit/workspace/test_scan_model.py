"""Random edits, a scan after each, always against a naive walk of the whole tree."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from substrate.model.nodes import ABSENT
from substrate.workspace.exclude import Exclusions
from substrate.workspace.paths import entry_reader
from substrate.workspace.scan.tree_scan import StatCache, cached_nodes, observe, scan
from tests.unit.workspace.naive import Blobs, rel, walk

NAMES = ["a", "b", "c.log", "node_modules", ".git", "new\nline", "ü"]
names = st.sampled_from(NAMES)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.sampled_from([b"", b"one!", b"two!", b"longer than the others"])
RULES = [b"", b"*.log\n", b"b/\n!node_modules/\n", b"/a/b\nnew*\n"]


class Edits(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="substrate-scan-"))
        self.root = self.base / "work"
        self.root.mkdir()
        self.exclusions = Exclusions(size_cap_bytes=20)
        # Shorter than in earnest, so that there is time to wait it out; the kernel's tick is
        # shorter still.
        self.window_ns = entry_reader._RACY_WINDOW_NS
        entry_reader._RACY_WINDOW_NS = 20 * 10**6

    def teardown(self) -> None:
        entry_reader._RACY_WINDOW_NS = self.window_ns
        shutil.rmtree(self.base, ignore_errors=True)

    def _at(self, path: str) -> Path | None:
        """The path, if nothing above it is in the way."""
        full = self.root / path
        for above in full.relative_to(self.root).parents:
            if (self.root / above).is_symlink() or not (self.root / above).is_dir():
                return None
        return full

    @rule()
    def time_passes(self) -> None:
        """From here on stats are trusted, until the next edit."""
        time.sleep(0.025)

    @rule(path=paths, content=contents)
    def write(self, path: str, content: bytes) -> None:
        full = self._at(path)
        if full is None or full.is_symlink() or full.is_dir():
            return
        full.write_bytes(content)

    @rule(path=paths, content=contents)
    def edit_and_put_the_times_back(self, path: str, content: bytes) -> None:
        full = self._at(path)
        if full is None or full.is_symlink() or not full.is_file():
            return
        info = full.stat()
        full.write_bytes(content)
        os.utime(full, ns=(info.st_atime_ns, info.st_mtime_ns))

    @rule(path=paths)
    def make_directory(self, path: str) -> None:
        full = self._at(path)
        if full is not None and not os.path.lexists(full):
            full.mkdir()

    @rule(path=paths, towards=paths)
    def link(self, path: str, towards: str) -> None:
        full = self._at(path)
        if full is not None and not os.path.lexists(full):
            full.symlink_to(towards)

    @rule(path=paths)
    def remove(self, path: str) -> None:
        full = self._at(path)
        if full is None or not os.path.lexists(full):
            return
        if full.is_dir() and not full.is_symlink():
            shutil.rmtree(full)
        else:
            full.unlink()

    @rule(source=paths, towards=paths)
    def rename(self, source: str, towards: str) -> None:
        old, new = self._at(source), self._at(towards)
        if old is None or new is None or not os.path.lexists(old):
            return
        try:
            old.rename(new)
        except OSError:
            pass  # into itself, or over a full directory

    @rule(path=paths, mode=st.sampled_from([0o700, 0o755, 0o750]))
    def chmod(self, path: str, mode: int) -> None:
        full = self._at(path)
        if full is not None and not full.is_symlink() and full.exists():
            full.chmod(mode)

    @rule(path=paths, value=st.sampled_from([b"1", b"2"]))
    def set_attribute(self, path: str, value: bytes) -> None:
        full = self._at(path)
        if full is None or full.is_symlink() or not full.exists() or not hasattr(os, "setxattr"):
            return
        try:
            os.setxattr(full, "user.test", value)
        except OSError:
            pass

    @rule(rules=st.sampled_from(RULES))
    def other_rules(self, rules: bytes) -> None:
        self.exclusions = Exclusions(rules, size_cap_bytes=20)

    @rule(path=paths)
    def observe(self, path: str) -> None:
        found = observe(self.root, [rel(path)], self.exclusions, Blobs())
        tree = walk(self.root, self.exclusions)
        below = rel(path) + b"/"
        expected = {at: n for at, n in tree.items() if at == rel(path) or at.startswith(below)}
        assert {at: n for at, n in found.items() if n != ABSENT} == expected

    @invariant()
    def the_cache_is_the_tree(self) -> None:
        path = self.base / "cache"
        cache, blobs = StatCache.load(path), Blobs()
        before = dict(cached_nodes(cache))
        result = scan(self.root, cache, self.exclusions, blobs)
        cache.save(path, describes=b"")
        tree = walk(self.root, self.exclusions)
        assert dict(cached_nodes(cache)) == tree
        # What was seen is all that a reader of the old state needs to know.
        before.update(result.seen)
        assert {at: n for at, n in before.items() if n != ABSENT} == tree
        assert not result.unreadable
        top = {at for at in result.excluded if self.exclusions.reason(at, is_dir=True, size=0)}
        assert all(at not in tree for at in top)


Edits.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestEdits = Edits.TestCase
