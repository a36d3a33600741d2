"""POSIX ACLs: recorded, restored, and never widened by an undo."""

from __future__ import annotations

import os
import stat
import struct
import sys
from pathlib import Path

import pytest

from substrate.system.files.xattrs import ACL_ACCESS, ACL_DEFAULT
from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("posix-acls", "world-overlay")

ANYBODY = 12345
_TAGS = {"user_obj": 1, "user": 2, "group_obj": 4, "group": 8, "mask": 16, "other": 32}


def acl(*entries: tuple[str, int, int]) -> bytes:
    """As the kernel keeps it: (tag, rights, id)."""
    packed = (struct.pack("<HHI", _TAGS[tag], rights, name) for tag, rights, name in entries)
    return struct.pack("<I", 2) + b"".join(packed)


NONE = 0xFFFFFFFF
#: The named user reads; the owning group does not, although the mode's group bits say so.
CLOSED_TO_GROUP = acl(
    ("user_obj", 6, NONE), ("user", 4, ANYBODY), ("group_obj", 0, NONE), ("mask", 4, NONE),
    ("other", 0, NONE),
)  # fmt: skip
INHERITED = acl(
    ("user_obj", 7, NONE), ("user", 7, ANYBODY), ("group_obj", 5, NONE), ("mask", 7, NONE),
    ("other", 0, NONE),
)  # fmt: skip


def of(path: Path, name: str = ACL_ACCESS) -> bytes:
    return os.getxattr(path, name) if name in os.listxattr(path) else b""


def mode(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def setting(path: str, value: bytes, name: str = ACL_ACCESS) -> str:
    program = f"import os; os.setxattr('{path}', '{name}', bytes.fromhex('{value.hex()}'))"
    return f'{sys.executable} -c "{program}"'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "secret").write_text("secret\n")
    (root / "secret").chmod(0o640)
    (root / "plain").write_text("plain\n")
    (root / "plain").chmod(0o640)
    os.setxattr(root / "secret", ACL_ACCESS, CLOSED_TO_GROUP)
    return root


@pytest.fixture(params=["enabled", "disabled"])
def cli(request: pytest.FixtureRequest, project: Path, tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    cli = Cli(project, home, extra={"SUBSTRATE_WORLD": request.param})
    cli.ok("-c", "true")
    return cli


def test_a_removed_file_comes_back_with_its_acl(cli: Cli, project: Path) -> None:
    cli.ok("-c", "rm secret")
    cli.ok("undo")
    assert of(project / "secret") == CLOSED_TO_GROUP and mode(project / "secret") == 0o640


def test_a_file_replaced_by_another_gets_its_acl_back(cli: Cli, project: Path) -> None:
    cli.ok("-c", "echo new > other && mv other secret")
    assert of(project / "secret") == b""
    cli.ok("undo")
    assert of(project / "secret") == CLOSED_TO_GROUP
    cli.ok("redo")
    assert of(project / "secret") == b"" and mode(project / "secret") == 0o644


def test_a_write_in_place_and_a_chmod_keep_it(cli: Cli, project: Path) -> None:
    cli.ok("-c", "echo more >> secret")
    assert of(project / "secret") == CLOSED_TO_GROUP
    cli.ok("undo")
    assert of(project / "secret") == CLOSED_TO_GROUP and mode(project / "secret") == 0o640
    cli.ok("-c", "chmod 600 secret")
    assert mode(project / "secret") == 0o600
    cli.ok("undo")
    assert of(project / "secret") == CLOSED_TO_GROUP and mode(project / "secret") == 0o640


def test_one_that_a_command_set_arrives_and_is_taken_back(cli: Cli, project: Path) -> None:
    cli.ok("-c", setting("plain", CLOSED_TO_GROUP))
    assert of(project / "plain") == CLOSED_TO_GROUP
    cli.ok("undo")
    assert of(project / "plain") == b"" and mode(project / "plain") == 0o640
    cli.ok("redo")
    assert of(project / "plain") == CLOSED_TO_GROUP and mode(project / "plain") == 0o640


def test_a_default_acl_is_inherited_and_comes_back(cli: Cli, project: Path) -> None:
    cli.ok("-c", f"mkdir d && {setting('d', INHERITED, ACL_DEFAULT)} && echo x > d/new")
    inherited = of(project / "d/new")
    assert of(project / "d", ACL_DEFAULT) == INHERITED and inherited
    cli.ok("-c", "rm -r d")
    cli.ok("undo")
    assert of(project / "d", ACL_DEFAULT) == INHERITED
    assert of(project / "d/new") == inherited
    cli.ok("-c", "echo y > plain2; rm plain")
    cli.ok("undo")
    assert of(project / "plain") == b""


def test_a_default_acl_of_the_project_gives_no_acl_to_what_had_none(
    tmp_path: Path, project: Path
) -> None:
    os.setxattr(project, ACL_DEFAULT, INHERITED)
    home = tmp_path / "home"
    home.mkdir()
    cli = Cli(project, home)
    cli.ok("-c", "true")
    cli.ok("-c", "rm plain; echo new > inherits")
    assert of(project / "inherits"), "as outside a world"
    cli.ok("undo")
    assert of(project / "plain") == b"" and mode(project / "plain") == 0o640
