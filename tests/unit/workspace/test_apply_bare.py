"""Apply on a Python without any of the modules that only some systems have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
for name in ("fcntl", "pwd", "grp", "resource", "termios", "ctypes", "_ctypes", "msvcrt"):
    sys.modules[name] = None
from pathlib import Path
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import rel_path
from substrate.system.sync.locks import FileLock
from substrate.workspace.apply.apply import Applier
from substrate.workspace.apply.plan import How, Op, Plan
from substrate.workspace.paths.read_node import blob_id
from substrate.workspace.apply.trash import Trash

class Blobs(dict):
    def read_blob(self, oid):
        return self[oid]

root = Path(sys.argv[1])
blobs = Blobs()
def file(data):
    blobs[blob_id(data)] = data
    return Node(Kind.FILE, 0o644, blob_id(data))

def apply(*ops):
    with FileLock(root / "lock"):
        applier = Applier(root, root / ".substrate-git" / "op", blobs, Trash(root / "trash"))
        return applier.carry_out(applier.stage(Plan.of(ops)))

d, x, y = rel_path(b"d"), rel_path(b"d/x"), rel_path(b"y")
directory = Node(Kind.DIRECTORY, 0o755)
assert apply(Op(d, ABSENT, directory), Op(x, ABSENT, file(b"1"))).complete
assert apply(Op(x, file(b"1"), file(b"2")), Op(y, ABSENT, file(b"y"))).complete
assert apply(Op(x, file(b"2"), file(b"3"), How.IN_PLACE)).complete
assert apply(Op(y, file(b"y"), directory)).complete
assert (root / "d" / "x").read_bytes() == b"3" and (root / "y").is_dir()
assert apply(Op(x, file(b"1"), ABSENT)).conflicts
assert apply(Op(x, file(b"3"), ABSENT), Op(d, directory, ABSENT)).complete
"""


def test_apply_needs_none_of_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
