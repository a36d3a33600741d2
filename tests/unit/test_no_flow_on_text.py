"""No code decides on English text: a message that is worded anew must change no behaviour.

Found are comparisons (`==`, `in`, `startswith`, …) with a text of two words or more, and searches
for a word in something that is named like a message. Texts of other programs are listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "substrate"
_CALLS = frozenset({"startswith", "endswith", "find", "index", "partition", "removeprefix"})
_SEVERAL_WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,}|[a-z]{3,} $|^ [a-z]{3,}")
_WORD = re.compile(r"[a-z]{4,}")
#: Names of values that hold words for people.
_MESSAGES = frozenset({"reason", "why", "what", "message", "note", "said", "held", "hint", "about"})
#: What other programs and formats say, by module; it is not ours to change.
FOREIGN = {
    "cli/frame/output.py": {"diff --git "},
    "coding_agents/claude_transcript.py": {"*"},  # how results begin
    "coding_agents/codex.py": {"result"},  # a field of JSON
    "coding_agents/marked_block.py": {"*"},  # the block's own marks in the user's file
    "graph/grammars/java.py": {"static "},
    "graph/index/manifests.py": {"parent "},
    "graph/parse/languages.py": {"do not edit"},
    "history/store/old_hold_texts.py": {"*"},  # sentences of older versions
    "history/store/schema.py": {"disk is full", "unable to open"},
    "mcp_server/early_answers.py": {"method", "result"},  # fields of JSON-RPC
    "objects/git/git_command.py": {"git version ", "dangling "},
    "objects/git/repository.py": {" blob "},
    "objects/git/worktree_git.py": {" ambiguous"},
    "packs/tools/external_tools.py": {"error"},  # fields of JSON, here and in the next
    "packs/transcripts/codex.py": {"output", "content"},
    "recorder/replay/pack_replay.py": {"substrate "},  # the field `runtime` of a pack
    "rewrite/execute/attempt.py": {"branch ", "worktree "},
    "system/process/rlimit_check.py": {"start new thread"},
}


def _texts(node: ast.expr, constants: dict[str, set[str]]) -> set[str]:
    """The literals in an expression, also those of the constants that it names."""
    out: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str | bytes):
            value = part.value
            out.add(value if isinstance(value, str) else value.decode("latin-1"))
        name = part.id if isinstance(part, ast.Name) else ""
        if isinstance(part, ast.Attribute) and ast.unparse(part.value).islower():  # of a module
            name = part.attr
        if name.isupper():
            out |= constants.get(name, set())
    return out


def _constants(tree: ast.Module) -> dict[str, set[str]]:
    """Texts and tuples of texts at the top of a module; `"a b".split()` is a list of words."""
    out: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    out[target.id] = _texts(node.value, {})
    return out


def _compared(node: ast.AST) -> tuple[list[ast.expr], list[ast.expr]]:
    """Both sides of a comparison: what is looked at, and what it is compared with."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _CALLS:
            return [node.func.value], node.args
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return sides, sides
    return [], []


def _is_message(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in _MESSAGES


def decisions_on_text(text: str, everywhere: dict[str, set[str]]) -> Iterator[tuple[int, str]]:
    """`everywhere`: public constants of all modules."""
    tree = ast.parse(text)
    constants = {**everywhere, **_constants(tree)}
    for node in ast.walk(tree):
        looked_at, others = _compared(node)
        is_search = isinstance(node, ast.Call) or (
            isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
        )
        is_message = is_search and any(map(_is_message, looked_at))
        for other in others:
            if isinstance(other, ast.Call):
                continue  # the result of a call, not a text
            for found in _texts(other, constants):
                if _SEVERAL_WORDS.search(found) or (is_message and _WORD.fullmatch(found)):
                    yield getattr(node, "lineno", 0), found


def _everywhere() -> dict[str, set[str]]:
    """Public constants by name, without names that several modules use."""
    out: dict[str, list[set[str]]] = {}
    for path in SOURCE.rglob("*.py"):
        for name, texts in _constants(ast.parse(path.read_text("utf-8"))).items():
            if not name.startswith("_"):
                out.setdefault(name, []).append(texts)
    return {name: found[0] for name, found in out.items() if len(found) == 1}


def test_no_code_decides_on_english_text() -> None:
    everywhere = _everywhere()
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        foreign = FOREIGN.get(name, set())
        for line, text in decisions_on_text(path.read_text("utf-8"), everywhere):
            if text not in foreign and "*" not in foreign:
                found.append(f"{name}:{line}: {text!r}")
    assert found == []


def test_the_list_of_foreign_texts_is_current() -> None:
    everywhere = _everywhere()
    for name, texts in FOREIGN.items():
        found = {text for _, text in decisions_on_text((SOURCE / name).read_text(), everywhere)}
        assert found >= texts - {"*"} and found, name


def test_such_decisions_are_found() -> None:
    sample = """
LEFT = "some of it could not be applied"
def f(reason, path, error, LEFTOVER):
    if reason.startswith("your repository was changed"): return 1
    if LEFT in error.message or reason == "changed meanwhile": return 2
    if "lines" in reason: return 3
    if path.startswith("refs/heads/") or path == "index": return 4
    if reason.endswith(LEFTOVER): return 5
"""
    found = {text for _, text in decisions_on_text(sample, {"LEFTOVER": {"leftover"}})}
    assert found == {
        "your repository was changed", "some of it could not be applied", "changed meanwhile",
        "lines", "leftover",
    }  # fmt: skip
