"""Look into a pack."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from substrate.cli.render import content_heading, preview, show_pack, show_step
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.recorder.packing import (
    Content,
    Manifest,
    Pack,
    Step,
    Store,
    fields,
    find_store,
    pack_refs,
    step_fields,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "show"
HELP = "show what a pack holds"
EXAMPLE = "ctx show latest --step 3 --content"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "ref",
        nargs="?",
        default=pack_refs.LATEST,
        metavar="REF",
        help="hash, ctx://…, tag (latest)",
    )
    parser.add_argument("--step", type=int, metavar="N", help="one step only, by its index")
    parser.add_argument("--content", action="store_true", help="the contents, too, in full")
    parser.add_argument("--output", metavar="NAME", help="the bytes of this output, nothing else")
    parser.add_argument("--input", metavar="NAME", help="the bytes of this input, nothing else")


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    pack = pack_refs.load(store, args.ref)
    if args.output is not None or args.input is not None:
        return _raw(store, pack, args, context)
    step = _step(pack, args.step) if args.step is not None else None
    if context.json:
        told = step_fields(step) if step is not None else fields(pack.manifest, pack.ref)
        if args.content:
            _add_contents(store, told)
        context.output.emit_json(told)
        return EXIT_OK
    if step is not None:
        show_step(context.output, store.objects, step)
        contents = [Content(f"steps[{step.index}].output", step.output_ref)]
    else:
        names = [name for name, ref in pack_refs.tags(store).items() if ref == pack.ref]
        show_pack(context.output, store.objects, pack, names)
        contents = list(pack.manifest.contents())
    if args.content:
        for content in contents:
            _show_content(store, content, context)
    elif step is not None and step.output_ref:
        context.output.line("")
        context.output.line(preview(store.objects, step.output_ref, 400))
    return EXIT_OK


def _raw(store: Store, pack: Pack, args: Namespace, context: Context) -> int:
    """One content as it was recorded: `ctx show v1 --output result.md > result.md`."""
    if (
        context.json
        or args.step is not None
        or (args.output is not None) == (args.input is not None)
    ):
        raise UsageError(
            "--output and --input print one content and nothing else", hint="give one of them alone"
        )
    name, what = (args.output, "output") if args.output is not None else (args.input, "input")
    listed = pack.manifest.outputs if what == "output" else pack.manifest.inputs
    found = [item.content_ref for item in listed if item.name == name]
    if not found:
        there = ", ".join(item.name for item in listed[:8]) or "none"
        raise NotFoundError(f"the pack has no {what} {name}", hint=f"it has: {there}")
    for chunk in store.objects.chunks(found[-1]):
        context.output.block(chunk)
    return EXIT_OK


def _step(pack: Pack, index: int) -> Step:
    steps: Manifest = pack.manifest
    found = [step for step in steps.steps if step.index == index]
    if not found:
        there = [step.index for step in steps.steps]
        hint = f"its steps are {min(there)} to {max(there)}" if there else "it has no steps"
        raise NotFoundError(f"the pack has no step {index}", hint=hint)
    return found[0]


def _show_content(store: Store, content: Content, context: Context) -> None:
    if not content.ref:
        return
    context.output.line("")
    context.output.line(content_heading(content.place))
    last = b"\n"
    for chunk in store.objects.chunks(content.ref):
        context.output.block(chunk)
        last = chunk
    if not last.endswith(b"\n"):
        context.output.block(b"\n")


def _add_contents(store: Store, told: dict[str, object]) -> None:
    """Add the content beside each address: as text, or in base64 if it is not text."""
    items = [told]
    for name in ("prompts", "inputs", "steps", "outputs"):
        listed = told.get(name)
        items += listed if isinstance(listed, list) else []
    for item in items:
        for key in ("content_ref", "output_ref", "system_prompt"):
            ref = item.get(key)
            if not isinstance(ref, str) or not ref:
                continue
            name = "content" if key == "content_ref" else key.removesuffix("_ref") + "_content"
            name = "output" if key == "output_ref" else name
            data = store.objects.read(ref)
            try:
                item[name] = data.decode("utf-8")
            except UnicodeDecodeError:
                item[f"{name}_b64"] = base64.b64encode(data).decode()
