"""Ways in which a store gets hurt, and a check that the workspace was not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.unit.history.workbench import Bench


def store_dir(bench: Bench) -> Path:
    return bench.root / ".substrate-git"


def flip_bit(path: Path, at: int | None = None) -> None:
    """One bit of a file, in its middle unless told."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 0x10
    path.chmod(0o600)
    path.write_bytes(bytes(data))


def loose_objects(bench: Bench) -> list[Path]:
    objects = store_dir(bench) / ".git/objects"
    return sorted(p for d in objects.iterdir() if len(d.name) == 2 for p in d.iterdir())


def packs(bench: Bench) -> list[Path]:
    return sorted((store_dir(bench) / ".git/objects/pack").glob("*.pack"))


def loose_path(bench: Bench, oid: bytes) -> Path:
    name = oid.hex()
    return store_dir(bench) / ".git/objects" / name[:2] / name[2:]


def flip_in_pack(bench: Bench) -> None:
    flip_bit(packs(bench)[0])


def truncate_pack(bench: Bench) -> None:
    pack = packs(bench)[0]
    pack.chmod(0o600)
    os.truncate(pack, pack.stat().st_size // 2)


def truncate_pack_index(bench: Bench) -> None:
    index = packs(bench)[0].with_suffix(".idx")
    index.chmod(0o600)
    os.truncate(index, 100)


def empty_head(bench: Bench) -> None:
    (store_dir(bench) / ".git/HEAD").write_bytes(b"")


def remove_head(bench: Bench) -> None:
    (store_dir(bench) / ".git/HEAD").unlink()


def empty_branch(bench: Bench) -> None:
    (store_dir(bench) / ".git/refs/heads/main").write_bytes(b"")


def garble_branch(bench: Bench) -> None:
    (store_dir(bench) / ".git/refs/heads/main").write_bytes(b"0" * 39 + b"x\n")


def _ledger(bench: Bench) -> Path:
    ledger = store_dir(bench) / "index/history.db"
    for name in ("-wal", "-shm"):
        ledger.with_name(ledger.name + name).unlink(missing_ok=True)
    return ledger


def truncate_ledger(bench: Bench) -> None:
    ledger = _ledger(bench)
    os.truncate(ledger, ledger.stat().st_size // 2)


def garble_ledger(bench: Bench) -> None:
    _ledger(bench).write_bytes(b"this is no database\n" * 1000)


def empty_ledger(bench: Bench) -> None:
    _ledger(bench).write_bytes(b"")


def delete_ledger(bench: Bench) -> None:
    _ledger(bench).unlink()


def garble_ledger_page(bench: Bench) -> None:
    """The header is sound, a page behind it is not."""
    ledger = _ledger(bench)
    with ledger.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 8192)


LEDGER_DAMAGE: dict[str, Callable[[Bench], None]] = {
    "ledger truncated": truncate_ledger,
    "ledger garbage": garble_ledger,
    "ledger emptied": empty_ledger,
    "ledger deleted": delete_ledger,
    "ledger page garbled": garble_ledger_page,
}
REF_DAMAGE: dict[str, Callable[[Bench], None]] = {
    "HEAD emptied": empty_head,
    "HEAD removed": remove_head,
    "branch emptied": empty_branch,
    "branch garbled": garble_branch,
}
PACK_DAMAGE: dict[str, Callable[[Bench], None]] = {
    "bit flipped in a pack": flip_in_pack,
    "pack truncated": truncate_pack,
    "pack index truncated": truncate_pack_index,
}
