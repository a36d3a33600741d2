"""What the user wants forgotten: one path, or one piece of text wherever it occurs."""

from __future__ import annotations

import json
from typing import NamedTuple

from substrate.model.paths import RelPath, is_within

#: What replaces a forgotten text.
PLACEHOLDER = "[forgotten]"
#: A shorter text would match almost everywhere.
SHORTEST_SECRET = 4


class ForgetRule(NamedTuple):
    """Exactly one of the two fields is set."""

    path: RelPath | None = None
    secret: str | None = None

    @property
    def needle(self) -> bytes:
        """The secret as bytes; empty for a path."""
        return (self.secret or "").encode("utf-8", "surrogateescape")

    def covers(self, path: bytes) -> bool:
        """Whether `path` is the forgotten path or below it."""
        return self.path is not None and is_within(RelPath(path), self.path)

    def scrubbed(self, data: bytes) -> bytes:
        """`data` with every occurrence of the secret replaced by the placeholder."""
        return data.replace(self.needle, PLACEHOLDER.encode()) if self.needle else data

    def scrubbed_pairs(
        self, pairs: tuple[tuple[bytes, bytes], ...]
    ) -> tuple[tuple[bytes, bytes], ...]:
        """Extended attributes with the secret replaced in their values; names are kept."""
        return tuple((name, self.scrubbed(value)) for name, value in pairs)

    def is_in_text(self, text: str) -> bool:
        return bool(self.secret) and str(self.secret) in text

    def scrubbed_text(self, text: str) -> str:
        return text.replace(self.secret, PLACEHOLDER) if self.secret else text

    def is_in_json(self, data: bytes) -> bool:
        """Whether JSON bytes may hold the secret, however its characters are escaped."""
        return bool(self.secret) and any(form in data for form in self._json_forms())

    def _json_forms(self) -> set[bytes]:
        return {
            json.dumps(self.secret, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
            for ascii_only in (True, False)
        }

    def scrubbed_json(self, value: object) -> object:
        """A JSON value with the secret replaced in every string, keys included."""
        if isinstance(value, str):
            return self.scrubbed_text(value)
        if isinstance(value, list):
            return [self.scrubbed_json(item) for item in value]
        if isinstance(value, dict):
            return {self.scrubbed_text(k): self.scrubbed_json(v) for k, v in value.items()}
        return value
