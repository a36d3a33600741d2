"""A workspace with an owner, and worlds over it: for the tests of worlds."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from substrate.world.interface import RunOutcome, RunRequest, Wanted
from substrate.world.select_strategy import choose_world
from tests.capabilities import present
from tests.contract.as_user import as_user


class Case(NamedTuple):
    strategy: str
    uid: int

    @property
    def needs(self) -> str:
        whose = "" if self.uid == os.geteuid() else "-of-nobody"
        return f"world-{self.strategy}{whose}"


class Site:
    """A workspace that belongs to the user of the case, and worlds over it."""

    def __init__(self, case: Case, base: Path) -> None:
        self.case = case
        self.base = base
        self.root = base / "project"
        self.store = self.root / ".substrate-git"
        self.made: list[RunOutcome] = []

    def run(self, line: str, **request: object) -> RunOutcome:
        return self.ask(RunRequest(self.root, shell=line)._replace(**request))  # type: ignore[arg-type]

    def ask(self, request: RunRequest, **wanted: object) -> RunOutcome:
        wish = Wanted(self.root, self.store, strategy=self.case.strategy, required=True)
        wish = wish._replace(**wanted)  # type: ignore[arg-type]
        outcome = as_user(self.case.uid, lambda: choose_world(wish).run(request))
        self.made.append(outcome)
        return outcome

    def seen(self, line: str, **request: object) -> str:
        """What `line` printed, by way of a file outside the workspace."""
        out = self.base / "out"
        out.write_bytes(b"")
        os.chmod(out, 0o666)
        fd = os.open(out, os.O_WRONLY | os.O_TRUNC)
        try:
            self.run(line, stdout=fd, **request)
        finally:
            os.close(fd)
        return out.read_text()

    @property
    def isolates(self) -> bool:
        return self.case.strategy != "direct"

    def result(self, outcome: RunOutcome, name: str) -> Path:
        """Where a path of the workspace is found after the command."""
        return (outcome.layer.upper if outcome.layer else self.root) / name

    def discard(self) -> None:
        wish = Wanted(self.root, self.store, strategy=self.case.strategy, required=True)
        for outcome in self.made:
            if outcome.layer is not None:
                as_user(self.case.uid, partial(choose_world(wish).discard, outcome.layer))
                assert not outcome.layer.directory.exists()


def skip_unless_possible(case: Case) -> None:
    if case.uid != os.geteuid() and not present("other-user"):
        pytest.skip("needs other-user")
    if case.strategy != "direct" and not present(case.needs):
        pytest.skip(f"needs {case.needs}")


@contextmanager
def make_site(case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    base = Path(tempfile.mkdtemp(prefix="substrate-world-"))
    monkeypatch.setenv("HOME", str(base / "home"))
    monkeypatch.setenv("SUBSTRATE_HOME", str(base / "home" / ".substrate"))
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")  # all of it open to everybody
    made = Site(case, base)
    for directory in (base / "home", made.root, made.store, made.root / "dir"):
        directory.mkdir()
    (made.root / "kept").write_text("kept\n")
    (made.root / "gone").write_text("gone\n")
    (made.root / "dir" / "inner").write_text("inner\n")
    for path in (base, *base.rglob("*")):
        os.chown(path, case.uid, os.getegid() if case.uid == os.geteuid() else case.uid)
    os.chmod(made.store, 0o700)
    try:
        yield made
        made.discard()
    finally:
        shutil.rmtree(base)
