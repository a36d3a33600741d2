"""The checks of `test_kill` can fail: plant a defect in each step of history, and see it caught."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import NamedTuple

import pytest

from tests.crash import harness
from tests.crash.harness import Before, Site
from tests.crash.test_kill import OPERATIONS, WORK, Operation, has_intent, prepare

RUN = "\nimport sys\nfrom substrate.cli.main import substrate\nsys.exit(substrate())"


IN_A_WORLD = Operation(("--session", "s", "--world", "-c", WORK), ("command",), 0)


class Defect(NamedTuple):
    operation: str
    #: What is broken, as Python run before the program.
    planted: str


FORGETFUL = (
    "from substrate.history.reversal import restore\n"
    "from substrate.workspace.apply.plan import Plan\n"
    "apply = restore._apply\n"
    "restore._apply = lambda store, intent, plan: apply(\n"
    "    store, intent, Plan.of([op for op in plan.ops if op.path != b'src/a']))"
)
DEFECTS = {
    "a command's change is not committed": Defect(
        "record",
        "from substrate.history.record import record_entry as record\n"
        "extend = record._extend\n"
        "record._extend = lambda store, batch, seen, *rest, **more: extend(\n"
        "    store, batch, seen._replace(changes=[]), *rest, **more)",
    ),
    "a command's change is committed in part": Defect(
        "record",
        "from substrate.history.record import record_entry as record\n"
        "extend = record._extend\n"
        "record._extend = lambda store, batch, seen, *rest, **more: extend(\n"
        "    store, batch, seen._replace(changes=seen.changes[1:]), *rest, **more)",
    ),
    "a world's change is not committed": Defect(
        "world",
        "from substrate.history.arrival import bring_into_tree as arrive\n"
        "arrive.edited = lambda batch, snapshot, changes: snapshot",
    ),
    "a file of a world does not arrive": Defect(
        "world",
        "from substrate.history.arrival import bring_into_tree as arrive\n"
        "apply = arrive._apply\n"
        "def forgetful(store, intent, ready, source):\n"
        "    ready.staged.items[:] = [i for i in ready.staged.items if i.path != b'src/a']\n"
        "    return apply(store, intent, ready, source)\n"
        "arrive._apply = forgetful",
    ),
    "outside edits are not taken note of": Defect(
        "undo",
        "from substrate.history.record import record_entry as record\n"
        "record.record_outside = lambda store: None",
    ),
    "an undo forgets a file": Defect("undo", FORGETFUL),
    "a rollback forgets a file": Defect("rollback", FORGETFUL),
    "an exact rollback forgets a file": Defect("exact", FORGETFUL),
    "an undo leaves no entry": Defect(
        "undo",
        "from substrate.history.reversal import restore\n"
        "def gone(store, intent, more):\n"
        "    restore.abandon(store, intent)\n"
        "    raise SystemExit(0)\n"
        "restore.complete = gone",
    ),
    "scratch files stay": Defect(
        "undo",
        "from substrate.history.reversal import restore\n"
        "complete = restore.complete\n"
        "def messy(store, intent, more):\n"
        "    entry = complete(store, intent, more)\n"
        "    store.scratch(intent.intent_id).mkdir(parents=True, exist_ok=True)\n"
        "    return entry\n"
        "restore.complete = messy",
    ),
    "compaction forgets what it squashed": Defect(
        "compact",
        "from substrate.history.maintenance import squash\n"
        "squash.NewLine.take_up = (lambda take_up: lambda self, ledger: (\n"
        "    take_up(self, ledger),\n"
        "    ledger.db.execute('DELETE FROM entries WHERE squashed_into IS NOT NULL')))(\n"
        "    squash.NewLine.take_up)",
    ),
    "compaction loses a state": Defect(
        "compact",
        "from substrate.history.maintenance import squash\n"
        "write = squash._write_squash\n"
        "def short(store, batch, out, here, members, step):\n"
        "    step = step._replace(after=step.before or step.after)\n"
        "    return write(store, batch, out, here, members, step)\n"
        "squash._write_squash = short",
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Before]:
    """Each operation's workspace, made once."""

    @cache
    def make(name: str) -> Before:
        place = tmp_path_factory.mktemp(name)
        like = "record" if name == "world" else name
        return harness.make(place, lambda cli: prepare(cli, like), _operation(name).words)

    return make


def _operation(name: str) -> Operation:
    return IN_A_WORLD if name == "world" else OPERATIONS[name]


def _cases(names: Iterable[str], in_a_world: Container[str]) -> list[object]:
    needs = pytest.mark.needs("world-overlay")
    return [pytest.param(name, marks=needs if name in in_a_world else ()) for name in names]


@pytest.mark.parametrize(
    "named", _cases(DEFECTS, [name for name in DEFECTS if DEFECTS[name].operation == "world"])
)
def test_the_oracle_sees(named: str, made: Callable[[str], Before]) -> None:
    defect = DEFECTS[named]
    operation = _operation(defect.operation)
    before = made(defect.operation)
    site = harness.copy(before, "struck")
    done = site.cli._replace(launcher=("-c", defect.planted + RUN))(*operation.words)
    for wrong in (b"NameError", b"ImportError", b"TypeError", b"AttributeError"):
        assert wrong not in done.stderr, f"the planted defect does not fit: {done.stderr!r}"
    with pytest.raises(AssertionError):
        harness.verdict(site, done.returncode, operation.kinds)


@pytest.mark.needs("strace")
def test_the_oracle_sees_that_nothing_is_finished(made: Callable[[str], Before]) -> None:
    operation, before = OPERATIONS["undo"], made("undo")
    found = harness.points(before, operation.words)
    for point in reversed([p for p in found if p.call == "renameat2"] or found):
        site = harness.copy(before, "struck")
        status, _ = harness.struck(site, operation.words, point, "signal=KILL")
        if has_intent(site.cli):
            break
    planted = (
        "from substrate.history.maintenance import crash_recovery as settle\n"
        "settle.settle = lambda store: []"
    )
    broken = site.cli._replace(launcher=("-c", planted + RUN))
    with pytest.raises(AssertionError):
        harness.verdict(Site(broken, before), status, operation.kinds)


@pytest.mark.parametrize("name", _cases(["record", "world", "undo", "compact"], ["world"]))
def test_the_sound_program_passes(name: str, made: Callable[[str], Before]) -> None:
    operation = _operation(name)
    site = harness.copy(made(name), "struck")
    assert site.cli(*operation.words).returncode == 0
    assert harness.verdict(site, 0, operation.kinds) == "new"
