"""The tests that macOS and Windows run: ``pytest --portable`` (or ``scripts/test --portable``).

A list of paths, so that a module that needs Linux is not even imported. Under ``--portable`` every
command runs with the strategy ``direct``, on Linux too: Linux then tests what the others have.
CONTRIBUTING.md ("The portable suite") says what it leaves out. A test on this list that needs more
than its system has is marked ``needs("posix")``, ``needs("symlinks")`` and so on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: No shell, no permission bits, no links: Windows runs these.
EVERYWHERE = (
    "tests/unit/model",
    "tests/unit/graph/index/test_affected.py",
    "tests/unit/graph/query/test_budget.py",
    "tests/unit/graph/resolve/test_resolve_calls.py",
    "tests/unit/graph/parse/test_extract_facts.py",
    "tests/unit/graph/parse/test_hostile_sources.py",
    "tests/unit/graph/diagram/test_diagram_model.py",
    "tests/unit/packs/format/test_canonical.py",
    "tests/unit/packs/drift/test_compare_packs.py",
    "tests/unit/packs/format/test_json_stream.py",
    "tests/unit/packs/format/test_manifest.py",
    "tests/unit/packs/test_replay_transcripts.py",
    "tests/unit/trace/redact/test_redact_text.py",
    "tests/unit/cli/frame/test_arguments.py",
    "tests/unit/cli/frame/test_terminal_text.py",
    "tests/unit/test_layers.py",
    "tests/unit/test_portable_suite.py",
    "tests/unit/test_test_quality.py",
    "tests/unit/test_unsteady.py",
)

#: With a POSIX shell and file system: macOS and Linux run these as well.
POSIX = (
    "tests/unit/cli",
    "tests/unit/graph",
    "tests/unit/history",
    "tests/unit/objects",
    "tests/unit/packs",
    "tests/unit/trace",
    "tests/unit/test_portable_imports.py",
    "tests/unit/world/strategies/test_direct.py",
    "tests/unit/recorder/test_api.py",
    "tests/unit/recorder/command/test_pipeline.py",
    "tests/e2e/test_ctx_packs.py",
    "tests/e2e/test_ctx_questions.py",
)


def chosen(system: str = os.name) -> tuple[str, ...]:
    """The list for a system, named as `os.name` does."""
    return (*EVERYWHERE, *POSIX) if system == "posix" else EVERYWHERE


def is_left_out(path: Path, chosen_paths: Iterable[str]) -> bool:
    """Whether `path` neither is in one of `chosen_paths` nor leads to one."""
    try:
        name = path.resolve().relative_to(ROOT)
    except ValueError:
        return True
    wanted = [Path(each) for each in chosen_paths]
    leads = any(name == each or name in each.parents or each in name.parents for each in wanted)
    # A directory's conftest.py belongs to every test below it.
    return not (leads or path.name == "conftest.py")
