"""A check that cannot fail is no check: plant a defect in each step, and see it caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import harness, rewrite_site
from tests.crash.test_rewrite_kill import JOURNAL, fault

#: By step: what is broken, as Python run before the program.
DEFECTS = {
    "no snapshot is taken": (
        "from substrate.rewrite.execute import attempt\n"
        "from substrate.rewrite.snapshots import capture_snapshot as c\n"
        "def no(self, batch, *rest):\n"
        "    c.make_durable(batch)\n"
        "attempt.Attempt._preserve = no"
    ),
    "the snapshot forgets unstaged work": (
        "from substrate.rewrite.snapshots import capture_snapshot as capture\n"
        "read = capture._read\n"
        "capture._read = lambda files, paths, skipped: {\n"
        "    p: n for p, n in read(files, paths, skipped).items() if p != b'mm'}"
    ),
    "unstaged work is dropped": (
        "from substrate.rewrite.plan import merge_path as replay\n"
        "replay.Replay._unstaged = lambda self, s, staged: replay.Verdict(staged, staged, True)"
    ),
    "staged work is dropped": (
        "from substrate.rewrite.plan import merge_path as replay\n"
        "decide = replay.Replay.decide\n"
        "replay.Replay.decide = lambda self, s: decide(self, s)._replace(entry=s.target)"
    ),
    "the index is not exchanged": (
        "from substrate.objects.index import index_file\n"
        "index_file.replace_durably = lambda index, content, vouch: None"
    ),
    "HEAD stays": (
        "from substrate.rewrite.execute import carry_out as transition\n"
        "transition._finish_head = lambda copy, intent: []"
    ),
    "a branch moves": (
        "from substrate.rewrite.execute import carry_out as transition\n"
        "transition._finish_head = lambda copy, intent: (\n"
        "    copy.git.run('update-ref', 'HEAD', intent.head.old_commit + '^{commit}') and [])\\\n"
        "    or copy.git.run('update-ref', 'refs/heads/main', 'target') and []"
    ),
    "the journal stays": (
        "from substrate.rewrite.execute import journal\n"
        "from substrate.rewrite.execute import carry_out as transition\n"
        "from substrate.rewrite.execute import operation_scope as under_way\n"
        "under_way.remove_tree = lambda path: None\n"
        "journal.forget = lambda intent: (intent.directory / 'intent.json').rename(\n"
        "    intent.directory.parent / 'litter')"
    ),
    "a wrong mode": (
        "from substrate.rewrite.plan import plan_rewrite as decide\n"
        "decide.with_executable = lambda mode, like: 0o644"
    ),
}
RUN = "\nimport sys\nfrom substrate.cli.main import substrate\nsys.exit(substrate())"


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_oracle_sees(defect: str, tmp_path: Path) -> None:
    made = fault("rewrite", tmp_path)
    cli = rewrite_site.copy(made, "struck")
    broken = cli._replace(launcher=("-c", DEFECTS[defect] + RUN))
    done = broken(*made.words)
    for wrong in (b"NameError", b"SyntaxError", b"TypeError", b"AttributeError"):
        assert wrong not in done.stderr, f"the planted defect does not fit: {done.stderr!r}"
    with pytest.raises(AssertionError):
        state = rewrite_site.verdict(made, cli)
        assert (state, done.returncode) == ("new", 0)


@pytest.mark.needs("strace")
def test_the_oracle_sees_that_nothing_is_finished(tmp_path: Path) -> None:
    made = fault("rewrite", tmp_path)
    found = rewrite_site.points(made, JOURNAL)
    for point in reversed(found):
        cli = rewrite_site.copy(made, "struck")
        site = harness.Site(cli, harness.Before(made.directory, {}, {}, ()))
        harness.struck(site, made.words, point, "signal=KILL")
        if rewrite_site.announced(cli):
            break
    planted = (
        "from substrate.rewrite.execute import carry_out as transition\n"
        "transition.settle = lambda copy: []"
    )
    broken = cli._replace(launcher=("-c", planted + RUN))
    with pytest.raises(AssertionError, match=r"left over|neither old|next call failed"):
        rewrite_site.verdict(made, broken)


def test_the_sound_program_passes(tmp_path: Path) -> None:
    made = fault("rewrite", tmp_path)
    cli = rewrite_site.copy(made, "struck")
    assert cli(*made.words).returncode == 0
    assert rewrite_site.verdict(made, cli) == "new"
