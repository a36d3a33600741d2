"""The fields of an execution log: check each one, and name the field of every problem.

`*` is required:  model{identifier*, parameters}, system_prompt*, prompts[{role, content}],
inputs[{name, content}], steps[{index, type*, tool*, parameters, output, deterministic, timestamp}],
outputs[{name*, content}], environment{os*, runtime*, tool_versions}. `content_b64` or `path` may
replace a `content`; `output_b64` or `output_path` may replace an `output`; an object with one of
`content`, `content_b64` and `path` may replace an `output` or the `system_prompt`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from substrate.packs.format.field_checks import CONTENT, OUTPUT, Fields, Source, whole_text
from substrate.packs.format.log_items import Item, LogItems, Origin, Problem
from substrate.packs.format.manifest import NO_TIME, Environment, Model

_CONTENT, _OUTPUT = CONTENT[:3], OUTPUT[:3]
#: A model produces steps of these types: by default they count as non-deterministic.
NOT_DETERMINISTIC = frozenset(
    {"llm", "llm_call", "model", "model_call", "completion", "reasoning", "thinking", "message"}
)


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
        """The last step's time: it depends only on the log, so one log always has one hash."""
        times = (step.timestamp for step in reversed(self.steps))
        return next((time for time in times if time != NO_TIME), NO_TIME)


def check_log(items: LogItems) -> tuple[Log | None, list[Problem]]:
    """The log, or everything that is wrong with it."""
    problems = list(items.problems)
    if problems and not items.single and not any(items.lists.values()):
        return None, problems  # not a log at all: do not list its missing fields
    model = Fields(_single(items, "model"), problems)
    environment = Fields(_single(items, "environment"), problems)
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
    # Report each field of a missing object: that says more than "model is missing".
    return items.single.get(name) or Item(name, {}, Origin(0))


def _system_prompt(items: LogItems, problems: list[Problem]) -> Source:
    item = items.single.get("system_prompt")
    missing = Source("text", "", "system_prompt", Origin(0))
    if item is None or item.value in ("", None):
        said = "is empty" if item and item.value == "" else "is missing"
        problems.append(Problem("system_prompt", said, item.origin if item else Origin(0)))
        return missing
    return whole_text(item.place, item.value, item.origin, problems) or missing


def _content(
    item: Item, label: str, problems: list[Problem], *, required: bool = False
) -> LogContent:
    found = Fields(item, problems)
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
    found = Fields(item, problems)
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
