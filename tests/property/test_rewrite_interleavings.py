"""An editor, two agents and Substrate on the same files, in any order, and interleaved: nothing
that was ever in the tree is lost.

The oracle shares no code with the product: bytes are read with `os`, reachability is git's.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from substrate.errors import SubstrateError
from substrate.objects.store.object_store import ObjectStore
from substrate.recorder.working_copy_rewrite import rewrite_working_copy
from substrate.rewrite.execute.run_rewrite import Request
from substrate.rewrite.execute.working_copy import open_working_copy
from substrate.rewrite.snapshots.list_snapshots import all_kept
from substrate.rewrite.snapshots.restore_snapshot import RestoreChoice, bring_back
from tests.property.driver import Driver
from tests.unit.rewrite.interference import interfere
from tests.unit.rewrite.scene import Scene, lines

NAMES = ("a", "b", "d/c", "x.log", "d")
MOMENTS = (
    "diff-files",
    "update-ref --no-deref refs/manifold",
    "write-tree",
    "--index-info",
    "diff-tree",
)
COMMITS = ("one", "two", "three")
AGENTS = ("s-a", "s-b")


class Workshop:
    """One project, and everything that was ever written in it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.scene = Scene(root)
        self.driver = Driver(root, root.parent)
        self.random = random.Random(seed)
        #: What is typed into a file while the next operation runs.
        self.typed = b""
        self.steps = 0
        self._commits()

    def _commits(self) -> None:
        scene = self.scene
        scene.write(".gitignore", "*.log\n")
        for number, name in enumerate(COMMITS):
            scene.git("rm", "-q", "-r", "--ignore-unmatch", "--", "d", check=False)
            scene.write("a", lines(f"{number + 1}={name}"))
            if number != 1:
                scene.write("b", lines(f"{number + 5}={name}"))
            elif scene.exists("b"):
                scene.remove("b")
            scene.write("d/c" if number != 2 else "d", f"{name}\n")
            if number == 2:
                scene.write("x.log", "tracked now\n")
                scene.git("add", "-f", "x.log")
            scene.commit(name)
            scene.git("tag", name)
        scene.git("checkout", "-q", "--detach", "one")

    # -- actions --------------------------------------------------------------------------------

    def edit(self, name: str) -> None:
        """An editor saves: in place, by rename, or removes; or a link, or another mode."""
        how = self.random.randrange(6)
        self.steps += 1
        try:
            if how == 0 and self.scene.exists(name):
                self.scene.remove(name)
            elif how == 1:
                self.scene.link(name, "elsewhere")
            elif how == 2 and self.scene.exists(name):
                os.chmod(self.scene.path(name), self.random.choice((0o644, 0o755, 0o600)))
            else:
                content = lines(f"{self.random.randrange(1, 21)}=edit {self.steps}")
                self.scene.write(name, content)
        except OSError:
            pass  # the path is a directory, or is below a file

    def stage(self, name: str) -> None:
        self.steps += 1
        how = self.random.choice(
            (("add", "-f"), ("add", "-N", "-f"), ("reset", "-q"), ("rm", "-q", "--cached"))
        )
        self.scene.git(*how, "--", name, check=False)

    def agent(self, session: str, name: str) -> None:
        """One of two agents runs a recorded command on the same files."""
        self.steps += 1
        self._guarded(lambda: self.driver.run(session, lambda: self.edit(name)))

    def undo(self, session: str) -> None:
        self.steps += 1
        self._guarded(lambda: self.driver.undo(None, session, ()))

    def rewrite(self, target: str, policy: str) -> None:
        self.steps += 1
        self._guarded(lambda: self._rewrite(target, policy))

    def _rewrite(self, target: str, policy: str) -> None:
        base = self.scene.git("rev-parse", "HEAD").decode().strip()
        request = Request(base, target, policy)
        rewrite_working_copy(self.scene.root, request, None, self.driver._place)

    def restore(self, number: int) -> None:
        self.steps += 1
        copy = open_working_copy(self.scene.root)
        kept = all_kept(copy, ObjectStore(copy.common_dir))
        if kept:
            self._guarded(lambda: bring_back(copy, kept[number % len(kept)], RestoreChoice()))

    # -- the oracle -----------------------------------------------------------------------------

    def _guarded(self, act: object) -> None:
        before, staged = self.scene.tree(), self._staged()
        assert callable(act)
        try:
            act()
        except SubstrateError as error:
            assert error.exit_code in (1, 4, 5), error
        self.check(before, staged)

    def _staged(self) -> set[str]:
        out = self.scene.git("ls-files", "--stage", "-z").split(b"\0")
        return {e.split(b" ")[1].decode() for e in out if e and not e.startswith(b"160000")}

    def check(self, before: dict[bytes, tuple[str, int, bytes]], staged: set[str]) -> None:
        out = self.scene.git("rev-list", "--objects", "--all", "HEAD", "--indexed-objects")
        history = self.scene.root / ".substrate-git" / ".git"
        if history.exists():  # there all versions are found by `log` and `recover`
            out += self.scene.git(f"--git-dir={history}", "rev-list", "--objects", "--all")
        reachable = {line[:40].decode() for line in out.split(b"\n")}
        now = self.scene.tree()
        for path, (kind, _, content) in before.items():
            if kind == "directory":
                continue
            # Text that the editor appended during the operation extends what it wrote before.
            versions = [content, content + self.typed] if self.typed else [content]
            kept = any(now.get(path, ("", 0, b""))[2] == version for version in versions)
            kept = kept or any(blob(version) in reachable for version in versions)
            assert kept, f"lost: {path!r} {content[:60]!r}"
        # What was staged is still in the index, or some ref reaches it.
        missing = {oid for oid in staged if oid not in reachable and oid != blob(b"")}
        assert not missing, f"staged contents lost: {missing}"
        assert not list((self.scene.root / ".manifold" / "journal").glob("*"))
        assert not (self.scene.root / ".git" / "index.lock").exists()
        self.scene.git("fsck", "--strict", "--no-dangling")


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("edit"), names),
    st.tuples(st.just("edit"), names),
    st.tuples(st.just("agent"), st.sampled_from(AGENTS), names),
    st.tuples(st.just("undo"), st.sampled_from(AGENTS)),
    st.tuples(st.just("stage"), names),
    st.tuples(st.just("rewrite"), st.sampled_from(COMMITS), st.sampled_from(("warn", "strict"))),
    st.tuples(st.just("rewrite"), st.sampled_from(COMMITS), st.just("warn")),
    st.tuples(st.just("restore"), st.integers(0, 5)),
    st.tuples(st.just("during"), st.sampled_from(MOMENTS), names, st.sampled_from(COMMITS)),
)


