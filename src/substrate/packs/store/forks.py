"""Forks: a draft of a manifest that people edit, and the pack made from it.

A draft is an unchanged manifest with `parent` set. New content is given as in a log: `content`,
`content_b64` or `path` in place of `content_ref`, `output` … in place of `output_ref`, a text in
place of the system prompt's address.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.packs.format import (
    CONTENT,
    OUTPUT,
    VERSION,
    Environment,
    Fields,
    Input,
    Item,
    JsonStream,
    JsonSyntaxError,
    Manifest,
    Model,
    Origin,
    Output,
    Pack,
    Problem,
    Prompt,
    Scratch,
    Step,
    fields,
    is_ref,
    short,
    whole_text,
)
from substrate.packs.store.content_intake import ContentWriter, LogFile, mistakes
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.log_to_pack import publish
from substrate.packs.store.object_files import Stored
from substrate.system.files import fsync_dir, write_all

_SUFFIX = ".draft.json"
_HINT = "`ctx fork --help` says what a draft may hold"
_TOP = (
    *("version", "hash", "created", "model", "system_prompt", "prompts", "inputs", "steps"),
    *("outputs", "environment", "parent"),
)
_STEP = ("index", "type", "tool", "parameters", "deterministic", "timestamp", "result")
#: The fields of a draft whose objects must exist to finalize it. The changes of a step contain
#: addresses, too, but packs need not contain their contents.
_NEEDS = re.compile(
    rb'"(?:content_ref|output_ref|system_prompt|parent)"\s*:\s*"(sha256:[0-9a-f]{64})"'
)


class Finalized(NamedTuple):
    pack: Pack
    #: It differs only in the parent from the pack it was forked from.
    unchanged: bool
    #: The draft, if it was not removed.
    kept: Path | None


def fork(store: Store, pack: Pack) -> Path:
    """Write a draft of `pack` under an unused name."""
    told = fields(pack.manifest._replace(parent=pack.ref))
    data = json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n"
    number = 1
    while True:
        extra = "" if number == 1 else f"-{number}"
        path = store.drafts_dir / f"{short(pack.ref)}{extra}{_SUFFIX}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:  # keep the edits in an existing draft
            number += 1
            continue
        try:
            write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        fsync_dir(store.drafts_dir)
        return path


def drafts(store: Store) -> list[Path]:
    try:
        names = sorted(os.listdir(store.drafts_dir))
    except FileNotFoundError:
        return []
    return [store.drafts_dir / name for name in names if name.endswith(".json")]


def needed(data: bytes) -> Iterator[str]:
    """The addresses that must exist to finalize a draft, given its bytes."""
    for found in dict.fromkeys(_NEEDS.findall(data)):
        yield found.decode()


def find_draft(store: Store, text: str, cwd: Path) -> Path:
    """A draft by its path, by its name, or by the pack it was forked from."""
    for path in (Path(cwd, text), store.drafts_dir / text, store.drafts_dir / (text + _SUFFIX)):
        if path.is_file():
            return path
    digits = text.removeprefix("ctx://").removeprefix("sha256:")[:12]
    found = [path for path in drafts(store) if digits and path.name.startswith(digits)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(path.name for path in (found or drafts(store))[:8])
    hint = f"the drafts here: {there}" if there else "`ctx fork REF` makes one"
    what = "several drafts begin so" if found else f"there is no draft {text}"
    raise NotFoundError(what, hint=hint)


def finalize(store: Store, path: Path, cwd: Path) -> Finalized:
    """Make a pack of a draft. Removes the draft if it is in the store and did not change since."""
    with store.writing("finalizing a draft"), path.open("rb") as file:
        before = file.read()
        file.seek(0)
        ours = path.parent == store.drafts_dir
        roots = (*(() if ours else (path.parent,)), cwd, store.directory.parent)
        manifest = _read(store, LogFile(path.name, file, roots))
        parent = store.load(manifest.parent)
        pack = publish(store, manifest)
    unchanged = manifest._replace(parent=parent.manifest.parent) == parent.manifest
    return Finalized(pack, unchanged, _put_away(store, path, before))


def _put_away(store: Store, path: Path, before: bytes) -> Path | None:
    if os.path.realpath(path.parent) != os.path.realpath(store.drafts_dir):
        return path
    if path.read_bytes() != before:
        return path
    path.unlink()
    return None


def _read(store: Store, draft: LogFile) -> Manifest:
    with Scratch(store.scratch) as scratch:
        try:
            documents = [value for _, value in JsonStream(draft.file, scratch.spill).documents()]
        except JsonSyntaxError as error:
            raise UsageError(
                f"{draft.name}, line {error.line}: {error.problem}", hint=_HINT
            ) from None
        if len(documents) != 1:
            raise UsageError(f"{draft.name} is not one JSON object", hint=_HINT)
        problems: list[Problem] = []
        writer = ContentWriter(store, draft.roots)
        manifest = _manifest(store, Item("", documents[0], Origin(0)), writer, problems)
        problems += writer.problems
        if problems:
            raise mistakes(draft, problems, _HINT)
        return manifest


def _manifest(store: Store, item: Item, writer: ContentWriter, problems: list[Problem]) -> Manifest:
    top = Fields(item, problems)
    top.only(*_TOP)
    parent = top.required("parent")
    if parent and not (is_ref(parent) and parent in store.objects):
        problems.append(Problem("parent", "is not a pack of this store", item.origin.at("parent")))
    model, environment = top.inner("model"), top.inner("environment")
    model.only("identifier", "parameters")
    environment.only("os", "runtime", "tool_versions")
    return Manifest(
        version=top.text("version") or VERSION,
        created=top.time("created"),
        model=Model(model.required("identifier"), model.map("parameters")),
        system_prompt=_system_prompt(top, writer, problems),
        prompts=tuple(_prompt(found, writer) for found in top.each("prompts")),
        inputs=tuple(_input(found, writer) for found in top.each("inputs")),
        steps=_steps(top.each("steps"), writer),
        outputs=tuple(_output(found, writer) for found in top.each("outputs")),
        environment=Environment(
            environment.required("os"), environment.required("runtime"), environment.versions()
        ),
        parent=parent,
    )


def _system_prompt(top: Fields, writer: ContentWriter, problems: list[Problem]) -> str:
    item = top.item("system_prompt")
    source = whole_text("system_prompt", item.value, item.origin, problems)
    if source is None:
        return ""
    if source.kind == "text" and isinstance(source.value, str) and is_ref(source.value):
        source = source._replace(kind="ref")
    return writer.store(source).ref


def _prompt(found: Fields, writer: ContentWriter) -> Prompt:
    found.only("role", *CONTENT)
    return Prompt(found.text("role"), _stored(found, writer).ref)


def _input(found: Fields, writer: ContentWriter) -> Input:
    found.only("name", "size", *CONTENT)
    stored = _stored(found, writer)
    return Input(found.text("name"), stored.ref, stored.size)


def _output(found: Fields, writer: ContentWriter) -> Output:
    found.only("name", "context_pack", *CONTENT)
    return Output(found.required("name"), _stored(found, writer).ref)


def _steps(listed: Sequence[Fields], writer: ContentWriter) -> tuple[Step, ...]:
    steps = []
    seen: set[int] = set()
    for position, found in enumerate(listed):
        found.only(*_STEP, *OUTPUT)
        index = found.integer("index", position)
        if index in seen:
            found.wrong("index", f"{index} is another step's index already")
        seen.add(index)
        source = found.source(OUTPUT, empty=True)
        steps.append(
            Step(
                index=index,
                type=found.required("type"),
                tool=found.required("tool"),
                parameters=found.map("parameters"),
                output_ref=writer.store(source).ref if source is not None else "",
                deterministic=found.flag("deterministic", False),
                timestamp=found.time("timestamp"),
                result=found.map("result"),
            )
        )
    return tuple(steps)


def _stored(found: Fields, writer: ContentWriter) -> Stored:
    source = found.source(CONTENT)
    if source is None:
        found.wrong("content_ref", "is missing")
        return Stored("", 0)
    return writer.store(source)
