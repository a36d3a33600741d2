"""Build an execution log from a transcript: prompts, steps, and the files that tools mention."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from typing import NamedTuple

from substrate.packs.replay import BASE_NAME, TreeEntry, base_record
from substrate.packs.tools import FILE_TOOLS, SHELL_TOOLS
from substrate.packs.transcripts.transcript_lines import Json


class Call(NamedTuple):
    """A tool call as the model made it."""

    tool: str
    parameters: Json
    timestamp: str
    #: Where a command ran, if the transcript says.
    cwd: str = ""
    #: Made by a subagent, in its own transcript (a side chain).
    is_side: bool = False


class LogBuilder:
    """Collects a transcript's parts in order; `log` returns them as an execution log."""

    def __init__(self) -> None:
        self.model = ""
        self.models: list[str] = []
        self.parameters: Json = {}
        self.system_prompt = ""
        self.versions: dict[str, str] = {}
        self.root = ""
        self.prompts: list[Json] = []
        self.steps: list[Json] = []
        self._first: dict[str, str] = {}
        self._last: dict[str, str] = {}
        self._directories: set[str] = set()

    # -- prompts and answers --------------------------------------------------------------------

    def saw_model(self, name: str) -> None:
        # Claude Code writes `<synthetic>` for text that no model produced.
        if name and not name.startswith("<") and name not in self.models:
            self.models.append(name)

    def prompt(self, role: str, content: str) -> None:
        self.prompts.append({"role": role, "content": content})

    def said(self, kind: str, tool: str, text: str, timestamp: str) -> None:
        """An answer, a thought, a summary: text of a model, which no replay can reproduce."""
        self._step(kind, tool, {}, timestamp, output=text, deterministic=False)

    # -- tool calls and files -------------------------------------------------------------------

    def call(self, call: Call) -> int:
        """A tool call, still without its result; returns its index for `result`."""
        parameters = dict(call.parameters)
        if call.tool in SHELL_TOOLS and call.cwd and "cwd" not in parameters:
            parameters["cwd"] = call.cwd
            self._directories.add(self._name(call.cwd))
        kind = "subagent_tool_call" if call.is_side else "tool_call"
        # Without a result it is unknown whether the call happened at all.
        self._step(kind, call.tool, parameters, call.timestamp, output=None, deterministic=False)
        return len(self.steps) - 1

    def result(
        self, index: int, output: str | None, *, failed: bool, exit_code: int | None = None
    ) -> None:
        """A call's result. A failed file tool changed nothing: it is kept, but not replayed.

        `output` is None if it is not in the transcript: a replay does not compare it.
        """
        step = self.steps[index]
        step["output"] = output
        tool = str(step["tool"])
        step["deterministic"] = tool in SHELL_TOOLS or (tool in FILE_TOOLS and not failed)
        if exit_code is not None:
            step["result"] = {"exit": exit_code}

    def not_replayed(self, index: int) -> None:
        self.steps[index]["deterministic"] = False

    def killed_after(self, index: int, ms: int) -> None:
        """The agent ended the command then, and so does a replay."""
        step = self.steps[index]
        assert isinstance(step["parameters"], dict)
        step["parameters"]["killed_after_ms"] = ms

    def file_was(self, path: str, content: str) -> None:
        """A file's content before the current call: an input, unless it is already known."""
        name = self._name(path)
        if name and name not in self._last:
            self._first.setdefault(name, content)

    def file_is(self, path: str, content: str) -> None:
        """A file's content as a tool left it: an output, unless a later call changes it."""
        name = self._name(path)
        if name:
            self._last[name] = content

    def _name(self, path: str) -> str:
        """The file's name below the root; empty for a file elsewhere."""
        if not path.startswith("/"):
            name = os.path.normpath(path) if path else ""
        elif self.root and os.path.normpath(path).startswith(self.root.rstrip("/") + "/"):
            name = os.path.relpath(os.path.normpath(path), self.root)
        else:
            return ""
        return "" if name in ("", ".") or name.startswith("..") else name

    def _step(
        self, kind: str, tool: str, parameters: Json, timestamp: str, *,
        output: str | None, deterministic: bool,
    ) -> None:  # fmt: skip
        step: Json = {"index": len(self.steps), "type": kind, "tool": tool}
        step["parameters"] = parameters
        step["output"] = output or ""
        step["deterministic"] = deterministic
        if timestamp:
            step["timestamp"] = timestamp
        self.steps.append(step)

    # -- the whole ------------------------------------------------------------------------------

    def log(self, runtime: str) -> Json:
        parameters = dict(self.parameters)
        if len(self.models) > 1:
            parameters["models"] = list(self.models)
        inputs = [{"name": name, "content": self._first[name]} for name in sorted(self._first)]
        if self.root:
            inputs.insert(0, {"name": BASE_NAME, "content": self._base()})
        return {
            "root": self.root,
            "model": {
                "identifier": self.models[0] if self.models else "unknown",
                "parameters": parameters,
            },
            "system_prompt": self.system_prompt,
            "prompts": self.prompts,
            "inputs": inputs,
            "steps": self.steps,
            "outputs": [{"name": name, "content": self._last[name]} for name in sorted(self._last)],
            "environment": {
                # A transcript does not name its operating system.
                "os": "unknown",
                "runtime": runtime,
                "tool_versions": dict(sorted(self.versions.items())),
            },
        }

    def _base(self) -> str:
        """The record of the root, with the directories in which commands ran: they existed."""
        names = sorted(self._directories - {""})
        entries = [TreeEntry(name.encode(), "directory", 0o755) for name in names]
        return base_record(self.root, entries=entries)


def common_root(paths: Iterable[str]) -> str:
    """The deepest directory above all these absolute paths; empty if there is none."""
    above = [os.path.dirname(os.path.normpath(path)) for path in paths if path.startswith("/")]
    return os.path.commonpath(above) if above else ""
