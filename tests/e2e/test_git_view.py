"""Plain git reads our history, however nasty it is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.unit.history.workbench import tree

#: What git refuses in a tree, or reads as instructions.
FORBIDDEN_NAMES = (".GIT", ".Git", "git~1", "GIT~1", ".git.", ".git ", ".g\u200cit", "a\\.git")
HOSTILE_MODULES = (
    '[submodule "../../evil"]\n\tpath = ../../evil\n\turl = -uexec:sh\n\tupdate = !touch pwned\n'
)
HOSTILE_ATTRIBUTES = "* filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16\n"


@pytest.fixture
def nasty(tmp_path: Path) -> Program:
    """A project in which each command leaves something that git finds hard."""
    root = tmp_path / "project"
    root.mkdir()
    program = Program(root)
    (root / "plain").write_bytes(b"1\r\n2\r\n")
    program.sh("chmod 600 plain; echo w > wide; chmod 777 wide; echo s > suid; chmod 6711 suid")
    program.sh("ln -s /etc/passwd link; ln -s nowhere broken; mkdir -p empty/inside; mkdir tight")
    program.sh("chmod 700 tight; echo x > tight/x; chmod 500 empty/inside")
    for name in FORBIDDEN_NAMES:
        (root / name).write_text(f"content of {name!r}\n")
    (root / "dir").mkdir()
    (root / "dir/.GIT").mkdir()
    (root / "dir/.GIT/config").write_text("[core]\n\tfsmonitor = touch pwned\n")
    (root / ".gitmodules").write_text(HOSTILE_MODULES)
    (root / ".gitattributes").write_text(HOSTILE_ATTRIBUTES)
    os.mkfifo(root / "fifo")
    program.sh("true")
    subprocess.run(["git", "init", "-q", "nested"], cwd=root, check=True)
    (root / "nested/file").write_bytes(b"nested\n")
    (root / "nested/.git/hooks/post-checkout").write_text("#!/bin/sh\ntouch pwned\n")
    program.sh("rm plain; mkdir plain; echo now > plain/file; rm link; echo file > link")
    program.sh("rm -r tight; printf 'gitdir: /nowhere\\n' > .git")
    program.sh("rm .git")
    program("checkpoint").went_well()
    program("undo").went_well()
    return program


def git(program: Program, *words: str) -> subprocess.CompletedProcess[bytes]:
    """As a user types it, from the workspace."""
    return subprocess.run(
        ["git", "--git-dir=.substrate-git/.git", "--work-tree=.", *words],
        cwd=program.cwd, capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.needs("byte-names", "posix")
def test_log_and_fsck(nasty: Program) -> None:
    if "user.x" in _with_xattr(nasty.cwd / "wide"):
        nasty.sh("true")
    for _ in range(2):
        done = git(nasty, "fsck", "--strict", "--full")
        assert done.returncode == 0, done.stderr.decode()
        assert not [line for line in done.stderr.splitlines() if b"error" in line]
        shown = git(nasty, "log", "--stat")
        assert shown.returncode == 0, shown.stderr.decode()
        assert b"plain/file" in shown.stdout
        nasty("compact", "--keep-checkpoints", "0").went_well()
    assert not (nasty.cwd / "pwned").exists()


@pytest.mark.needs("byte-names", "posix")
def test_every_commit_of_the_log_is_an_entry(nasty: Program) -> None:
    shown = git(nasty, "log", "--format=%H", "--first-parent", "main").stdout.decode().split()
    entries = [e["substrate_git_commit"] for e in nasty.json("log", "--limit", "0")["commands"]]
    assert shown == [commit for commit in entries if commit]
    subjects = git(nasty, "log", "--format=%s").stdout.decode().splitlines()
    assert subjects[-1].endswith("baseline")
    assert any(s == "cmd: external-changes" for s in subjects)
    tags = git(nasty, "tag", "--list", "cp/task/*").stdout.split()
    assert len(tags) == 1


@pytest.mark.needs("byte-names", "posix")
def test_the_tree_of_the_tip_is_the_workspace(nasty: Program) -> None:
    listed = git(nasty, "ls-tree", "-r", "-z", "main").stdout.split(b"\0")
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for line in filter(None, listed):
        meta, name = line.split(b"\t", 1)
        mode, _, oid = meta.split(b" ")
        found[name] = (mode, oid)
    for name, (kind, bits, content) in tree(nasty.cwd).items():
        hidden = any(part.decode() in FORBIDDEN_NAMES for part in name.split(b"/"))
        in_git = b".git" in name.split(b"/")
        if kind in ("dir",) or kind.startswith("special") or hidden or in_git:
            assert name not in found
            continue
        wanted = {"link": b"120000", "file": b"100755" if bits & 0o100 else b"100644"}[kind]
        assert found[name][0] == wanted, name
        shown = git(nasty, "cat-file", "blob", found[name][1].decode())
        assert shown.stdout == content, name


@pytest.mark.needs("byte-names", "posix")
def test_what_git_cannot_say_comes_back_even_so(nasty: Program) -> None:
    root = nasty.cwd
    before = tree(root)
    names = " ".join(f"'./{name}'" for name in FORBIDDEN_NAMES)
    nasty.sh(f"rm -r {names} dir/.GIT .gitmodules .gitattributes suid wide; chmod 755 empty/inside")
    nasty("undo").went_well()
    assert tree(root) == before
    nasty("compact", "--keep-checkpoints", "0", "--keep-sessions", "0").went_well()
    nasty.sh(f"rm -r {names} dir suid wide empty")
    nasty("undo").went_well()
    assert tree(root) == before


@pytest.mark.needs("byte-names", "posix")
def test_a_clone_is_an_ordinary_repository(nasty: Program, tmp_path: Path) -> None:
    store = nasty.cwd / ".substrate-git/.git"
    copy = tmp_path / "clone"
    done = subprocess.run(
        ["git", "clone", "-q", "--no-checkout", f"file://{store}", str(copy)],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    # Without our configuration git complains of the hostile .gitmodules, and of nothing else.
    done = subprocess.run(["git", "fsck"], cwd=copy, check=False, capture_output=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith(b"error")]
    assert all(b"gitmodules" in line for line in errors), errors
    count = ["rev-list", "--count", "HEAD"]
    cloned = subprocess.run(["git", *count], cwd=copy, check=True, capture_output=True).stdout
    assert cloned == git(nasty, *count).stdout


def _with_xattr(path: Path) -> list[str]:
    try:
        os.setxattr(path, "user.x", b"\0\xff")
        return os.listxattr(path)
    except (OSError, AttributeError):
        return []
