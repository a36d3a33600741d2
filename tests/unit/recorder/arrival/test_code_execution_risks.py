"""Every file that makes other programs run code is named when a command writes it."""

from __future__ import annotations

import pytest

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.recorder.arrival.code_execution_risks import runs_code
from substrate.recorder.arrival.code_file_rules import ENDINGS, NAMES, PLACES
from substrate.recorder.user_git import git_settings
from substrate.recorder.user_git.git_settings import GitLinks
from substrate.workspace.apply.layer_source import LayerEntry

_NO_LINKS = GitLinks()
WRITTEN = Node(Kind.FILE, 0o644, b"\1" * 20)
#: The issue's own words, so that none of them gets lost from the tables.
ASKED_FOR = [
    "venv/lib/python3/site-packages/x.pth", "usercustomize.py", "lib/sitecustomize.py",
    ".cargo/config.toml", "sub/.cargo/config.toml", "mise.toml", "lefthook.yml", "opencode.json",
    ".opencode/plugin/a.js", ".kiro/hooks/a.kiro.hook", "my.code-workspace", ".pnpmfile.cjs",
    ".substrateignore", ".envrc", ".claude/settings.json", ".vscode/tasks.json",
]  # fmt: skip


def named(*paths: str, links: GitLinks = _NO_LINKS, config: bytes = b"") -> list[str]:
    entries = [LayerEntry(RelPath(path.encode()), ABSENT, WRITTEN) for path in paths]
    return [path.decode() for path in runs_code(entries, lambda _: (b"", config), links)]


@pytest.mark.parametrize("path", ASKED_FOR)
def test_what_was_asked_for(path: str) -> None:
    assert named(path) == [path]


@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_a_name_counts_at_any_depth(name: bytes) -> None:
    text = name.decode()
    assert named(text, f"a/b/{text}", f"a/{text}.txt", f"x{text}") == sorted([text, f"a/b/{text}"])


@pytest.mark.parametrize("ending", ENDINGS, ids=bytes.decode)
def test_an_ending_counts_at_any_depth(ending: bytes) -> None:
    text = ending.decode()
    assert named(f"x{text}", f"a/b/x{text}", f"a/x{text}.txt") == sorted(
        [f"x{text}", f"a/b/x{text}"]
    )


@pytest.mark.parametrize("place", PLACES, ids=bytes.decode)
def test_a_place_counts_with_what_is_in_it(place: bytes) -> None:
    text = place.decode()
    assert text.startswith(".")  # else the quick way past ordinary paths would miss it
    found = [text, f"{text}/inner", f"a/{text}", f"a/{text}/b"]
    assert named(*found, f"{text}x", f"a/x{text}") == sorted(found)


def test_ordinary_files_and_removed_ones_are_not_named() -> None:
    assert (
        named("a.py", "src/config.toml", "hooks/pre-commit", ".github/x", "pth", "a.pth.txt") == []
    )
    gone = LayerEntry(RelPath(b".envrc"), WRITTEN, ABSENT)
    assert runs_code([gone], lambda _: (b"", b"")) == []


def test_a_worktree_s_own_configuration() -> None:
    config = b"[core]\n\tfsmonitor = ./x\n"
    assert named(".git/config.worktree", config=config) == [".git/config.worktree"]
    assert named(".git/config.worktree", config=b"[core]\n\tbare = false\n") == []


def links(config: bytes, *, own: bytes = b"", files: dict[bytes, bytes] | None = None) -> GitLinks:
    files = {b".git/config": config, **(files or {})}
    return git_settings.links(b"/w/p", b"/home/u", (own,), lambda path: (files.get(path, b""), b""))


@pytest.mark.parametrize(
    ("config", "own", "expected"),
    [
        (b"[core]\n\thooksPath = .githooks\n", b"", b".githooks/"),
        (b'[core]\n\tHooksPath = "./tools/hooks" # ours\n', b"", b"tools/hooks/"),
        (b"[core]\n\thookspath = /w/p/h\n", b"", b"h/"),
        (b"", b"[core]\n\thooksPath = .githooks\n", b".githooks/"),
    ],
)
def test_the_directory_that_hooks_path_names(config: bytes, own: bytes, expected: bytes) -> None:
    found = links(config, own=own)
    assert found.hooks == (expected,)
    hook = f"{expected.decode()}pre-commit"
    assert named(hook, "other/pre-commit", links=found) == [hook]


def test_hooks_elsewhere_are_no_path_of_the_workspace() -> None:
    assert links(b"[core]\n\thooksPath = /usr/share/hooks\n") == _NO_LINKS
    assert links(b"[core]\n\thooksPath = ~/hooks\n") == _NO_LINKS
    assert links(b"[core]\n\tbare = false\n") == _NO_LINKS


def test_included_configurations_count_as_the_repository_s() -> None:
    files = {b"team.gitconfig": b"[include]\n\tpath = deep/more\n"}
    config = b'[include]\n\tpath = ../team.gitconfig\n[includeIf "onbranch:x"]\n\tpath = only-x\n'
    found = links(config, files=files)
    assert found.included == {b"team.gitconfig", b"deep/more", b".git/only-x"}
    program = b"[alias]\n\tst = !./x\n"
    assert named("team.gitconfig", "deep/more", links=found, config=program) == [
        "deep/more", "team.gitconfig",
    ]  # fmt: skip
    assert named("team.gitconfig", links=found, config=b"[user]\n\tname = x\n") == []
