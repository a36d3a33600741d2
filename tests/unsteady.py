"""Which tests may fail beside others and pass alone: those of `unsteady.toml`, for a time.

python -m tests.unsteady ID…     names those that have no entry that still counts; status 1
"""

from __future__ import annotations

import datetime
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_name("unsteady.toml")
COUNTS_FOR = datetime.timedelta(days=60)


def unexcused(ids: Iterable[str], text: str, today: datetime.date) -> list[str]:
    """Those of `ids` without an entry in the list `text`, or with an entry that is too old."""
    known = {str(one["id"]): one["since"] for one in tomllib.loads(text).get("test", [])}
    return [
        name
        for name in ids
        if name not in known or not known[name] <= today <= known[name] + COUNTS_FOR
    ]


def main(ids: list[str]) -> int:
    today = datetime.datetime.now(datetime.UTC).date()
    found = unexcused(ids, LIST.read_text(encoding="utf-8"), today)
    for name in found:
        print(f"failed beside others, passed alone, and is not in tests/unsteady.toml: {name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
