"""A context never exceeds its cap, says why each piece is in, and is the same every time."""

from __future__ import annotations

import pytest

from substrate.graph.index.snapshot import Snapshot
from substrate.graph.query.budget import Context, count_tokens, fill
from substrate.graph.query.relevance import rank, words_of
from tests.unit.graph.conftest import Content, Project

FILES: dict[str, Content] = {
    "net/upload.py": '''\
from net.retry import backoff


def upload_file(path):
    """Send one file to the server."""
    for attempt in range(3):
        wait(backoff(attempt))
        print("sending", path, "<|endoftext|>", attempt)


def wait(seconds):
    return seconds
''',
    "net/retry.py": "def backoff(attempt):\n    return 2 ** attempt\n",
    "ui/colors.py": "def blend(a, b):\n    return a + b\n\n\ndef darker(a):\n    return a / 2\n",
    "big.py": "def upload_everything():\n" + "".join(f"    x{n} = {n}\n" for n in range(400)),
}
TASK = "retry a failed upload of a file"


@pytest.fixture
def snapshot(project: Project) -> Snapshot:
    commit = project.commit(FILES)
    return Snapshot(commit, project.index())


def made(snapshot: Snapshot, cap: int, task: str = TASK) -> Context:
    def read_lines(path: bytes) -> list[str]:
        content = FILES[path.decode()]
        assert isinstance(content, str)
        return content.splitlines(keepends=True)

    return fill(snapshot, task, cap, read_lines)


@pytest.mark.parametrize("cap", [0, 1, 20, 40, 75, 120, 200, 400, 1000, 100_000])
def test_the_cap_is_never_exceeded(snapshot: Snapshot, cap: int) -> None:
    context = made(snapshot, cap)
    assert context.tokens == count_tokens(context.text) <= cap
    assert context.text == made(snapshot, cap).text


def test_symbols_named_in_the_task_come_with_what_they_use(snapshot: Snapshot) -> None:
    context = made(snapshot, 300)
    why = {piece.symbol: piece.why for piece in context.pieces}
    assert next(iter(why)) == "net.upload.upload_file"
    assert why["net.upload.upload_file"] == "mentions file, upload"
    assert "net.retry.backoff" in why
    assert why["net.upload.wait"].startswith(("mentions upload", "used with"))
    assert not any(symbol.startswith("ui.") for symbol in why)


def test_a_piece_too_large_is_shown_by_its_signature(snapshot: Snapshot) -> None:
    context = made(snapshot, 400)
    forms = {piece.symbol: piece.form for piece in context.pieces}
    assert forms["big.upload_everything"] == "signature"
    assert forms["net.upload.upload_file"] == "whole"


def test_a_task_that_no_file_mentions_has_no_context(snapshot: Snapshot) -> None:
    assert made(snapshot, 500, "quaternion zebra").pieces == []


def test_special_tokens_in_the_code_are_just_text() -> None:
    assert count_tokens("<|endoftext|>") > 1


def test_words_are_found_inside_names() -> None:
    assert set(words_of("readHTTPReply_v2 retries retried")) >= {"read", "http", "repl", "v2"}
    assert words_of("retries") == words_of("retry") == words_of("retried")


def test_ranking_follows_calls(snapshot: Snapshot) -> None:
    order = [one.symbol.fqname for one in rank(snapshot, "upload")]
    assert order.index("net.upload.upload_file") < order.index("net.retry.backoff")
    assert "ui.colors.blend" not in order
