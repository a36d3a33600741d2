"""A store of its own for each test, and a manifest worth storing."""

from __future__ import annotations

from pathlib import Path

import pytest

from substrate.packs.format.manifest import (
    Environment,
    Input,
    Manifest,
    Model,
    Output,
    Prompt,
    Step,
)
from substrate.packs.store.ctx_store import Store, make_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    directory = tmp_path / "project" / ".ctx"
    directory.mkdir(parents=True)
    return make_store(directory)


@pytest.fixture
def manifest(store: Store) -> Manifest:
    """An example manifest, its contents stored."""

    def put(text: str) -> str:
        return store.objects.write(text.encode()).ref

    return Manifest(
        created="2026-02-10T14:30:00Z",
        model=Model("claude-opus-4-6", {"temperature": 0, "max_tokens": 4096}),
        system_prompt=put("You are careful."),
        prompts=(Prompt("user", put("Say what main.py does.")),),
        inputs=(Input("file.py", put("print('hi')\n"), 12),),
        steps=(
            Step(
                index=0,
                type="tool_call",
                tool="read_file",
                parameters={"path": "src/main.py"},
                output_ref=put("print('hi')\n"),
                deterministic=True,
                timestamp="2026-02-10T14:30:00Z",
            ),
        ),
        outputs=(Output("result.md", put("It greets.\n")),),
        environment=Environment("darwin", "go1.22", {"ctx": "0.1.0"}),
    )
