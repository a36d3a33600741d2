"""What a command removed or overwrote inside a `.git` comes back with `undo --with-git`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash.oracle import Cli, all_bytes

pytestmark = pytest.mark.needs("world-overlay")

LOSE = "git reset -q --hard HEAD~1 && git reflog expire --expire=now --all && git gc -q --prune=now"


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, check=True)
    return done.stdout.decode()


def repository(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    for number in (1, 2):
        (root / "file").write_text(f"{number}\n")
        git(root, "add", "file")
        git(root, "commit", "-qm", str(number))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    repository(tmp_path / "project")
    cli = Cli(tmp_path / "project", home)
    cli.ok("-c", "true")  # the first use adds to .git/info/exclude
    return cli


def test_a_branch_whose_objects_were_pruned(cli: Cli) -> None:
    root = cli.workspace
    lost = git(root, "rev-parse", "HEAD").strip()
    cli.ok("-c", LOSE)
    gone = subprocess.run(["git", "-C", str(root), "cat-file", "-e", lost], check=False)
    assert gone.returncode != 0, "the premise: nothing but the trash has it"
    cli.ok("undo", "--with-git")
    assert git(root, "rev-parse", "main").strip() == lost
    assert git(root, "fsck", "--strict") == ""
    assert (root / "file").read_text() == "2\n"
    assert git(root, "log", "-g", "--format=%gs", "main").splitlines()[-1].startswith("commit")


def test_a_prune_alone(cli: Cli) -> None:
    root = cli.workspace
    (root / "note").write_text("unreachable\n")
    loose = git(root, "hash-object", "-w", "note").strip()
    (root / "note").unlink()
    cli.ok("-c", "git prune --expire=now")
    refused = cli("undo")
    assert refused.returncode == 5 and b"--with-git" in refused.stderr
    cli.ok("undo", "--with-git")
    assert git(root, "cat-file", "-p", loose) == "unreachable\n"


def test_a_config_that_was_overwritten_and_a_hook_that_was_made(cli: Cli) -> None:
    root = cli.workspace
    config = (root / ".git/config").read_bytes()
    cli.ok("-c", "echo '[user]' > .git/config; echo exit 1 > .git/hooks/pre-commit; echo x > new")
    cli.ok("undo", "--with-git")
    assert (root / ".git/config").read_bytes() == config
    assert not (root / ".git/hooks/pre-commit").exists() and not (root / "new").exists()


def test_a_config_alone_is_named_and_can_be_taken_back_as_printed(cli: Cli) -> None:
    """It said "nothing to change", and no command to reverse it."""
    config = cli.workspace / ".git/config"
    before = config.read_bytes()
    cli.ok("-c", "echo '[user]' > .git/config")
    done = cli("undo", "--with-git")
    first, *_, last = done.stdout.decode().splitlines()
    assert first.startswith("undid c-") and "> .git/config" in first
    assert config.read_bytes() == before
    cli.ok(*last.removeprefix("to take this back: substrate ").split())
    assert config.read_bytes() == b"[user]\n"


def test_a_config_that_was_changed_since_stays(cli: Cli) -> None:
    root = cli.workspace
    config = (root / ".git/config").read_bytes()
    cli.ok("-c", "git config a.b 1; echo x > new")
    name = cli.ok("log", "--limit", "1").split()[-1]
    git(root, "config", "c.d", "2")
    done = cli("undo", "--with-git")
    assert done.returncode == 1, name
    assert b".git/config stays as it is: it was changed since" in done.stderr
    command = done.stderr.decode().partition("recover restore ")[2].partition("`")[0].split()
    cli.ok("recover", "restore", *command)
    assert (root / ".git/config").read_bytes() == config


@pytest.mark.parametrize("then", ["true", "sleep 1.1"])
def test_a_nested_repository_goes_back_with_it_or_is_named(cli: Cli, then: str) -> None:
    """A second later its index gets the files' new change times when all has arrived."""
    root = cli.workspace
    repository(root / "nested")
    lost = git(root / "nested", "rev-parse", "HEAD").strip()
    cli.ok("-c", f"cd nested && {LOSE} && {then}")
    named = cli("undo")
    assert named.returncode == 0 and b"nested/.git" in named.stderr
    assert (root / "nested/file").read_text() == "2\n"
    cli.ok("redo")
    cli.ok("undo", "--with-git")
    assert git(root / "nested", "rev-parse", "main").strip() == lost
    assert git(root / "nested", "fsck", "--strict") == ""
    assert git(root / "nested", "status", "--porcelain") == ""


def test_a_cleared_stash(cli: Cli) -> None:
    root = cli.workspace
    for number in "34":
        (root / "file").write_text(number)
        git(root, "stash", "-q")
    cli.ok("-c", "git stash clear")
    cli.ok("undo", "--with-git")
    assert len(git(root, "stash", "list").splitlines()) == 2
    assert git(root, "show", "stash@{1}:file") == "3"


def in_git(root: Path) -> dict[str, object]:
    """What git and its users see: every ref, what the refs reach, and every file but objects,
    reflogs and the places where refs are written."""
    files = all_bytes(root / ".git")
    apart = ("objects/", "logs/", "refs/", "packed-refs", "index", "ORIG_HEAD", "COMMIT_")
    return {
        "refs": git(root, "for-each-ref"),
        "HEAD": git(root, "rev-parse", "HEAD"),
        "reached": sorted(git(root, "rev-list", "--objects", "--all").splitlines()),
        "files": {name: seen for name, seen in files.items() if not name.startswith(apart)},
    }