def run(root: Path, plan: list[tuple[object, ...]], seed: int) -> int:
    workshop = Workshop(root / "project", seed)
    for number, (what, *how) in enumerate(plan):
        if what == "during":
            moment, name, target = map(str, how)
            with pytest.MonkeyPatch.context() as patch:
                path = workshop.scene.root / name
                script = f"[ -d '{path}' ] || echo 'typed {number}' >> '{path}'"
                interfere(patch, root / f"bin{number}", moment, script)
                workshop.typed = b"typed %d\n" % number
                workshop.rewrite(target, "warn")
                workshop.typed = b""
        else:
            getattr(workshop, str(what))(*how)
    return workshop.steps


@settings(
    max_examples=12, suppress_health_check=list(HealthCheck), derandomize=True, deadline=None
)  # fmt: skip
@given(st.lists(steps, min_size=4, max_size=14), st.integers(0, 2**16))
@example(
    [("edit", "a"), ("stage", "a"), ("edit", "a"), ("rewrite", "two", "warn"), ("restore", 0)], 1
)
@example([("edit", "d/c"), ("rewrite", "three", "warn"), ("rewrite", "one", "warn")], 2)
@example([("edit", "x.log"), ("rewrite", "three", "warn"), ("restore", 0)], 3)
@example(
    [("agent", "s-a", "a"), ("edit", "a"), ("rewrite", "two", "warn"), ("agent", "s-b", "b"),
     ("undo", "s-a"), ("restore", 0), ("undo", "s-b")], 5
)  # fmt: skip
@example([("during", "--index-info", "a", "two"), ("during", MOMENTS[1], "b", "three")], 4)
def test_nothing_that_was_ever_there_is_lost(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[object, ...]], seed: int
) -> None:
    run(tmp_path_factory.mktemp("mix"), plan, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_ten_thousand_steps(tmp_path_factory: pytest.TempPathFactory) -> None:
    total = seed = 0
    while total < 10_000:
        seed += 1
        chooser = random.Random(seed)
        plan: list[tuple[object, ...]] = [_any_step(chooser) for _ in range(25)]
        root = tmp_path_factory.mktemp("mix")
        try:
            total += run(root, plan, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {plan}\n{error}") from error
        subprocess.run(["rm", "-rf", str(root)], check=True)
    print(f"\nrewrite: {total} random steps in {seed} histories, 0 losses")


def _any_step(chooser: random.Random) -> tuple[object, ...]:
    name, target = chooser.choice(NAMES), chooser.choice(COMMITS)
    return chooser.choice(
        (
            ("edit", name), ("edit", name), ("edit", name), ("stage", name),
            ("agent", chooser.choice(AGENTS), name), ("undo", chooser.choice(AGENTS)),
            ("rewrite", target, "warn"), ("rewrite", target, "strict"),
            ("restore", chooser.randrange(6)), ("during", chooser.choice(MOMENTS), name, target),
        )
    )  # fmt: skip
