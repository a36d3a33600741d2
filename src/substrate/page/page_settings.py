"""What the page remembers between starts: the theme, and which hunks were reviewed.

Kept here and not by the browser: its storage belongs to a port, which changes at each start.
"""

from __future__ import annotations

import json
from pathlib import Path

from substrate.errors import UsageError
from substrate.system.files import files

FILE = "ui.json"
THEMES = ("system", "light", "dark")
#: Of one workspace; the oldest marks go first.
_MOST_MARKS = 20_000
Document = dict[str, object]


class PageSettings:
    def __init__(self, home: Path, workspace: Path) -> None:
        self._path = home / FILE
        self._workspace = str(workspace)

    def document(self) -> Document:
        kept = self._kept()
        theme = kept.get("theme")
        return {
            "theme": theme if theme in THEMES else "system",
            "reviewed": self._marks(kept).get(self._workspace, {}),
        }

    def change(self, wanted: Document) -> Document:
        """`theme`, or `reviewed`: hunk ids, each with a time, or null to remove the mark."""
        kept = self._kept()
        theme, marks = wanted.get("theme"), wanted.get("reviewed")
        if theme is not None:
            if theme not in THEMES:
                raise UsageError("theme: not known", hint=f"one of {', '.join(THEMES)}")
            kept["theme"] = theme
        if marks is not None:
            kept["reviewed"] = self._with_marks(kept, marks)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_atomic(self._path, json.dumps(kept).encode(), durable=False)
        return self.document()

    def _with_marks(self, kept: Document, marks: object) -> Document:
        if not isinstance(marks, dict) or not all(
            name.isascii() and (at is None or (isinstance(at, str) and at.isascii()))
            for name, at in marks.items()
        ):
            raise UsageError("reviewed: ids with times", hint='{"h-…": "2026-01-31T08:00"}')
        own = self._marks(kept)
        mine = {**own.get(self._workspace, {}), **marks}
        left = [(name, at) for name, at in mine.items() if at is not None]
        return {**own, self._workspace: dict(left[-_MOST_MARKS:])}

    @staticmethod
    def _marks(kept: Document) -> dict[str, dict[str, object]]:
        found = kept.get("reviewed")
        return found if isinstance(found, dict) else {}

    def _kept(self) -> Document:
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
