"""Indexes that two sides changed, put together; git itself makes them and reads the result."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from substrate.objects.index.index_merge import put_together

Says = dict[str, str]


def git(root: Path, *words: str, index: Path | None = None, text: str | None = None) -> str:
    env = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index else {})}
    done = subprocess.run(
        ["git", *words], cwd=root, env=env, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def repository(path: Path, *options: str) -> Path:
    path.mkdir()
    git(path, "init", "-q", *options)
    for name in ("a", "b", "d/c", "d/e/f", "x y", "ü"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    git(path, "add", ".")
    return path


def staged(root: Path, script: str, like: bytes | None = None) -> bytes:
    """The index after `script`, beginning with the repository's own."""
    index = root / ".git" / "a-copy"
    index.write_bytes(like if like is not None else (root / ".git" / "index").read_bytes())
    env = {**os.environ, "GIT_INDEX_FILE": str(index)}
    subprocess.run(["bash", "-ec", script], cwd=root, env=env, check=True, capture_output=True)
    return index.read_bytes()


def listed(root: Path, data: bytes) -> Says:
    index = root / ".git" / "another"
    index.write_bytes(data)
    rows = git(root, "ls-files", "-s", "-v", "-z", index=index).split("\0")[:-1]
    return {row.partition("\t")[2]: row.partition("\t")[0] for row in rows}


def set_blob(name: str, content: str) -> str:
    return f"printf '100644 %s\\t{name}\\n' $(printf '{content}' | git hash-object -w --stdin) | \
git update-index --index-info;"


_IN_CONFLICT = """
id=$(printf x | git hash-object -w --stdin)
printf "100644 $id 2\\tcon\\n100644 $id 3\\tcon\\n" | git update-index --index-info
"""


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("format", ["sha1", "sha256"])
def test_what_each_side_staged_is_staged(tmp_path: Path, version: str, format: str) -> None:  # noqa: A002
    root = repository(tmp_path / "repo", f"--object-format={format}")
    git(root, "update-index", "--index-version", version)
    base = (root / ".git" / "index").read_bytes()
    one = staged(root, set_blob("a", "one") + set_blob("new/one", "1") + "git rm -q --cached d/c")
    other = staged(root, set_blob("b", "other") + set_blob("new/other", "2"))
    together = put_together(base, one, other)
    assert together is not None
    found = listed(root, together)
    its, mine = listed(root, one), listed(root, other)
    assert found == {
        **{name: says for name, says in mine.items() if name != "d/c"},
        "a": its["a"], "new/one": its["new/one"],
    }  # fmt: skip


def test_flags_stay(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    base = (root / ".git" / "index").read_bytes()
    one = staged(root, "git update-index --skip-worktree a")
    other = staged(root, "git update-index --assume-unchanged b; touch i; git add -N i")
    together = put_together(base, one, other)
    assert together is not None
    found = listed(root, together)
    assert found["a"].startswith("S ") and found["b"].startswith("h ")
    index = root / ".git" / "another"
    assert "i" in git(root, "diff", "--name-only", "--diff-filter=A", index=index).split()


def test_the_same_on_both_sides_is_no_collision(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    base = (root / ".git" / "index").read_bytes()
    one = staged(root, set_blob("a", "same") + "git rm -q --cached b")
    other = staged(root, set_blob("a", "same") + "git rm -q --cached b;" + set_blob("n", "n"))
    together = put_together(base, one, other)
    assert together is not None and listed(root, together) == listed(root, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (set_blob("a", "one"), set_blob("a", "other")),
        (set_blob("a", "one"), "git rm -q --cached a"),
        ("git rm -q --cached a", set_blob("a", "other")),
        (set_blob("n", "one"), set_blob("n", "other")),
        (set_blob("n", "a file"), set_blob("n/below", "in a directory")),
        (set_blob("n/below", "in a directory"), set_blob("n", "a file")),
        (set_blob("n", "1"), "git update-index --split-index"),
        (set_blob("n", "1"), "git update-index --force-untracked-cache"),
        (set_blob("n", "1"), _IN_CONFLICT),
    ],
    ids=[
        "both", "removed there", "removed here", "made on both", "a file and a directory",
        "a directory and a file", "split", "with a cache of untracked files", "in a conflict",
    ],
)  # fmt: skip
def test_what_is_not_put_together(tmp_path: Path, one: str, other: str) -> None:
    root = repository(tmp_path / "repo")
    base = (root / ".git" / "index").read_bytes()
    assert put_together(base, staged(root, one), staged(root, other)) is None


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC" + bytes(40), b"nonsense" * 20])
def test_nonsense_is_not_put_together(tmp_path: Path, data: bytes) -> None:
    base = (repository(tmp_path / "repo") / ".git" / "index").read_bytes()
    for three in ((data, base, base), (base, data, base), (base, base, data)):
        assert put_together(*three) is None


def test_random_ones_against_a_plain_model(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    blobs = [git(root, "hash-object", "-w", "--stdin", text=str(n)).strip() for n in range(3)]
    names = [f"{d}{n}" for d in ("", "p/", "p/q/") for n in range(4)]
    seed = random.Random(20261117)
    empty = staged(root, "git read-tree --empty")

    def made(start: Says, changes: int) -> tuple[Says, bytes]:
        says = dict(start)
        for _ in range(changes):
            name = seed.choice(names)
            says[name] = seed.choice(blobs)
            if seed.random() < 0.4:
                del says[name]
        rows = "".join(f"100644 {blob}\t{name}\n" for name, blob in says.items())
        index = root / ".git" / "made"
        index.write_bytes(empty)
        git(root, "update-index", "--index-info", index=index, text=rows)
        return says, index.read_bytes()

    ended: set[bool] = set()
    for _ in range(60):
        base, base_data = made({}, 12)
        one, one_data = made(base, 2)
        other, other_data = made(base, 2)
        wanted: Says | None = {}
        for name in {*base, *one, *other}:
            was, its, mine = base.get(name), one.get(name), other.get(name)
            if its != was and mine not in (was, its):
                wanted = None
                break
            taken = its if its != was else mine
            if taken is not None and wanted is not None:
                wanted[name] = taken
        together = put_together(base_data, one_data, other_data)
        ended.add(together is None)
        if wanted is None:
            assert together is None
            continue
        assert together is not None
        found = {name: says.split()[2] for name, says in listed(root, together).items()}
        assert found == wanted
    assert ended == {True, False}
