"""Commands that change thousands of files at once: what they are, round by round."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Bulk(NamedTuple):
    """`command` of the n-th round, in a tree that the rounds before have changed."""

    name: str
    command: Callable[[int], str]


def bulk_work() -> list[Bulk]:
    """For a tree of `bench.trees.make_tree`, after `prepare`."""
    return [
        Bulk("modes of 10,000 files", lambda n: f"chmod -R {'o-r' if n % 2 else 'o+r'} bulk"),
        Bulk(
            "times of 10,000 files", lambda n: f"find bulk -type f -exec touch -d @{n + 1} {{}} +"
        ),
        Bulk("10,000 files in a renamed directory", lambda n: f"mv moved{n} moved{n + 1}"),
        Bulk("rm -r of 10,000 files", lambda n: f"rm -r gone{n}"),
    ]


def prepare(rounds: int) -> str:
    """Makes the directories that these commands work in, for so many rounds."""
    gone = " ".join(f"gone{number}" for number in range(rounds))
    return f"for d in bulk moved0 {gone}; do mkdir $d; cp -a part* $d; done"
