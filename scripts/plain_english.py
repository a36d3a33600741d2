"""Archaic turns in comments, docstrings, tests' names and pages: which sentences, and their rate.

    python scripts/plain_english.py [PATH…]          the rate
    python scripts/plain_english.py --list [PATH…]   each such sentence, with its place

It reads Python, Markdown, C and shell scripts. A reader should never need a sentence twice.
CONTRIBUTING.md shows what to write instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Turns that a reader stumbles over. Write a named actor and a plain verb instead.
ARCHAIC = re.compile(
    r"""\b(?:
      who(?:ever|m|mever)?\b(?!\s*(?:wrote|are\s+you|am\s+i))
    | somebody | someone | nobody | no\s+one | anybody | none\s+of\s+them\s+is
    | (?:is|are|was|were|be)\s+told | tells?\s+of | told\s+of
    | stands? | stood | lies | lay(?=\s+(?:in|at|on|there|beside))
    | meanwhile | shall | thereby | therein | hence(?!forth) | thus | lest | likewise | anew
    | he | his | him | let\s+be | for\s+(?:it|he|they)\s+(?:is|was|are|has|have)
    | of\s+which | to\s+which | by\s+which | one\s+that\s+is | as\s+little\s+as | all\s+the\s+same
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
#: The same in the names of tests, which have no apostrophes: `nobodys`. A test says what is
#: *reported* or *shown*.
ARCHAIC_IN_NAMES = re.compile(
    r"\b(?:nobodys|somebodys|anybodys|told|tells?|said|speaks?|spoken|deeds?|meant)\b"
)
_CODE = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"")
_NAME = "test "
_END = re.compile(r"(?<=[.!?:;])\s+")


class Sentence(NamedTuple):
    path: Path
    line: int
    text: str

    @property
    def archaic(self) -> bool:
        is_name = self.text.startswith(_NAME)
        if is_name and ARCHAIC_IN_NAMES.search(self.text):
            return True
        return ARCHAIC.search(_CODE.sub("``", self.text)) is not None


def sentences(path: Path) -> Iterator[Sentence]:
    text = path.read_text("utf-8")
    for line, prose in _READERS.get(path.suffix, _shell_comments)(text):
        for part in _END.split(" ".join(prose.split())):
            if len(part.split()) > 1:
                yield Sentence(path, line, part)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node)
            if doc:
                for paragraph in doc.split("\n\n"):
                    yield node.body[0].lineno, paragraph
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.lineno, _NAME + node.name.removeprefix("test_").replace("_", " ")
    begun, block, last = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#: ")
            if words.startswith(("noqa", "type:", "fmt:", "pragma", "!")):
                continue
            if token.start[0] == last + 1:
                block += " " + words
            else:
                if block:
                    yield begun, block
                begun, block = token.start[0], words
            last = token.start[0]
    if block:
        yield begun, block


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and cells of tables, without code."""
    is_code, begun, block = False, 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        words = line.strip()
        if words.startswith(("```", "~~~")):
            is_code, words = not is_code, ""
        elif is_code or set(words) <= set("|-: "):
            words = ""
        is_row = words.startswith("|")
        if block and (is_row or _BEGINS.match(words)):
            yield begun, block
            block = ""
        if is_row:
            yield from ((number, cell) for cell in _CELL.split(_CODE.sub("``", words)))
        elif words:
            begun, block = (begun, f"{block} {words}") if block else (number, words.lstrip("#-*> "))


def _c_comments(text: str) -> Iterator[tuple[int, str]]:
    for found in _C_COMMENT.finditer(text):
        prose = re.sub(r"^\s*\*", "", found[0].strip("/* \n"), flags=re.MULTILINE)
        yield text.count("\n", 0, found.start()) + 1, prose


def _shell_comments(text: str) -> Iterator[tuple[int, str]]:
    begun, block = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        words = line.strip()
        if words.startswith("#") and not words.startswith(("#!", "# shellcheck")):
            begun, block = (begun, f"{block} {words[1:]}") if block else (number, words[1:])
        elif block:
            yield begun, block
            block = ""


#: The first characters of a new block, or nothing.
_BEGINS = re.compile(r"$|#|>|[-*] |[0-9]+\. ")
_CELL = re.compile(r"(?<!\\)\|")
_C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_READERS = {".py": _blocks, ".md": _markdown, ".c": _c_comments}


def files_in(places: list[str]) -> Iterator[Path]:
    for place in map(Path, places):
        if place.is_dir():
            found = (path for path in place.rglob("*") if path.suffix in _READERS)
            yield from sorted(found)
        else:
            yield place


def main(words: list[str]) -> int:
    places = [word for word in words if word != "--list"] or ["src"]
    found = [one for path in files_in(places) for one in sentences(path)]
    archaic = [one for one in found if one.archaic]
    if "--list" in words:
        for one in archaic:
            print(f"{one.path}:{one.line}: {one.text}")
    rate = 100 * len(archaic) / max(1, len(found))
    print(f"{len(archaic)} of {len(found)} sentences ({rate:.1f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
