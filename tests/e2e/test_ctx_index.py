"""`ctx index` as a user meets it: killed, side by side, from anywhere, with any words."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]


def ctx(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CTX, *words], cwd=where, capture_output=True, text=True, check=False)


def answer(where: Path, *words: str) -> dict[str, Any]:
    done = ctx(where, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Enough files that children are forked."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "pkg").mkdir()
    for n in range(120):
        (root / "pkg" / f"m{n}.py").write_text(
            f"from pkg.m{(n + 1) % 120} import f{(n + 1) % 120}\n\n\n"
            f"def f{n}():\n    return f{(n + 1) % 120}()\n"
        )
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def snapshot(repo: Path) -> dict[str, bytes]:
    directory = repo / ".ctx/graph/snapshots" / git(repo, "rev-parse", "HEAD")
    return {file.name: file.read_bytes() for file in directory.iterdir()}


def test_init_makes_a_private_directory_that_git_does_not_see(repo: Path) -> None:
    assert ctx(repo / "pkg", "init").returncode == 0
    assert ctx(repo, "init").returncode == 0
    assert (repo / ".ctx").stat().st_mode & 0o777 == 0o700
    assert (repo / ".ctx/.gitignore").read_text() == "*\n"
    assert git(repo, "status", "--porcelain") == ""
    assert ".ctx/" in (repo / ".git/info/exclude").read_text()


@pytest.mark.parametrize("name", ["graph", "graph/cache"])
def test_nothing_is_written_through_a_link_that_a_repository_brought(
    repo: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    ctx(repo, "init")
    shutil.rmtree(repo / ".ctx" / name)
    (repo / ".ctx" / name).symlink_to(outside)
    for words in (["index"], ["init"]):
        done = ctx(repo, *words)
        assert (done.returncode != 0, f"{name} is a link" in done.stderr) == (True, True)
    assert list(outside.iterdir()) == []


def test_index_then_already_indexed(repo: Path) -> None:
    ctx(repo, "init")
    (first,) = answer(repo, "index")["indexed"]
    (second,) = answer(repo / "pkg", "index")["indexed"]
    assert (first["already_indexed"], second["already_indexed"]) == (False, True)
    assert first["files"] == 120
    assert first["calls"] == 120


def test_already_indexed_loads_none_of_the_parsers(repo: Path) -> None:
    ctx(repo, "init")
    ctx(repo, "index")
    script = (
        "import sys; from substrate.cli.ctx import ctx; ctx(['index']);"
        "print(*sorted({n for m in sys.modules for n in (m, m.partition('.')[0])}"
        " & {'tree_sitter', 'msgspec', 'zstandard', 'splintr', 'sqlite3', 'subprocess',"
        " 'dataclasses', 'hashlib', 'shutil', 'substrate.packs.store.ctx_store'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=repo, capture_output=True, check=True)
    assert done.stdout.splitlines()[1].strip() == b""


def test_indexers_side_by_side_do_the_work_once(repo: Path) -> None:
    ctx(repo, "init")
    running = [
        subprocess.Popen([*CTX, "index"], cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    assert [child.wait() for child in running] == [0] * 6
    said = [child.communicate()[0] for child in running]
    assert sum(b"already" not in text for text in said) == 1
    for name in ("commits.jsonl", "paths.jsonl"):
        lines = (repo / ".ctx/graph/manifests" / name).read_bytes().splitlines()
        assert len(lines) == len(set(lines)) == {"commits.jsonl": 1, "paths.jsonl": 120}[name]


@pytest.mark.parametrize("delay_s", [0.05, 0.15, 0.25, 0.35, 0.5])
def test_a_killed_index_is_redone(repo: Path, delay_s: float) -> None:
    ctx(repo, "init")
    child = subprocess.Popen([*CTX, "index"], cwd=repo, start_new_session=True)
    time.sleep(delay_s)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert ctx(repo, "index").returncode == 0
    redone = snapshot(repo)
    subprocess.run(["rm", "-rf", str(repo / ".ctx")], check=True)
    ctx(repo, "init")
    ctx(repo, "index")
    assert redone == snapshot(repo)


@pytest.mark.parametrize("when", ["first", "next"])
def test_a_child_that_dies_costs_one_file(repo: Path, when: str) -> None:
    """A grammar that crashes the process: planted by a file whose name says so."""
    ctx(repo, "init")
    if when == "next":
        ctx(repo, "index")
    (repo / "pkg/deadly.py").write_text("def deadly(): ...\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "deadly")
    script = """
