"""A process of its own that runs one command in the foreground and writes down how it ended.

Usage: foreground_driver.py RESULT OPTIONS ARGV…; OPTIONS is a JSON object.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from substrate.system.process.process import run_foreground


def main() -> None:
    result, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    if options.pop("without_sigtimedwait", False):
        del signal.sigtimedwait
    finished = run_foreground(sys.argv[3:], **options)
    result.with_suffix(".tmp").write_text(json.dumps(finished._asdict()))
    result.with_suffix(".tmp").rename(result)


main()
