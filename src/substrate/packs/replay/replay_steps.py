"""Replay a pack's steps in order, and rate the pack's fidelity (docs/REPLAY.md).

    exact      every step's output equals the recorded one
    degraded   every step ran, but some outputs differ
    failed     a step could not run: no such tool, a missing input, an error

Steps marked non-deterministic keep their recorded output and do not affect the rating.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from substrate.packs.format import Manifest, Step
from substrate.packs.replay.replay_compare import address, changes_difference, difference, is_same
from substrate.packs.store import Objects
from substrate.packs.tools import (
    BUILT_IN,
    Produced,
    Registry,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    TreeError,
    TreeState,
    tree_state,
)

MATCHED, DIVERGED, FAILED = "matched", "diverged", "failed"
EXACT, DEGRADED = "exact", "degraded"
_NO_SUCH_COMMAND = 127


class StepReport(NamedTuple):
    #: The step's index.
    at: int
    type: str
    tool: str
    #: Its command or path, for people.
    about: str
    status: str
    #: False: the step did not run, and its recorded output is used.
    ran: bool = True
    reason: str = ""
    diff: str = ""
    recorded: str = ""
    actual: str = ""
    exit: int | None = None
    recorded_exit: int | None = None
    scopes: tuple[str, ...] = ()
    #: Whether it affects the rating: a non-deterministic step may differ.
    deterministic: bool = True


class OutputReport(NamedTuple):
    name: str
    #: ``matched``, ``diverged``, or ``absent``: no step made such a file.
    status: str
    reason: str = ""
    diff: str = ""


class Options(NamedTuple):
    #: Also run non-deterministic steps that have a known tool.
    rerun: bool = False
    #: Called after a step: (path now, path then) if the tree is not at its original location.
    mapped: Callable[[], tuple[tuple[bytes, bytes], ...]] = tuple
    #: Turns an output into the form in a pack whose secrets were replaced.
    redacted: Callable[[bytes], bytes] = bytes


class StepReplay:
    """Runs the steps of one pack in one tree."""

    def __init__(
        self,
        objects: Objects,
        context: ToolContext,
        registry: Registry,
        watch: TreeState | None,
        options: Options,
    ) -> None:
        self._objects = objects
        self._context = context
        self._registry = registry
        self._watch = watch
        self._options = options

    def run(self, step: Step) -> StepReport:
        report = StepReport(
            step.index, step.type, step.tool, about(step), MATCHED, recorded=step.output_ref,
            recorded_exit=_exit(step.result), deterministic=step.deterministic,
        )  # fmt: skip
        if step.output_ref:
            self._objects.check(step.output_ref)
        if not step.deterministic and not self._options.rerun:
            return report._replace(
                ran=False, reason="non-deterministic: its recorded output is kept"
            )
        tool = self._registry.find(step.tool)
        if tool is None:
            if not step.deterministic:
                why = f"no tool is known as {step.tool}: its recorded output is kept"
                return report._replace(ran=False, reason=why)
            return report._replace(status=FAILED, ran=False, reason=_unknown(step.tool))
        return self._carry_out(step, tool, report)

    def _carry_out(self, step: Step, tool: Tool, report: StepReport) -> StepReport:
        try:
            result = tool(self._context, step.tool, step.parameters)
        except (ToolError, TreeError) as error:
            return report._replace(status=FAILED, reason=str(error))
        try:
            actual, _ = address(result.produced)
        except TreeError as error:  # the result is read to its end only here
            return report._replace(status=FAILED, reason=str(error))
        report = report._replace(exit=result.exit, scopes=result.scopes, actual=actual)
        return self._judge(step, result, report)

    def _judge(self, step: Step, result: ToolResult, report: StepReport) -> StepReport:
        reasons: list[str] = []
        diff = ""
        if not self._is_same(step, result):
            found = difference(self._objects, step.output_ref, result.produced)
            reasons.append(f"its output differs: {found.summary}")
            diff = found.diff
        known = step.result.get("stdout")
        if isinstance(known, str) and known != report.actual:
            reasons.append("its output differs: of the recorded one only the hash is known")
        if report.recorded_exit is not None and result.exit not in (None, report.recorded_exit):
            reasons.append(f"it exited with {result.exit}, recorded was {report.recorded_exit}")
        reasons += self._changes(step)
        if not reasons:
            return report
        if result.not_started and result.exit != report.recorded_exit:
            return report._replace(status=FAILED, reason=result.not_started, diff=diff)
        if result.exit == _NO_SUCH_COMMAND and report.recorded_exit != _NO_SUCH_COMMAND:
            said = result.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
            why = said[-1] if said else "command not found"
            return report._replace(status=FAILED, reason=f"missing program: {why}", diff=diff)
        if not diff and result.exit not in (None, report.recorded_exit):
            diff = result.stderr.decode("utf-8", "backslashreplace")
        return report._replace(status=DIVERGED, reason="; ".join(reasons), diff=diff)

    def _is_same(self, step: Step, result: ToolResult) -> bool:
        if not step.output_ref or result.only_says_done:
            return True
        return is_same(
            self._objects, step.output_ref, result, self._mapped(result), self._options.redacted
        )

    def _mapped(self, result: ToolResult) -> tuple[tuple[bytes, bytes], ...]:
        # Only commands print the path of the tree they ran in.
        return self._options.mapped() if result.exit is not None else ()

    def _changes(self, step: Step) -> list[str]:
        """Compare what the step changed in the tree with the record, if there is one."""
        then = step.result.get("changed")
        if self._watch is None or not isinstance(then, list):
            return []
        now = [tree_state.change_json(c) for c in tree_state.leaves(self._watch.changes())]
        return changes_difference(then, now)


def compare_outputs(
    manifest: Manifest, objects: Objects, context: ToolContext
) -> list[OutputReport]:
    """Compare the pack's outputs with the files that the steps left under their names.

    A file that is still identical to the pack's input was made by no step: it proves nothing.
    """
    laid_out = {item.name: item.content_ref for item in manifest.inputs}
    reports = []
    for output in manifest.outputs:
        try:
            path = context.tree.locate(output.name)
            made = Produced(stream=partial(context.tree.chunks, path, context.limits.output_bytes))
            actual, _ = address(made)
        except TreeError:
            reports.append(OutputReport(output.name, "absent", "no step made such a file"))
            continue
        if actual == output.content_ref:
            reports.append(OutputReport(output.name, MATCHED))
        elif actual == laid_out.get(output.name):
            reports.append(OutputReport(output.name, "absent", "no step changed it"))
        else:
            found = difference(objects, output.content_ref, made)
            reports.append(OutputReport(output.name, DIVERGED, found.summary, found.diff))
    return reports


def fidelity(steps: Sequence[StepReport], outputs: Sequence[OutputReport] = ()) -> str:
    """The rating of the whole replay; non-deterministic steps do not count."""
    counted = [step for step in steps if step.deterministic]
    if any(step.status == FAILED for step in counted):
        return FAILED
    if any(step.status == DIVERGED for step in counted):
        return DEGRADED
    return DEGRADED if any(output.status == DIVERGED for output in outputs) else EXACT


def first_divergence(steps: Sequence[StepReport]) -> StepReport | None:
    return next((s for s in steps if s.status != MATCHED and s.deterministic), None)


def about(step: Step) -> str:
    """One line that describes a step: its command, its path, or its pattern."""
    names = ("command", "cmd", "path", "file_path", "absolute_path", "pattern", "dir_path")
    for name in names:
        value = step.parameters.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return " ".join(str(word) for word in value)
    return ""


def _exit(result: Mapping[str, object]) -> int | None:
    value = result.get("exit")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _unknown(tool: str) -> str:
    known = ", ".join(sorted(set(BUILT_IN.values())))
    return f"no tool is known as {tool!r} (known: {known}; .ctx/config.json can name more)"
