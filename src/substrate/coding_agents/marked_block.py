"""The block of instructions in AGENTS.md, CLAUDE.md or GEMINI.md, between two marks."""

from __future__ import annotations

from substrate.coding_agents.text_insertions import Extended, newline_of

FIRST_LINE = "<!-- substrate: begin (`substrate disconnect` removes this block) -->"
LAST_LINE = "<!-- substrate: end -->"

_LINES = (
    "## Substrate records this session",
    "",
    "Shell commands and edits are recorded, and each can be taken back. From a shell:",
    "",
    "- Before a risky step: `substrate checkpoint -m 'before the migration'`.",
    "- To take back your own last command: `substrate undo`; look first with `--dry-run`.",
    "- To return to a checkpoint: `substrate rollback --checkpoint N`, also with `--dry-run`.",
    "- To see what a command changed: `substrate log`, then `substrate diff ID`.",
    "- To look before a command changes any file: `substrate --hold -c 'CMD'`, then",
    "  `substrate world diff ID`, and `substrate world apply ID` or `substrate world discard ID`.",
    "- Take back only your own work. Other edits in these files belong to the user: keep them.",
)


def instructions() -> str:
    """The block's text alone, for a file of our own."""
    return "\n".join(_LINES) + "\n"


def add(text: str) -> Extended:
    """`text` with the block at its end; the same text if it has the current block."""
    newline = newline_of(text)
    block = newline.join([FIRST_LINE, *_LINES, LAST_LINE]) + newline
    if block in text:
        return Extended(text)
    if text.strip("\ufeff"):
        block = (newline if text.endswith("\n") else newline * 2) + block
    return Extended(text).insert(len(text), block)


def has(text: str) -> bool:
    """Whether the current block is in `text`."""
    return not add(text).inserted


def remove(text: str) -> str:
    """`text` without the block, whatever its version."""
    start = text.find(FIRST_LINE)
    end = text.find(LAST_LINE, start) if start >= 0 else -1
    if end < 0:
        return text
    before, behind = text[:start], text[end + len(LAST_LINE) :]
    if before.endswith("\n"):  # the empty line that `add` puts before the block
        before = before[: -2 if before.endswith("\r\n") else -1]
    return before + behind.removeprefix("\r\n" if behind.startswith("\r\n") else "\n")
