"""Check JSON objects from people or programs field by field; every problem names its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from substrate.packs.format.canonical import canonical_bytes
from substrate.packs.format.log_items import Item, Origin, Problem, kind, unknown_field
from substrate.packs.format.manifest import NO_TIME
from substrate.packs.format.manifest_reader import instant_ns
from substrate.packs.format.spill_file import Spilled

#: The fields that can give a content, in the same order in both tuples. Logs use the first three,
#: drafts of a manifest also the last.
CONTENT = ("content", "content_b64", "path", "content_ref")
OUTPUT = ("output", "output_b64", "output_path", "output_ref")
_KINDS: tuple[Literal["text", "base64", "file", "ref"], ...] = ("text", "base64", "file", "ref")


class Source(NamedTuple):
    """Where a content's bytes come from: a text, base64, a file, or the store."""

    kind: Literal["text", "base64", "file", "ref"]
    value: str | Spilled
    place: str
    origin: Origin


def whole_text(place: str, value: object, origin: Origin, problems: list[Problem]) -> Source | None:
    """A text, or an object that says where the text is."""
    if isinstance(value, dict):
        found = Fields(Item(place, value, origin), problems)
        found.only(*CONTENT[:3])
        return found.source(CONTENT[:3])
    if isinstance(value, str):
        try:
            canonical_bytes(value)
        except ValueError as error:
            problems.append(Problem(place, f"{error}; use content_b64", origin))
    elif not isinstance(value, Spilled):
        problems.append(Problem(place, f"a text was expected, not {kind(value)}", origin))
        return None
    return Source("text", value, place, origin)


class Fields:
    """One JSON object; its errors are added to `problems`."""

    def __init__(self, item: Item, problems: list[Problem]) -> None:
        self._place = item.place
        self._origin = item.origin
        self._problems = problems
        self._found: Mapping[str, object] = item.value if isinstance(item.value, dict) else {}
        self._is_object = isinstance(item.value, dict)
        if not self._is_object:
            self.wrong("", f"an object was expected, not {kind(item.value)}")

    def only(self, *names: str) -> None:
        for name in self._found:
            if name not in names:
                self.wrong(name, unknown_field(name, names))

    def required(self, name: str) -> str:
        text = self.text(name)
        if not text and self._is_object and self._found.get(name) in (None, ""):
            self.wrong(name, "is missing")
        return text

    def text(self, name: str) -> str:
        value = self._found.get(name)
        if value is None:
            return ""
        if isinstance(value, Spilled):
            value = value.text()
        if not isinstance(value, str):
            self.wrong(name, f"a text was expected, not {kind(value)}")
            return ""
        return value if self._is_json(name, value) else ""

    def integer(self, name: str, default: int) -> int:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.wrong(name, f"an integer was expected, not {kind(value)}")
            return default
        if abs(value) >= 2**63:
            self.wrong(name, "a smaller number was expected")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(name, f"true or false was expected, not {kind(value)}")
        return value is True

    def time(self, name: str) -> str:
        text = self.text(name)
        if not text:
            return NO_TIME
        try:
            instant_ns(text)
        except ValueError as error:
            self.wrong(name, str(error))
        return text

    def map(self, name: str) -> Mapping[str, object]:
        value = self._found.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.wrong(name, f"an object was expected, not {kind(value)}")
            return {}
        whole = _in_memory(value)
        assert isinstance(whole, dict)
        return whole if self._is_json(name, whole) else {}

    def versions(self) -> Mapping[str, str]:
        inner = self._found.get("tool_versions")
        if inner is None:
            return {}
        place = f"{self._place}.tool_versions"
        versions = Fields(Item(place, inner, self._origin.at("tool_versions")), self._problems)
        return {name: versions.text(name) for name in versions._found}

    def item(self, name: str) -> Item:
        return Item(
            f"{self._place}.{name}".lstrip("."), self._found.get(name), self._origin.at(name)
        )

    def inner(self, name: str) -> Fields:
        """The object in a field; a missing object counts as empty, so its fields are reported."""
        item = self.item(name)
        return Fields(item if name in self._found else item._replace(value={}), self._problems)

    def each(self, name: str) -> list[Fields]:
        """The objects of a list."""
        listed = self._found.get(name)
        if listed is None:
            return []
        if not isinstance(listed, list):
            self.wrong(name, f"a list was expected, not {kind(listed)}")
            return []
        top = self.item(name)
        return [
            Fields(Item(f"{top.place}[{n}]", value, top.origin.at(n)), self._problems)
            for n, value in enumerate(listed)
        ]

    def source(self, names: Sequence[str], *, empty: bool = False) -> Source | None:
        """The content given by one of `names` (as text, in base64, in a file).

        With `empty`, an empty address means no content.
        """
        there = [name for name in names if self._found.get(name) is not None]
        if empty and names[-1] in there and self._found[names[-1]] == "":
            there.remove(names[-1])
        if not there:
            return None
        if len(there) > 1:
            self.wrong(there[1], f"there is {there[0]} already")
            return None
        (name,) = there
        place, value, origin = self.item(name)
        if name == "output":
            return whole_text(place, value, origin, self._problems)
        if not isinstance(value, (str, Spilled)):
            self.wrong(name, f"a text was expected, not {kind(value)}")
            return None
        if isinstance(value, str) and not self._is_json(name, value):
            return None
        return Source(_KINDS[list(names).index(name)], value, place, origin)

    def _is_json(self, name: str, value: object) -> bool:
        try:
            # In a manifest the value is nested a few levels deeper.
            canonical_bytes([[[[[[[[[[value]]]]]]]]]])
        except ValueError as error:
            self.wrong(name, str(error))
            return False
        return True

    def wrong(self, name: str, what: str) -> None:
        place = ".".join(part for part in (self._place, name) if part)
        origin = self._origin.at(name) if name else self._origin
        self._problems.append(Problem(place, what, origin))


def _in_memory(value: object) -> object:
    """Load spilled texts again: the manifest itself contains the parameters."""
    if isinstance(value, Spilled):
        return value.text()
    if isinstance(value, dict):
        return {key: _in_memory(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_memory(item) for item in value]
    return value