import os, sys
import substrate.graph.parse.parse_source as reading
real = reading.Reading.parse
def parse(self):
    if b"deadly" in self.data:
        os.kill(os.getpid(), 9)
    real(self)
reading.Reading.parse = parse
from substrate.cli.ctx import ctx
sys.exit(ctx(["index"]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=repo, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 file could not be read whole" in done.stderr
    files = (snapshot(repo)["files.jsonl"]).decode().splitlines()
    (row,) = [json.loads(line) for line in files if "deadly" in line]
    assert row["trouble"] == "the parser crashed"
    assert len(files) == 121


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("index", "--commit", "nonsense"), 4, "no commit is called 'nonsense'"),
        (("index", "--commit=--output=pwned"), 4, "no commit is called"),
        (("index", "--commit=--output=pwned..HEAD"), 4, "no commits are called"),
        (("index", "--commit=--glob=refs/nothing..*"), 4, "no commits are called"),
        (("index", "--commit", ""), 2, "needs a revision"),
        (("index", "--history"), 4, "no history"),
        (("delta", "--base", "nonsense", "--head", "HEAD"), 4, "no commit is called"),
        (("delta",), 2, "--base"),
        (("delta", "main", "--base", "main"), 2, "named twice: main and main"),
        (("delta", "nonsense", "HEAD"), 4, "no commit is called 'nonsense'"),
        (("index", "nonsense"), 4, "no commit is called 'nonsense'"),
        (("index", ""), 2, "needs a revision"),
        (("index", "main", "--all"), 2, "cannot be combined with"),
        (("refs", "nobody"), 4, "nothing is called 'nobody'"),
        (("impact", "c-zzzz"), 4, "no history"),
        (("context", "--task", "x", "--token-cap", "-1"), 2, "--token-cap"),
        (("symbols", "--commit", "-x"), 2, "--commit"),
        (("frobnicate",), 2, "unknown verb"),
    ],
)
def test_errors_are_reported_by_ctx(
    repo: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    ctx(repo, "init")
    done = ctx(repo, *words)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("ctx: error: ")
    assert said in done.stderr
    assert "hint:" in done.stderr
    assert not (repo / "pwned").exists()


def test_nothing_found_is_reported(repo: Path) -> None:
    ctx(repo, "init")
    done = ctx(repo, "symbols", "nobody")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no definition matches" in done.stderr
    assert answer(repo, "symbols", "nobody")["total"] == 0


def test_in_a_shallow_clone_missing_objects_are_reported(repo: Path, tmp_path: Path) -> None:
    (repo / "pkg/m5.py").write_text("def f5():\n    return 5\n")
    git(repo, "commit", "-q", "-a", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "shallow")
    shallow = tmp_path / "shallow"
    ctx(shallow, "init")
    assert answer(shallow, "index", "--all")["indexed"][0]["files"] == 120
    done = ctx(shallow, "impact")
    assert (done.returncode, "--unshallow" in done.stderr) == (4, True)
    assert ctx(shallow, "delta", "--base", "HEAD~1").returncode == 4


def test_a_repository_of_sha256(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    git(tmp_path, "init", "-q", "--object-format=sha256", "repo")
    for n in range(3):
        (root / "a.py").write_text("def f():\n    return g()\n\n\ndef g():\n" + f"    {n}\n")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "more")
    ctx(root, "init")
    assert len(answer(root, "index", "--all")["indexed"]) == 3
    found = answer(root, "impact")["delta"]
    assert [s["fqname"] for s in found["symbols_changed"]] == ["a.g"]
    assert [s["fqname"] for s in found["symbols_invalidated"]] == ["a.f"]
    assert len(found["head"]) == 64


def test_without_ctx_or_git_it_says_what_to_do(repo: Path, tmp_path: Path) -> None:
    done = ctx(repo, "index")
    assert (done.returncode, "ctx init" in done.stderr) == (4, True)
    bare = tmp_path / "bare"
    bare.mkdir()
    ctx(bare, "init")
    done = ctx(bare, "index")
    assert (done.returncode, "git init" in done.stderr) == (4, True)
    git(bare, "init", "-q")
    done = ctx(bare, "index")
    assert (done.returncode, "no commit" in done.stderr) == (4, True)


def test_delta_indexes_what_is_missing(repo: Path) -> None:
    ctx(repo, "init")
    (repo / "pkg/m5.py").write_text("def f5():\n    return 5\n")
    git(repo, "commit", "-q", "-a", "-m", "second")
    found = answer(repo, "delta", "--base", "HEAD~1")
    assert found["files_changed"] == [{"path": "pkg/m5.py"}]
    (changed,) = [s for s in found["symbols_changed"] if s["kind"] == "function"]
    assert changed["fqname"] == "pkg.m5.f5"
    assert len(found["symbols_invalidated"]) == 119


def test_all_and_ranges(repo: Path) -> None:
    ctx(repo, "init")
    for n in range(3):
        (repo / "x.py").write_text(f"X = {n}\n")
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", "more")
    assert len(answer(repo, "index", "--commit", "HEAD~2..HEAD")["indexed"]) == 2
    assert len(answer(repo, "index", "--all")["indexed"]) == 4


def commit_text(repo: Path, name: str) -> None:
    """A commit after which all symbols and edges are as before."""
    (repo / f"{name}.txt").write_text("no source\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", name)


@pytest.mark.needs("overlay", "root", "mounts")
def test_inside_a_world_snapshots_share_no_files(repo: Path, tmp_path: Path) -> None:
    """A name of a file of the tree would arrive as a file of its own, with a note for each."""
    assert ctx(repo, "init").returncode == 0
    assert ctx(repo, "index").returncode == 0
    commit_text(repo, "second")
    env = {**os.environ, "SUBSTRATE_HOME": str(tmp_path / "home"), "SUBSTRATE_DAEMON": "off"}
    line = shlex.join([*CTX, "index"])
    words = [sys.executable, "-m", "substrate", "-c", line]
    done = subprocess.run(words, cwd=repo, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "file of its own" not in done.stderr
    inside = sorted((repo / ".ctx/graph/snapshots").iterdir())
    assert len(inside) == 2
    assert {file.stat().st_nlink for one in inside for file in one.iterdir()} == {1}
    commit_text(repo, "third")
    assert ctx(repo, "index").returncode == 0
    newest = repo / ".ctx/graph/snapshots" / git(repo, "rev-parse", "HEAD")
    assert (newest / "symbols.jsonl").stat().st_nlink == 2  # outside they do


def test_revisions_are_words_too(repo: Path) -> None:
    ctx(repo, "init")
    (repo / "pkg/m0.py").write_text("def f0():\n    return 0\n")
    git(repo, "commit", "-qam", "second")
    for words, named in ((("HEAD~1",), "HEAD~1"), (("main",), "main"), (("HEAD~1..main",), "main")):
        indexed = answer(repo, "index", *words)["indexed"]
        assert [one["commit"] for one in indexed] == [git(repo, "rev-parse", named)]
    by_options = answer(repo, "delta", "--base", "HEAD~1", "--head", "main")
    assert by_options["files_changed"]
    assert answer(repo, "delta", "HEAD~1", "main") == by_options
    assert answer(repo, "delta", "HEAD~1") == answer(repo, "delta", "--base", "HEAD~1")
    assert answer(repo, "delta", "HEAD~1", "--head", "main") == by_options


def test_a_project_without_git_gets_the_whole_command(tmp_path: Path) -> None:
    ctx(tmp_path, "init")
    told = ctx(tmp_path, "symbols")
    assert told.returncode == 4
    assert "`ctx index --history`" in told.stderr
