"""From an execution log to a stored pack."""

from __future__ import annotations

from substrate.errors import UsageError
from substrate.packs.format import (
    Input,
    JsonSyntaxError,
    Log,
    LogContent,
    LogStep,
    Manifest,
    Output,
    Pack,
    Prompt,
    Scratch,
    Step,
    check_log,
    gather,
)
from substrate.packs.store.content_intake import ContentWriter, LogFile, mistakes
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.pack_refs import set_latest

__all__ = ["LogFile", "manifest_of_log", "pack_log", "publish"]

_FORMAT_HINT = "`ctx pack --help` shows a small log"


def pack_log(store: Store, log: LogFile) -> Pack:
    """Store a log's contents and its manifest, list the pack, and make it the latest.

    The same log always gives the same pack. `UsageError` names every field that is wrong.
    """
    with store.writing("packing a log"), Scratch(store.scratch) as scratch:
        try:
            items = gather(log.file, scratch.spill)
        except JsonSyntaxError as error:
            raise UsageError(
                f"{log.name}, line {error.line}: {error.problem}", hint=_FORMAT_HINT
            ) from None
        checked, problems = check_log(items)
        if checked is None:
            raise mistakes(log, problems, _FORMAT_HINT)
        writer = ContentWriter(store, log.roots)
        manifest = manifest_of_log(checked, writer)
        if writer.problems:
            raise mistakes(log, writer.problems, _FORMAT_HINT)
        return publish(store, manifest)


def publish(store: Store, manifest: Manifest) -> Pack:
    """Store and list a manifest whose contents are stored; moves `latest`. Call in `writing`."""
    pack = store.add(manifest)
    set_latest(store, pack.ref)
    return pack


def manifest_of_log(log: Log, writer: ContentWriter) -> Manifest:
    """The manifest of a checked log, its contents stored by `writer`."""
    return Manifest(
        created=log.created,
        model=log.model,
        system_prompt=writer.store(log.system_prompt).ref,
        prompts=tuple(Prompt(p.label, writer.store(p.source).ref) for p in log.prompts),
        inputs=tuple(_input(item, writer) for item in log.inputs),
        steps=tuple(_step(step, writer) for step in log.steps),
        outputs=tuple(Output(o.label, writer.store(o.source).ref) for o in log.outputs),
        environment=log.environment,
    )


def _input(item: LogContent, writer: ContentWriter) -> Input:
    stored = writer.store(item.source)
    return Input(item.label, stored.ref, stored.size)


def _step(step: LogStep, writer: ContentWriter) -> Step:
    return Step(
        index=step.number,
        type=step.type,
        tool=step.tool,
        parameters=step.parameters,
        output_ref=writer.store(step.output).ref if step.output is not None else "",
        deterministic=step.deterministic,
        timestamp=step.timestamp,
    )