def there_and_back(cli: Cli, command: str, *others: Path) -> list[str]:
    """Undo, redo, undo and redo again, all with git; what the first redo said."""
    places = (cli.workspace, *others)
    before = [in_git(one) for one in places]
    cli.ok("-c", command)
    after = [in_git(one) for one in places]
    assert before != after, "the premise: the command did something to the repository"
    said: list[str] = []
    for _ in range(2):
        cli.ok("undo", "--with-git")
        assert [in_git(one) for one in places] == before
        redone = cli("redo", "--with-git")
        assert redone.returncode == 0, redone.stderr.decode()
        assert [in_git(one) for one in places] == after
        said = said or redone.stderr.decode().splitlines()
    return said


@pytest.mark.parametrize(
    "command",
    [
        "git config a.b 1; echo x > new",
        "git config a.b 1",
        "rm .git/description; echo exit 1 > .git/hooks/pre-commit; echo x > new",
        "rm -rf .git/hooks .git/info",
        "git remote add o x; git checkout -qb b; git commit -q --allow-empty -m 3",
        LOSE,
    ],
)  # fmt: skip
def test_a_redo_ends_where_the_undo_began(cli: Cli, command: str) -> None:
    there_and_back(cli, command)


def test_the_same_of_a_nested_repository(cli: Cli) -> None:
    nested = cli.workspace / "nested"
    repository(nested)
    cli.ok("-c", f"cd nested && git pack-refs --all && {LOSE} && git config a.b 1")
    after = in_git(nested)
    cli.ok("undo", "--with-git")
    cli.ok("redo", "--with-git")
    assert in_git(nested) == after


def test_a_redo_says_which_objects_stay(cli: Cli) -> None:
    said = there_and_back(cli, LOSE)
    assert any("of git objects that the undo brought back stay" in line for line in said)


def test_two_commands_that_changed_one_file(cli: Cli) -> None:
    root = cli.workspace
    cli.ok("-c", "git config a.b 1; echo 1 > one")
    first = in_git(root)
    cli.ok("-c", "git config a.b 2; git config c.d 2; echo 2 > two")
    second = in_git(root)
    cli.ok("undo", "--with-git")
    assert in_git(root) == first
    cli.ok("undo", "--with-git")
    assert "[a]" not in (root / ".git/config").read_text()
    cli.ok("redo", "--with-git")
    cli.ok("redo", "--with-git")
    assert in_git(root) == second


def test_a_whole_session_and_its_redo(cli: Cli) -> None:
    root = cli.workspace
    before = in_git(root)
    cli.ok("-c", "git config a.b 1; rm .git/description; echo 1 > one")
    cli.ok("-c", "git config a.b 2; echo 2 > .git/description; echo 2 > two")
    after = in_git(root)
    session = cli.log()[0]["session_id"]
    cli.ok("undo", "--whole-session", str(session), "--with-git")
    assert in_git(root) == before
    cli.ok("redo", "--with-git")
    assert in_git(root) == after


def test_a_change_between_two_commands_is_not_undone_with_the_first(cli: Cli) -> None:
    root = cli.workspace
    cli.ok("-c", "git config a.b 1; echo 1 > one")
    git(root, "config", "by.user", "1")
    cli.ok("-c", "git config a.b 2; echo 2 > two")
    cli.ok("undo", "--with-git")
    done = cli("undo", "--with-git")
    assert done.returncode == 1 and b".git/config stays as it is" in done.stderr
    assert git(root, "config", "by.user") == "1\n"


def test_a_repository_cloned_after_the_last_command(cli: Cli) -> None:
    """History does not know the directory, and the command changes files of its `.git`."""
    repository(cli.workspace / "cloned")
    cli.ok("-c", "cd cloned && git reset -q --hard HEAD~1")
    assert (cli.workspace / "cloned/file").read_text() == "1\n"
    assert [entry["kind"] for entry in cli.log()[:2]] == ["command", "external"]
    cli.ok("undo", "--with-git")
    assert (cli.workspace / "cloned/file").read_text() == "2\n"
    assert git(cli.workspace / "cloned", "status", "--porcelain") == ""


@pytest.mark.needs("strace")
@pytest.mark.parametrize("number", [1, 3, 7, 12, 15])
def test_a_kill_among_the_files_leaves_nothing_that_redo_does_not_know(
    cli: Cli, number: int
) -> None:
    root = cli.workspace
    cli.ok("-c", "rm .git/description .git/hooks/*.sample; git commit -q --allow-empty -m 3; > new")
    after = in_git(root)
    subprocess.run(
        ["strace", "-o", "/dev/null", "-e", "trace=renameat2", "-e",
         f"inject=renameat2:signal=KILL:when={number}", *cli.argv("undo", "--with-git")],
        cwd=root, env=cli.environment, capture_output=True, check=False,
    )  # fmt: skip
    cli.ok("fsck", "--repair")
    if any("undone" in str(entry.get("marks")) for entry in cli.log()):
        cli.ok("redo", "--with-git")
    assert in_git(root) == after
    assert (root / "new").exists()


@pytest.mark.parametrize("after", ["true", "git init -q -b main", "rm file; echo n > new"])
def test_a_whole_repository_comes_back_with_its_refs(cli: Cli, after: str) -> None:
    root = cli.workspace
    refs, head = git(root, "for-each-ref"), git(root, "rev-parse", "HEAD")
    cli.ok("-c", f"rm -rf .git; {after}")
    said = cli("undo", "--with-git")
    assert said.returncode == 0, said.stderr
    assert b"no git repository" not in said.stderr and b"no ref" not in said.stderr
    assert (git(root, "for-each-ref"), git(root, "rev-parse", "HEAD")) == (refs, head)
    assert (root / "file").read_text() == "2\n" and not (root / "new").exists()
