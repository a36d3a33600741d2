"""One path through each verb of `substrate` and `ctx`, in one project, in the order of a day.

The table must name every verb: a new one comes with its line here. The other tests look closer;
this one is short enough to run for an ordinary user as well, every time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from substrate.cli.ctx import VERBS as CTX_VERBS
from substrate.cli.frame.arguments import VERBS
from tests.e2e.test_ctx_packs import LOG

pytestmark = pytest.mark.needs("linux")


class Step(NamedTuple):
    words: str
    #: What is on stdout.
    says: str = ""
    #: What holds then: a shell line that must succeed.
    then: str = "true"
    stdin: str = ""
    status: int = 0


TYPED = "echo t > typed\nexit\n"
#: Two commits, and what `LOG` says an agent wrote.
SETUP = """
git init -qb main; printf 'def go():\\n    return 1\\n\\n\\ndef main():\\n    go()\\n' > a.py
git add . && git commit -qm first
echo b > b; git add b && git commit -qm second; git tag second; echo 'It greets.' > answer.md
"""
STEPS = (
    Step("substrate run -- touch made", then="test -e made"),
    Step("substrate -c 'echo 2 >> a.py'", then="grep -q 2 a.py"),
    Step("substrate -c 'rm b'", then="! test -e b"),
    Step("substrate log", "rm b"),
    Step("substrate show @", "rm b"),
    Step("substrate diff @", "-b"),
    Step("substrate replay @"),
    Step("substrate undo", "b", then="grep -q b b"),
    Step("substrate redo", "b", then="! test -e b"),
    Step("substrate checkpoint -m point", "point"),
    Step("substrate session list", "s-"),
    Step("substrate -c 'echo bad > c'", then="test -e c"),
    Step("substrate rollback --checkpoint 1", "c", then="! test -e c"),
    Step("substrate blame a.py", "(baseline)"),
    Step("substrate status", "history"),
    Step("substrate stats", "commits"),
    Step("substrate pause", "substrate resume"),
    Step("substrate resume", "goes on"),
    Step("substrate hook claude-code", stdin="{}"),
    Step("substrate compact --dry-run"),
    Step("substrate recover list"),
    Step("substrate forget a.py --dry-run", "a.py", then="test -e a.py"),
    Step("substrate --hold -c 'echo h > held'", then="! test -e held"),
    Step("substrate world apply $(ls .substrate-git/worlds)", then="test -e held"),
    Step("substrate try 2 -- sh -c 'echo $SUBSTRATE_ATTEMPT > at'", "world pick", "! test -e at"),
    Step("substrate projects", "/"),
    Step("substrate config get session.idle_hours", "8"),
    Step("substrate completion bash", "complete"),
    Step("substrate uninstall --dry-run", "Nothing was changed"),
    Step("substrate trace", "rm b"),
    Step("substrate connect codex --yes", "hooks.json", then="test -s ~/.codex/hooks.json"),
    Step("substrate disconnect", "hooks.json", then="! test -e ~/.codex"),
    Step("substrate rewrite --base HEAD --target HEAD~1", then="! git diff --quiet HEAD second"),
    Step("git reset -q --hard second"),
    Step("substrate fsck", "sound"),
    Step("substrate doctor --json", "findings"),
    Step("substrate daemon status --json", "running", status=1),
    Step("substrate export-html all.html", "blacked out", then="grep -q '</html>' all.html"),
    Step("substrate mcp"),  # it ends with its input
    Step(
        "substrate ui --no-open --json >link & until test -s link; do :; done; kill $!; wait $!",
        then="grep -q http://127.0.0.1 link", status=143,
    ),
    Step("script -qec 'substrate shell' /dev/null", then="test -e typed", stdin=TYPED),
    Step("ctx init"),
    Step("ctx index"),
    Step("ctx symbols go", "go"),
    Step("ctx refs go", "go"),
    Step("ctx delta HEAD~1 HEAD"),
    Step("ctx impact HEAD"),
    Step("ctx context --task 'let it go' --token-cap 500", "go"),
    Step("ctx graph --out drawn.html", then="test -s drawn.html"),
    Step("ctx pack -", "ctx://", stdin=json.dumps(LOG)),
    Step("ctx log"),
    Step("ctx show latest"),
    Step("ctx tag mine latest", then="ctx tag | grep -q mine"),
    Step("ctx diff mine latest"),
    Step("ctx replay latest"),
    Step("ctx verify answer.md", "sidecar missing", status=1),
    Step("ctx fork latest"),
    Step("ctx finalize $(ls .ctx/drafts | head -1)"),
    Step("ctx export latest run.ctx.tar.gz", then="test -s run.ctx.tar.gz"),
    Step("ctx import run.ctx.tar.gz"),
    Step("ctx fsck"),
    Step("ctx gc --dry-run"),
    Step("substrate history reset --yes", then="test -e a.py"),
)  # fmt: skip


SIGNING = (
    Step("ctx init"),
    Step("ctx pack -", "ctx://", stdin=json.dumps(LOG)),
    Step("ssh-keygen -q -t ed25519 -N '' -f key"),
    Step("ctx sign latest --key key"),
)


def sh(where: Path, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    beside = os.path.dirname(sys.executable)
    env = {**os.environ, "PATH": f"{beside}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", line], cwd=where, env=env, input=stdin, capture_output=True, text=True
    )


def follow(where: Path, steps: tuple[Step, ...]) -> None:
    assert sh(where, f"set -e{SETUP}").returncode == 0
    for step in steps:
        done = sh(where, step.words, step.stdin)
        shown = f"{step.words}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == step.status, shown
        assert step.says in done.stdout, shown
        assert sh(where, step.then).returncode == 0, f"not so: {step.then}\n{shown}"


def test_a_day_with_every_verb(tmp_path: Path) -> None:
    follow(tmp_path, STEPS)


@pytest.mark.needs("ssh-keygen")
def test_signing(tmp_path: Path) -> None:
    follow(tmp_path, SIGNING)


def test_no_verb_is_left_out() -> None:
    used = [step.words.replace("script -qec '", "").split() for step in (*STEPS, *SIGNING)]
    assert {*VERBS} <= {words[1].strip("'") for words in used if words[0] == "substrate"}
    assert {words[1] for words in used if words[0] == "ctx"} == {*CTX_VERBS}
