"""What an execution log may say: every field checked, every problem with its place.

`*` is required:  model{identifier*, parameters}, system_prompt*, prompts[{role, content}],
inputs[{name, content}], steps[{index, type*, tool*, parameters, output, deterministic, timestamp}],
outputs[{name*, content}], environment{os*, runtime*, tool_versions}. `content_b64` or `path` may
stand for a `content`; so may `output_b64` or `output_path` for an `output`, and an object with one
of the three for `output` or `system_prompt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from substrate.packs.canonical import canonical_bytes
from substrate.packs.log_items import Item, LogItems, Origin, Problem, kind, unknown_field
from substrate.packs.manifest import NO_TIME, Environment, Model
from substrate.packs.read_manifest import instant_ns
from substrate.packs.spill import Spilled

#: Steps of these types are a model's work: unless it is said otherwise, they may differ next time.
NOT_DETERMINISTIC = frozenset(
    {"llm", "llm_call", "model", "model_call", "completion", "reasoning", "thinking", "message"}
)
_CONTENT = ("content", "content_b64", "path")
_OUTPUT = ("output", "output_b64", "output_path")


class Source(NamedTuple):
    """Where a content's bytes come from: the text itself, base64 of it, or a file's name."""

    kind: Literal["text", "base64", "file"]
    value: str | Spilled
    place: str
    origin: Origin


class LogContent(NamedTuple):
    """A prompt (its role), an input or an output (its name)."""

    label: str
    source: Source


class LogStep(NamedTuple):
    number: int
    type: str
    tool: str
    parameters: Mapping[str, object]
    #: None: no output was recorded.
    output: Source | None
    deterministic: bool
    timestamp: str


class Log(NamedTuple):
    model: Model
    system_prompt: Source
    prompts: tuple[LogContent, ...]
    inputs: tuple[LogContent, ...]
    steps: tuple[LogStep, ...]
    outputs: tuple[LogContent, ...]
    environment: Environment

    @property
    def created(self) -> str:
        """The last step's time: what depends on the log alone gives the log one hash."""
        times = (step.timestamp for step in reversed(self.steps))
        return next((time for time in times if time != NO_TIME), NO_TIME)


def check_log(items: LogItems) -> tuple[Log | None, list[Problem]]:
    """The log, or everything that is wrong with it."""
    problems = list(items.problems)
    model = _Fields(_single(items, "model"), problems)
    environment = _Fields(_single(items, "environment"), problems)
    model.only("identifier", "parameters")
    environment.only("os", "runtime", "tool_versions")
    log = Log(
        Model(model.required("identifier"), model.map("parameters")),
        _system_prompt(items, problems),
        tuple(_content(item, "role", problems) for item in items.lists["prompts"]),
        tuple(_content(item, "name", problems) for item in items.lists["inputs"]),
        _steps(items.lists["steps"], problems),
        tuple(_content(item, "name", problems, required=True) for item in items.lists["outputs"]),
        Environment(
            environment.required("os"), environment.required("runtime"), environment.versions()
        ),
    )
    return (None if problems else log), problems


def _single(items: LogItems, name: str) -> Item:
    # One that is missing lacks each of its fields: that says more than "model is missing".
    return items.single.get(name) or Item(name, {}, Origin(0))


def _system_prompt(items: LogItems, problems: list[Problem]) -> Source:
    item = items.single.get("system_prompt")
    missing = Source("text", "", "system_prompt", Origin(0))
    if item is None or item.value in ("", None):
        problems.append(Problem("system_prompt", "is missing", item.origin if item else Origin(0)))
        return missing
    return _whole(item.place, item.value, item.origin, problems) or missing


def _content(
    item: Item, label: str, problems: list[Problem], *, required: bool = False
) -> LogContent:
    found = _Fields(item, problems)
    found.only(label, *_CONTENT)
    name = found.required(label) if required else found.text(label)
    source = found.source(_CONTENT) or Source("text", "", f"{item.place}.content", item.origin)
    return LogContent(name, source)


def _steps(items: Sequence[Item], problems: list[Problem]) -> tuple[LogStep, ...]:
    steps = []
    seen: dict[int, str] = {}
    for position, item in enumerate(items):
        step = _step(item, position, problems)
        if step.number in seen:
            place = f"{item.place}.index"
            what = f"{step.number} is {seen[step.number]}'s index already"
            problems.append(Problem(place, what, item.origin.at("index")))
        seen.setdefault(step.number, item.place)
        steps.append(step)
    return tuple(steps)


