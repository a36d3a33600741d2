"""What `connect` adds to one settings file, whatever the file's format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from substrate.coding_agents import marked_block, settings_json, settings_toml
from substrate.coding_agents.json_syntax import read as read_json
from substrate.coding_agents.settings_json import Addition
from substrate.coding_agents.settings_toml import Table
from substrate.coding_agents.text_insertions import Extended
from substrate.errors import RefusedError

#: The keys of the objects and arrays that `connect` added to a file.
Containers = Sequence[Sequence[str]]


class Edit(ABC):
    """The additions to one file. All texts are whole files, with their own line ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def is_in(self, text: str) -> bool:
        """Whether the file has all of it."""

    @abstractmethod
    def add_to(self, text: str) -> Extended:
        """The file with all of it; `RefusedError` if the file is unreadable or in the way."""

    @abstractmethod
    def remove_from(self, text: str, containers: Containers) -> str:
        """The file without it; also without those of `containers` that are empty then."""

    def keeping(self, text: str, containers: Containers) -> Edit:
        """This edit with what another scope or option of `connect` has added to the same file."""
        del text, containers
        return self

    @abstractmethod
    def is_blank(self, text: str) -> bool:
        """Whether nothing else is in the file."""

    @abstractmethod
    def summary(self) -> tuple[str, ...]:
        """What it adds, in a few words each."""


class JsonEdit(Edit):
    """Members and array items in a JSON file. `is_ours` recognises them in any version."""

    def __init__(
        self, path: Path, additions: Sequence[Addition], is_ours: Callable[[object], bool]
    ) -> None:
        super().__init__(path)
        self.additions = tuple(additions)
        self._is_ours = is_ours

    def with_other(self, other: JsonEdit) -> JsonEdit:
        """Both edits of the same file as one."""
        return JsonEdit(
            self.path,
            (*self.additions, *other.additions),
            lambda value: self._is_ours(value) or other._is_ours(value),
        )

    def is_in(self, text: str) -> bool:
        return all(settings_json.has(text, one) for one in self.additions)

    def add_to(self, text: str) -> Extended:
        return settings_json.add(text, self.additions)

    def remove_from(self, text: str, containers: Containers) -> str:
        for path in self._places(text):
            text = self._remove_inner(text, path)
            text = settings_json.remove(text, path, self._is_ours)
        for keys in sorted(containers, key=len, reverse=True):
            if keys and settings_json.is_empty_container(text, keys):
                text = settings_json.remove_member(text, keys)
        return text

    def _places(self, text: str) -> list[tuple[str, ...]]:
        """Where additions of this version go, and every list of hooks of an earlier one."""
        places = [one.path for one in self.additions]
        hooks = settings_json.value_at(text, ("hooks",))
        if isinstance(hooks, dict):
            places += [("hooks", event) for event in hooks]
        return list(dict.fromkeys(places))

    def _remove_inner(self, text: str, path: tuple[str, ...]) -> str:
        """Remove our hook from a group to which the user added another one."""
        found = settings_json.value_at(text, path)
        for number, group in enumerate(found if isinstance(found, list) else ()):
            if not self._is_ours(group) and isinstance(group, dict) and "hooks" in group:
                text = settings_json.remove(text, (*path, str(number), "hooks"), self._is_ours)
        return text

    def is_blank(self, text: str) -> bool:
        root = read_json(text)
        return not text.strip("\ufeff") or (
            root is not None
            and root.plain() in ({}, {"version": 1})
            and "//" not in text
            and "/*" not in text
        )

    def summary(self) -> tuple[str, ...]:
        events = [one.path[-1] for one in self.additions if one.in_array]
        members = [".".join(one.path) for one in self.additions if not one.in_array]
        return (*members, *([f"hooks: {', '.join(dict.fromkeys(events))}"] if events else ()))


class TomlEdit(Edit):
    """Tables of one value in a TOML file; `containers` are their paths with that value.

    `is_ours` recognises a table at the path of one of `tables`, in any version.
    """

    def __init__(
        self, path: Path, tables: Sequence[Table], is_ours: Callable[[object], bool] | None = None
    ) -> None:
        super().__init__(path)
        self.tables = tuple(tables)
        self._is_ours = is_ours

    def keeping(self, text: str, containers: Containers) -> Edit:
        known = {one.path for one in self.tables}
        kept = []
        for *path, value in containers:
            found = settings_toml.value_at(text, path)
            is_noted = isinstance(found, dict) and list(found.values()) == [value]
            if is_noted and tuple(path) not in known:
                kept.append(Table(tuple(path), found))
        return TomlEdit(self.path, (*kept, *self.tables), self._is_ours)

    def is_in(self, text: str) -> bool:
        return all(settings_toml.has(text, one) for one in self.tables)

    def add_to(self, text: str) -> Extended:
        return settings_toml.add(text, self.tables)

    def remove_from(self, text: str, containers: Containers) -> str:
        for *path, value in containers:
            text = settings_toml.remove(text, path, [value])
        for table in self.tables if self._is_ours is not None else ():
            found = settings_toml.value_at(text, table.path)
            if self._is_ours is not None and self._is_ours(found):
                text = settings_toml.remove(text, table.path, list(found.values()))
        return text

    def is_blank(self, text: str) -> bool:
        return not text.strip("\ufeff \t\r\n")

    def summary(self) -> tuple[str, ...]:
        return tuple(table.header for table in self.tables)


class BlockEdit(Edit):
    """The block of instructions in a Markdown file."""

    def is_in(self, text: str) -> bool:
        return marked_block.has(text)

    def add_to(self, text: str) -> Extended:
        return marked_block.add(text)

    def remove_from(self, text: str, containers: Containers) -> str:
        return marked_block.remove(text)

    def is_blank(self, text: str) -> bool:
        return not text.strip("\ufeff \t\r\n")

    def summary(self) -> tuple[str, ...]:
        return ("a marked block of instructions",)


class WholeFileEdit(Edit):
    """A file of ours alone. `mark` is in it, in every version."""

    def __init__(self, path: Path, content: str, mark: str) -> None:
        super().__init__(path)
        self._content = content
        self._mark = mark

    def is_in(self, text: str) -> bool:
        return text == self._content

    def add_to(self, text: str) -> Extended:
        if text and text != self._content:
            raise RefusedError("the file is not Substrate's")
        return Extended(self._content, ((0, len(self._content)),))

    def remove_from(self, text: str, containers: Containers) -> str:
        return "" if text.lstrip().startswith(f"// {self._mark}") else text

    def is_blank(self, text: str) -> bool:
        return not text

    def summary(self) -> tuple[str, ...]:
        return ("a plugin",)
