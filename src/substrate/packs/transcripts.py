"""Agents' transcripts, by the agent's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from substrate.errors import UsageError
from substrate.packs.transcript_lines import Transcript
from substrate.packs.transcripts_claude import read_claude
from substrate.packs.transcripts_codex import read_codex
from substrate.packs.transcripts_gemini import read_gemini

READERS: Mapping[str, Callable[[Iterable[bytes]], Transcript]] = {
    "claude-code": read_claude,
    "codex": read_codex,
    "gemini": read_gemini,
}


def read_transcript(agent: str, lines: Iterable[bytes]) -> Transcript:
    """What an agent wrote down, as an execution log. The same bytes give the same log."""
    reader = READERS.get(agent)
    if reader is None:
        raise UsageError(
            f"no transcripts of {agent!r} are known", hint=f"--from takes {', '.join(READERS)}"
        )
    return reader(lines)
