"""Snapshots: the files of docs/graph.md, exact, reproducible, used only if complete."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.errors import NotFoundError, SubstrateError, UsageError
from substrate.graph.index.compressed_snapshot import plain_snapshots
from substrate.graph.index.graph_paths import FILES, MARKER, Layout, read_marker
from substrate.objects.git.repository import Repository, plain_head
from tests.mounts import mounted, tmpfs_words
from tests.unit.graph.conftest import Content, MakeProject, Project, contents, read_lines

SMALL: dict[str, Content] = {
    "pkg/__init__.py": "",
    "pkg/a.py": "from pkg.b import f\n\n\ndef g():\n    return f()\n",
    "pkg/b.py": "def f():\n    return 1\n",
    "README.md": "# A project\n",
    "logo.png": b"\x89PNG\0\0\0",
}


def test_the_records_are_the_seeds(project: Project) -> None:
    commit = project.commit(SMALL)
    snapshot = project.index()
    assert sorted(os.listdir(snapshot)) == sorted([*FILES, MARKER, "sections"])
    files = {row["path"]: row for row in read_lines(snapshot / "files.jsonl")}
    source = SMALL["pkg/b.py"]
    assert isinstance(source, str)
    expected = {
        "type": "file_snapshot",
        "path_id": hashlib.sha256(b"pkg/b.py").hexdigest()[:32],
        "blob_oid": project.git("rev-parse", "HEAD:pkg/b.py"),
        "content_sha256": hashlib.sha256(source.encode()).hexdigest(),
        "language": "Python",
        "byte_size": len(source),
        "loc": 2,
        "is_generated": False,
        "is_binary": False,
        "path": "pkg/b.py",
    }
    assert files["pkg/b.py"] == expected
    assert files["logo.png"]["is_binary"] is True
    assert files["README.md"]["language"] == "Markdown"
    (commit_row,) = read_lines(project.layout.commits)
    assert commit_row["sha"] == commit.hex()
    assert commit_row["parent_sha"] is None
    assert commit_row["author"] == "Ada Tester <ada@example.invalid>"
    assert commit_row["message"] == "work"
    paths = {row["path"]: row for row in read_lines(project.layout.paths)}
    assert set(paths) == set(SMALL)
    assert paths["pkg/a.py"]["first_seen_commit"] == commit.hex()


def test_every_reference_between_records_leads_somewhere(project: Project) -> None:
    project.commit(SMALL)
    symbols = {row["symbol_id"] for row in project.records("symbols.jsonl")}
    regions = {row["region_id"] for row in project.records("regions.jsonl")}
    files = {row["path_id"] for row in project.records("files.jsonl")}
    assert len(symbols) == len(project.records("symbols.jsonl"))
    assert len(regions) == len(project.records("regions.jsonl"))
    for row in project.records("symbols.jsonl"):
        assert row["def_region_id"] in regions
        assert row["path_id"] in files
    for row in project.records("edges.calls.jsonl"):
        assert row["call_region_id"] in regions
        assert row["from_symbol_id"] in symbols
    for row in project.records("edges.imports.jsonl"):
        assert row["import_region_id"] in regions


def test_indexing_twice_gives_the_same_bytes(project: Project, tmp_path: Path) -> None:
    project.commit(SMALL)
    here = contents(project.index())
    again = contents(project.index(layout=Layout(tmp_path / "other")))
    assert here == again


@pytest.mark.parametrize("damage", ["marker", "cut", "foreign"])
def test_a_killed_index_is_done_again(project: Project, damage: str) -> None:
    project.commit(SMALL)
    snapshot = project.index()
    whole = contents(snapshot)
    if damage == "marker":
        (snapshot / MARKER).unlink()
    elif damage == "cut":
        os.truncate(snapshot / "symbols.jsonl", 10)
    else:
        (snapshot / MARKER).write_text('{"version": 0}')
    assert read_marker(snapshot) is None
    assert contents(project.index()) == whole


def test_what_a_killed_index_left_is_swept(project: Project) -> None:
    project.commit(SMALL)
    left = project.layout.snapshots / ".tmp-dead"
    left.mkdir(parents=True)
    project.index()
    assert not left.exists()


def test_manifests_grow_by_what_is_new(project: Project) -> None:
    project.commit(SMALL)
    project.index()
    project.commit({"pkg/b.py": None, "pkg/c.py": "def h(): ...\n"})
    parent = project.git("rev-parse", "HEAD~1")
    project.index()
    project.index("HEAD~1")
    rows = read_lines(project.layout.paths)
    gone = [row for row in rows if row["path"] == "pkg/b.py"]
    assert [row["last_seen_commit"] for row in gone] == [None, parent]
    assert len(rows) == len(SMALL) + 2
    assert len(read_lines(project.layout.commits)) == 2


def test_a_torn_line_in_a_manifest_is_cut_off(project: Project) -> None:
    project.commit(SMALL)
    project.index()
    with open(project.layout.commits, "ab") as file:
        file.write(b'{"type":"commit","sha":"12')
    project.commit({"x.txt": "x"})
    project.index()
    assert len(read_lines(project.layout.commits)) == 2


NAMES = ["ünï cödé.py", "new\nline.py", "tab\t'quote\".py", "-dash.py", "日本.py", "%41.py"]


def test_any_name_can_be_indexed(project: Project) -> None:
    odd = os.fsdecode(b"caf\xe9.py")
    project.commit(dict.fromkeys([*NAMES, odd], "def f(): ...\n"))
    files = {row["path"]: row for row in project.records("files.jsonl")}
    assert set(files) == {*NAMES, "caf%E9.py"}
    assert files["caf%E9.py"]["encoded"] is True
    assert "encoded" not in files["%41.py"]
    assert len([row for row in project.records("symbols.jsonl") if row["name"] == "f"]) == 7
    recorded = {row["path_id"] for row in read_lines(project.layout.paths)}
    assert recorded == {hashlib.sha256(os.fsencode(n)).hexdigest()[:32] for n in [*NAMES, odd]}


def test_links_and_submodules_are_no_source(project: Project, make_project: MakeProject) -> None:
    other = make_project("other")
    other.commit({"x.py": "def x(): ...\n"})
    project.write({"real.py": "def f(): ...\n"})
    (project.root / "link.py").symlink_to("real.py")
    project.git(
        "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.root), "sub"
    )
    project.commit()
    rows = {row["path"]: row for row in project.records("files.jsonl")}
    assert set(rows) == {".gitmodules", "real.py", "link.py"}
    assert rows["link.py"]["language"] == ""


@pytest.mark.parametrize("revision", ["HEAD", "main", "v1", "HEAD~0", "main^{}", "short"])
def test_any_way_to_name_a_commit(project: Project, revision: str) -> None:
    commit = project.commit(SMALL)
    project.git("tag", "-a", "-m", "one", "v1")
    name = commit.hex()[:9] if revision == "short" else revision
    assert project.index(name).name == commit.hex()


@pytest.mark.parametrize(
    "revision", ["--output=pwned", "-n1", "nonsense", "HEAD~9", "HEAD:README.md", " ", "a b"]
)
def test_what_is_no_commit_is_not_found(project: Project, revision: str) -> None:
    project.commit(SMALL)
    before = sorted(os.listdir(project.root))
    with pytest.raises(NotFoundError):
        project.index(revision)
    assert sorted(os.listdir(project.root)) == before


@pytest.mark.parametrize("revision", ["", "HEAD\n--output=pwned", "a\0b"])
def test_what_cannot_be_a_revision_is_refused(project: Project, revision: str) -> None:
    project.commit(SMALL)
    with pytest.raises(UsageError):
        project.index(revision)


def test_ranges_and_everything(project: Project) -> None:
    commits = [project.commit({"a.py": f"X = {n}\n"}) for n in range(4)]
    project.git("branch", "side", "HEAD~2")
    snapshot = project.git("commit-tree", "-m", "kept by a rewrite", "HEAD^{tree}").strip()
    project.git("update-ref", "refs/manifold/recovery/default/1", snapshot)
    with Repository(project.root / ".git", project.root) as repository:
        assert repository.rev_list("HEAD~2..HEAD") == commits[2:]
        assert repository.rev_list(None) == commits
        with pytest.raises(NotFoundError):
            repository.rev_list("--output=pwned..HEAD")
    assert not (project.root / "pwned").exists()


def test_the_head_is_read_by_hand_where_it_is_plain(project: Project) -> None:
    commit = project.commit(SMALL)
    git_dir = project.root / ".git"
    assert plain_head(git_dir) == commit
    project.git("checkout", "-q", "--detach")
    assert plain_head(git_dir) == commit
    project.git("checkout", "-q", "main")
    project.git("pack-refs", "--all")
    assert plain_head(git_dir) is None
    linked = project.root.parent / "linked"
    project.git("worktree", "add", "-q", "-b", "side", str(linked))
    assert plain_head(git_dir / "worktrees" / "linked") == commit
    os.mkfifo(linked / "HEAD")
    assert plain_head(linked) is None, "a FIFO is not waited for"


def test_hooks_and_configuration_of_the_repository_are_not_run(project: Project) -> None:
    project.commit(SMALL)
    planted = project.root / ".git" / "planted"
    script = f"#!/bin/sh\ntouch '{planted}'\n"
    for name in ("post-index-change", "reference-transaction"):
        hook = project.root / ".git/hooks" / name
        hook.write_text(script)
        hook.chmod(0o755)
    project.git("config", "core.fsmonitor", f"touch '{planted}'; true")
    project.git("config", "core.pager", f"touch '{planted}'; cat")
    project.git("config", "diff.external", f"touch '{planted}'; true")
    planted.unlink(missing_ok=True)
    project.index()
    assert not planted.exists()


def test_older_snapshots_are_folded_and_come_back(project: Project, tmp_path: Path) -> None:
    commits = [
        project.commit({**SMALL, "pkg/b.py": f"def f():\n    return {n}\n"}) for n in range(8)
    ]
    for commit in commits:
        project.index(commit.hex())
    assert len(plain_snapshots(project.layout)) == 3
    notes = list(project.layout.snapshots.glob("*/FOLDED"))
    assert notes
    for note in notes:
        named = note.parent.name
        assert [path.name for path in note.parent.iterdir()] == ["FOLDED"]
        assert f"ctx index --commit {named}" in note.read_text()
        assert (project.layout.folded / named).is_file()
    for commit in [commits[0], commits[4], commits[1]]:
        here = contents(project.index(commit.hex()))
        assert here == contents(project.index(commit.hex(), Layout(tmp_path / commit.hex())))
    assert len(plain_snapshots(project.layout)) <= 4


def test_folded_snapshots_outlive_their_commits(project: Project) -> None:
    first = project.commit(SMALL)
    whole = contents(project.index())
    for n in range(4):
        project.commit({"pkg/b.py": f"def f():\n    return {n}\n"})
        project.index()
    assert read_marker(project.layout.snapshot(first)) is None
    with Repository(project.root / ".git", project.root) as repository:
        from substrate.graph.index.index_commit import ensure

        # No git is asked: only the fold is there.
        repository.read_commit = None  # type: ignore[method-assign,assignment]
        ensure(project.layout, repository, first, "project")
    assert contents(project.layout.snapshot(first)) == whole


def test_a_damaged_fold_is_indexed_again(project: Project) -> None:
    first = project.commit(SMALL)
    whole = contents(project.index())
    for n in range(4):
        project.commit({"pkg/b.py": f"def f():\n    return {n}\n"})
        project.index()
    project.layout.fold(first).write_bytes(b"garbage")
    assert contents(project.index(first.hex())) == whole


def test_a_damaged_cache_costs_nothing_but_time(project: Project) -> None:
    project.commit(SMALL)
    whole = contents(project.index())
    for file in project.layout.cache.iterdir():
        file.write_bytes(b"garbage " * 2000)
    (project.layout.snapshot(bytes.fromhex(project.git("rev-parse", "HEAD"))) / MARKER).unlink()
    assert contents(project.index()) == whole


@pytest.mark.parametrize("place", [0.26, 0.29, 0.31, 0.36, 0.49, 0.66])
def test_a_damaged_row_of_the_cache_is_made_again(project: Project, place: float) -> None:
    """One bit, which SQLite itself does not notice."""
    project.commit(SMALL)
    whole = contents(project.index())
    (database,) = project.layout.cache.glob("*.db")
    with sqlite3.connect(database) as opened:
        text = "SELECT key, facts FROM facts ORDER BY length(facts) DESC"
        key, packed = opened.execute(text).fetchone()
        at = int(place * len(packed))
        torn = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        opened.execute("UPDATE facts SET facts = ? WHERE key = ?", (torn, key))
    opened.close()
    shutil.rmtree(project.layout.snapshots)
    assert contents(project.index()) == whole
    with sqlite3.connect(database) as opened:
        opened.execute("UPDATE facts SET facts = x'00'")
    opened.close()
    project.commit({"pkg/new.py": "from pkg.a import f\n\n\ndef g():\n    f()\n"})
    spliced = contents(project.index())
    shutil.rmtree(project.layout.graph)
    assert contents(project.index()) == spliced


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("size_kb", [40, 80, 120, 160, 240, 400])
def test_a_full_disk_is_reported_and_leaves_nothing_to_believe(
    project: Project, tmp_path: Path, size_kb: int
) -> None:
    body = "".join(f"def f{n}():\n    return g{n}()\n\n\n" for n in range(40))
    project.commit({f"m{n}.py": body for n in range(30)})
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, *tmpfs_words(size=f"{size_kb}k")):
        layout = Layout(disk / "graph")
        with pytest.raises((OSError, SubstrateError)) as raised:
            project.index(layout=layout)
        assert "space" in str(raised.value)
        assert os.listdir(layout.snapshots) == []
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert contents(project.index(layout=layout)) == contents(project.index())


@pytest.mark.needs("mounts")
def test_a_graph_that_may_only_be_read_still_answers(project: Project) -> None:
    project.commit(SMALL)
    whole = contents(project.index())
    place = project.layout.graph
    with mounted(place, "--bind", str(place)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        assert contents(project.index()) == whole
        project.commit({"x.py": "X = 1\n"})
        with pytest.raises(SubstrateError):
            project.index()


_ASKED_FOR = """
import sys
from substrate.graph.index import index_commit as index

class Finder:
    asked = []

    def find_spec(self, name, path=None, target=None):
        self.asked.append(name)

sys.meta_path.insert(0, Finder())
index._import_msgspec()
index._import_msgspec()
print("msgspec" in Finder.asked, "typing_extensions" in Finder.asked)
print("typing_extensions" in sys.modules)
"""


def test_msgspec_is_imported_without_what_it_can_do_without() -> None:
    argv = [sys.executable, "-c", _ASKED_FOR]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "False"]
