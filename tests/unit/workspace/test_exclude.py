"""What history leaves out, and the words it says about it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.workspace.exclude import BUILT_IN, Exclusions
from tests.unit.workspace.naive import rel


def reason(rules: Exclusions, path: str, *, size: int = 0) -> str | None:
    """A trailing slash means a directory."""
    return rules.reason(rel(path.rstrip("/")), is_dir=path.endswith("/"), size=size)


def test_bulk_is_left_out_at_any_depth() -> None:
    rules = Exclusions()
    assert reason(rules, "node_modules/") == "built-in: node_modules/"
    assert reason(rules, "a/b/target/") == "built-in: target/"
    assert reason(rules, "a/node_modules/p/index.js") == "built-in: node_modules/"
    assert reason(rules, "src/") is None
    assert reason(rules, ".env") is None
    assert reason(rules, "build/") is None


def test_a_file_of_a_bulk_name_is_a_file() -> None:
    rules = Exclusions()
    for name in BUILT_IN:
        assert reason(rules, name) is None


def test_metadata_cannot_be_brought_back() -> None:
    rules = Exclusions(b"!.git/\n!.git\n!.substrate-git/\n!.ctx/\n!/.manifold\n!*\n")
    for path in (".git/", "sub/.git/", ".substrate-git/", "a/b/.substrate-git/", ".ctx/"):
        assert reason(rules, path) == "metadata", path
    assert reason(rules, ".manifold/") == "metadata"
    assert reason(rules, ".git/HEAD") == "metadata"
    assert reason(rules, ".substrate-git") == "metadata"


def test_near_metadata_is_recorded() -> None:
    rules = Exclusions()
    for path in (".git", "sub/.git", "sub/.ctx/", "sub/.manifold/", ".gitignore", ".GIT/"):
        assert reason(rules, path) is None, path


def test_the_users_file_wins() -> None:
    rules = Exclusions(b"# comment\n\n*.log\n!keep.log\nlogs/\n!node_modules/\n/only/here\n")
    assert reason(rules, "a/x.log") == ".substrateignore:3: *.log"
    assert reason(rules, "keep.log") is None
    assert reason(rules, "logs/") == ".substrateignore:5: logs/"
    assert reason(rules, "logs/keep.log") == ".substrateignore:5: logs/"
    assert reason(rules, "node_modules/") is None
    assert reason(rules, "dist/") == "built-in: dist/"
    assert reason(rules, "only/here") == ".substrateignore:7: /only/here"
    assert reason(rules, "a/only/here") is None


def test_the_cap() -> None:
    rules = Exclusions(b"!huge\n")
    assert reason(rules, "a", size=64 << 20) is None
    assert reason(rules, "a", size=(64 << 20) + 1) == "larger than 64 MiB"
    assert reason(rules, "huge", size=(64 << 20) + 1) == "larger than 64 MiB"
    assert reason(Exclusions(size_cap_bytes=1 << 30), "a", size=2 << 30) == "larger than 1 GiB"
    assert reason(rules, "d/", size=1 << 40) is None


def test_the_fingerprint_follows_the_rules(tmp_path: Path) -> None:
    prints = [
        Exclusions().fingerprint,
        Exclusions(b"*.log\n").fingerprint,
        Exclusions(b"*.log\n\n").fingerprint,
        Exclusions(size_cap_bytes=1).fingerprint,
    ]
    assert len(set(prints)) == 4
    assert Exclusions.load(tmp_path).fingerprint == prints[0]
    (tmp_path / ".substrateignore").write_bytes(b"*.log\n")
    assert Exclusions.load(tmp_path).fingerprint == prints[1]


def test_everything_is_described() -> None:
    said = Exclusions(b"*.log\n[bad\n!x\n").describe()
    assert ("metadata", ".git/") in said
    assert ("built-in", "node_modules/") in said
    assert (".substrateignore:1", "*.log") in said
    assert (".substrateignore:3", "!x") in said
    assert (".substrateignore:2", "ignored, a [ without its ]: [bad") in said
    assert ("size cap", "files larger than 64 MiB") in said


@pytest.mark.needs("posix")
@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "huge"])
def test_a_strange_rules_file_is_ignored_and_reported(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ".substrateignore"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        path.write_bytes(b"a\n" * (1 << 20))
    rules = Exclusions.load(tmp_path)
    assert reason(rules, "a") is None
    assert any(
        source == ".substrateignore" and "ignored" in rule for source, rule in rules.describe()
    )


@pytest.mark.needs("byte-names")
def test_rules_in_bytes() -> None:
    rules = Exclusions(b"\xff*\n\xef\xbb\xbf\n")
    assert rules.reason(rel(os.fsdecode(b"\xffabc")), is_dir=False, size=0) is not None
    assert rules.reason(rel(os.fsdecode(b"a\xff")), is_dir=False, size=0) is None


def test_a_byte_order_mark_is_no_part_of_the_first_rule() -> None:
    assert reason(Exclusions(b"\xef\xbb\xbf*.log\n"), "a.log") == ".substrateignore:1: *.log"
