"""The gitignore language, against git itself."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from substrate.workspace.ignore_rules import IgnoreRules


def ours(content: bytes, path: bytes, *, is_dir: bool) -> int:
    """The line that decides, 0 if none: as git asks, the nearest excluded parent first."""
    rules = IgnoreRules(content)
    parts = path.split(b"/")
    for depth in range(1, len(parts)):
        rule = rules.deciding_rule(b"/".join(parts[:depth]), is_dir=True)
        if rule is not None and not rule.negated:
            return rule.number
    rule = rules.deciding_rule(path, is_dir=is_dir)
    return rule.number if rule is not None else 0


def theirs(repository: Path, content: bytes, paths: list[bytes]) -> list[int]:
    (repository / "rules").write_bytes(content)
    done = subprocess.run(
        ["git", "-c", "core.excludesFile=rules", "check-ignore", "--no-index"]
        + ["-v", "-n", "-z", "--stdin"],
        cwd=repository,
        input=b"".join(path + b"\0" for path in paths),
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    fields = done.stdout.split(b"\0")[:-1]
    return [int(fields[at] or 0) for at in range(1, len(fields), 4)]


TREE = [
    *("a", "b", "a/a", "a/b", "a/b/c", "a/b/c/d", "b/a", "ab", "a.log", "a/x.log", "b/a/b/c"),
    *("abc", "a-c", "[x]", "a]", "!a", "#a", "a ", "A", "-", "*", "a\\b", "c/", "c/a", "c/.h"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    for name in TREE:
        path = made / "t" / name
        if name.endswith("/") or any(other.startswith(name + "/") for other in TREE):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return made


def compare(repository: Path, content: bytes) -> None:
    top = os.fsencode(repository)
    paths = [os.fsencode("t/" + name.rstrip("/")) for name in TREE] + [b"t"]
    expected = theirs(repository, content, paths)
    assert len(expected) == len(paths)
    for path, number in zip(paths, expected, strict=True):
        is_dir = os.path.isdir(os.path.join(top, path))
        assert ours(content, path, is_dir=is_dir) == number, (content, path)


CASES = [
    b"*.log\n!a.log",
    b"*\n!/t/\n!/t/a",
    b"*\n!/t\n!/t/**",
    b"/t/a/",
    b"t/*\n!t/a/",
    b"a/b",
    b"/t/a/**",
    b"t/**/c",
    b"**/b/c",
    b"**/a",
    b"t/**b",
    b"a**",
    b"***/b",
    b"**",
    b"/**",
    b"/",
    b"//",
    b"t//a",
    b"!",
    b"!!a",
    b"\\!a",
    b"\\#a\n#a",
    b"a\\ \na ",
    b"[ab]",
    b"[!ab]",
    b"[^ab]",
    b"t/[^x]/b",
    b"t[/]a",
    b"[]a]*",
    b"a[]]",
    b"[a-c]b",
    b"[c-a]b",
    b"a[-]c",
    b"a[a-]c",
    b"\\[x\\]",
    b"[[]x]",
    b"[[:alpha:]]",
    b"[[:upper:][:punct:]]",
    b"[[:nope:]]",
    b"[[:alpha:]",
    b"[",
    b"a[",
    b"a\\",
    b"\\*",
    b"a\\\\b",
    b"?",
    b"t/?",
    b"a?c",
    b"c/.*",
    b"a/\n!a",
    b"*a*b*c*",
    b"t/*a*/*b*",
    b"t/a/",
    b"T",
    b"  a",
    b"a\t",
    b"[\\]]",
    b"[\\a-\\c]b",
]


@pytest.mark.parametrize("content", CASES, ids=[repr(case)[2:-1] for case in CASES])
def test_known_cases(repository: Path, content: bytes) -> None:
    compare(repository, content)


pieces = st.sampled_from(
    [
        b"a",
        b"b",
        b"c",
        b"t",
        b"/",
        b"/",
        b"*",
        b"**",
        b"?",
        b"[ab]",
        b"[!a]",
        b"[a-c]",
        b"\\",
        b".log",
    ]
    + [b"[", b"]", b"!", b"-", b" ", b"#", b"**/", b"/**", b"[[:alpha:]]"]
)
patterns = st.lists(pieces, min_size=1, max_size=6).map(b"".join)


@given(lines=st.lists(patterns, min_size=1, max_size=3))
@example(lines=[b"*", b"!/t/", b"!t/a"])
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_rules(repository: Path, lines: list[bytes]) -> None:
    # git cuts off the part before the first star and then takes "a**/" for "**/".
    assume(not any(re.search(rb"[^/*]\*\*+(/|$)", line) for line in lines))
    compare(repository, b"\n".join(lines))


def test_stars_beside_a_letter_are_plain_ones() -> None:
    rules = IgnoreRules(b"t/a**/b")
    assert rules.deciding_rule(b"t/ax/b", is_dir=False)
    assert not rules.deciding_rule(b"t/ab", is_dir=False)
    assert not rules.deciding_rule(b"t/ax/y/b", is_dir=False)


def test_a_hostile_pattern_does_not_keep_us_busy() -> None:
    rules = IgnoreRules(b"*a" * 60 + b"b\n" + b"**/a/" * 40 + b"b\n")
    name = b"a" * 255
    assert rules.deciding_rule(b"/".join([name] * 15), is_dir=False) is None
    assert [problem[2] for problem in rules.problems] == ["too many **"]