def _step(item: Item, position: int, problems: list[Problem]) -> LogStep:
    found = _Fields(item, problems)
    found.only("index", "type", "tool", "parameters", *_OUTPUT, "deterministic", "timestamp")
    step_type = found.required("type")
    return LogStep(
        found.integer("index", position),
        step_type,
        found.required("tool"),
        found.map("parameters"),
        found.source(_OUTPUT),
        found.flag("deterministic", step_type.lower() not in NOT_DETERMINISTIC),
        found.time("timestamp"),
    )


def _whole(place: str, value: object, origin: Origin, problems: list[Problem]) -> Source | None:
    """A text, or an object that says where the text is."""
    if isinstance(value, dict):
        found = _Fields(Item(place, value, origin), problems)
        found.only(*_CONTENT)
        return found.source(_CONTENT)
    if isinstance(value, str):
        try:
            canonical_bytes(value)
        except ValueError as error:
            problems.append(Problem(place, f"{error}; use content_b64", origin))
    elif not isinstance(value, Spilled):
        problems.append(Problem(place, f"a text was expected, not {kind(value)}", origin))
        return None
    return Source("text", value, place, origin)


class _Fields:
    """One object of the log; what is wrong with it is added to `problems`."""

    def __init__(self, item: Item, problems: list[Problem]) -> None:
        self._place = item.place
        self._origin = item.origin
        self._problems = problems
        self._found: Mapping[str, object] = item.value if isinstance(item.value, dict) else {}
        self._is_object = isinstance(item.value, dict)
        if not self._is_object:
            self._add("", f"an object was expected, not {kind(item.value)}")

    def only(self, *names: str) -> None:
        for name in self._found:
            if name not in names:
                self._add(name, unknown_field(name, names))

    def required(self, name: str) -> str:
        text = self.text(name)
        if not text and self._is_object and self._found.get(name) in (None, ""):
            self._add(name, "is missing")
        return text

    def text(self, name: str) -> str:
        value = self._found.get(name)
        if value is None:
            return ""
        if isinstance(value, Spilled):
            value = value.text()
        if not isinstance(value, str):
            self._add(name, f"a text was expected, not {kind(value)}")
            return ""
        return value if self._is_json(name, value) else ""

    def integer(self, name: str, default: int) -> int:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self._add(name, f"an integer was expected, not {kind(value)}")
            return default
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._found.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._add(name, f"true or false was expected, not {kind(value)}")
        return value is True

    def time(self, name: str) -> str:
        text = self.text(name)
        if not text:
            return NO_TIME
        try:
            instant_ns(text)
        except ValueError as error:
            self._add(name, str(error))
        return text

    def map(self, name: str) -> Mapping[str, object]:
        value = self._found.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._add(name, f"an object was expected, not {kind(value)}")
            return {}
        whole = _in_memory(value)
        assert isinstance(whole, dict)
        return whole if self._is_json(name, whole) else {}

    def versions(self) -> Mapping[str, str]:
        inner = self._found.get("tool_versions")
        if inner is None:
            return {}
        place = f"{self._place}.tool_versions"
        versions = _Fields(Item(place, inner, self._origin.at("tool_versions")), self._problems)
        return {name: versions.text(name) for name in versions._found}

    def source(self, names: Sequence[str]) -> Source | None:
        """The content that one of `names` (as text, in base64, in a file) holds."""
        there = [name for name in names if self._found.get(name) is not None]
        if not there:
            return None
        if len(there) > 1:
            self._add(there[1], f"there is {there[0]} already")
            return None
        (name,) = there
        value, place, origin = self._found[name], f"{self._place}.{name}", self._origin.at(name)
        if name == "output":
            return _whole(place, value, origin, self._problems)
        if not isinstance(value, (str, Spilled)):
            self._add(name, f"a text was expected, not {kind(value)}")
            return None
        if isinstance(value, str) and not self._is_json(name, value):
            return None
        kinds: tuple[Literal["text", "base64", "file"], ...] = ("text", "base64", "file")
        return Source(kinds[list(names).index(name)], value, place, origin)

    def _is_json(self, name: str, value: object) -> bool:
        try:
            canonical_bytes(value)
        except ValueError as error:
            self._add(name, str(error))
            return False
        return True

    def _add(self, name: str, what: str) -> None:
        place = ".".join(part for part in (self._place, name) if part)
        origin = self._origin.at(name) if name else self._origin
        self._problems.append(Problem(place, what, origin))


def _in_memory(value: object) -> object:
    """Parameters stand in the manifest itself: long texts in them come back."""
    if isinstance(value, Spilled):
        return value.text()
    if isinstance(value, dict):
        return {key: _in_memory(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_memory(item) for item in value]
    return value
