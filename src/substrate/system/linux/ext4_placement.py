"""Where ext4 creates files slowly, and how to place a directory elsewhere.

ext4 creates files in the inode group of their directory. Without a journal it skips, one by one and
again for each new file, every inode that was deleted there in the last minutes: where a command's
10,000 files were removed, each file of the next command takes 0.4 ms. A directory created in a
marked one (`files.spread_subdirectories`) goes to the group with the fewest directories, which is
often the group whose directory was just removed. So before many files are removed, an attribute of
the parent directory records that group. Removals by other programs are not recorded; but creating a
file there takes several times as long, and that can be measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from substrate.system import clock

_NOTES = "user.substrate.removed"
#: ext4's own choice for blocks of 4 KiB; with other group sizes the search may fail, no more.
_GROUP = 8192
_MANY = 100
#: ext4's own limit: a minute, plus five while the deletion time is not on disk.
_REMEMBERED_S = 360
_MOST_NOTES = 64
#: A place in the group at or beyond this number is slow, too, whichever program removed the files;
#: so is a place where a few new files are this far apart, because ext4 found free inodes only here
#: and there.
_CROWDED, _GAPS = 600, 40
_PROBES = 5
#: Creating a file is this fast only where nothing is skipped. A slower machine tries some more
#: places before it takes the best of them.
_QUICK_NS = 10_000
_ENOUGH = 6
#: Limit on the search: a command may be waiting for its world.
_PATIENCE_NS = 20_000_000


def note_removal(directory: bytes, content: bytes, *others: bytes) -> None:
    """Before `directory` is removed: record its group, if `content` holds many files.

    It is recorded in the parent directory and in `others`, where new directories will be created.
    """
    with suppress(OSError):
        at = os.stat(directory)
        if not _holds_many(content) or not _has_no_journal(at.st_dev):
            return
        for above in dict.fromkeys((os.path.dirname(directory), *others)):
            notes = [*_notes(above), (_group(at), _now_s())][-_MOST_NOTES:]
            os.setxattr(above, _NOTES, b" ".join(b"%d:%d" % one for one in notes))


def cost_ns(directory: bytes, slow: set[int]) -> int | None:
    """The shortest time to create a file there; None: certainly too slow."""
    at = os.stat(directory)
    if _group(at) in slow or _place(at) >= _CROWDED:
        return None
    probes: list[int] = []
    took: list[int] = []
    try:
        flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
        for _ in range(_PROBES):
            start = clock.monotonic_ns()
            probes.append(os.open(directory, flags, 0o600))
            took.append(clock.monotonic_ns() - start)
        places = [_place(os.fstat(fd)) for fd in probes]
    finally:
        for fd in probes:
            os.close(fd)
    if max(places) >= _CROWDED or max(places) - min(places) >= _GAPS:
        return None
    return min(took)


def make_elsewhere(
    directory: bytes,
    spare_names: Iterable[bytes],
    cost_ns: Callable[[bytes, set[int]], int | None] = cost_ns,
) -> None:
    """Replace this empty directory by another, if it is in a recorded group or in a slow place.

    The candidates get `spare_names`, one after the other, and are removed again. They exist until
    the choice is made, because each one makes ext4 place the next elsewhere.
    """
    slow = {group for group, _ in _notes(os.path.dirname(directory))}
    if not slow:
        return
    cost, best = cost_ns(directory, slow), b""
    made: list[bytes] = []
    until = clock.monotonic_ns() + _PATIENCE_NS
    try:
        for name in spare_names:
            is_found = cost is not None and (cost <= _QUICK_NS or len(made) >= _ENOUGH)
            if is_found or clock.monotonic_ns() > until:
                break
            os.mkdir(name, 0o700)
            made.append(name)
            its = cost_ns(name, slow)
            if its is not None and (cost is None or its < cost):
                cost, best = its, name
        if best:
            os.rename(best, directory)
            made.remove(best)
    finally:
        for name in made:
            with suppress(OSError):
                os.rmdir(name)


def _place(at: os.stat_result) -> int:
    """The inode's number within its group."""
    return (at.st_ino - 1) % _GROUP


def _group(at: os.stat_result) -> int:
    return (at.st_ino - 1) // _GROUP


def _now_s() -> int:
    return clock.now_ns() // 1_000_000_000


def _notes(directory: bytes) -> list[tuple[int, int]]:
    """The recorded groups, each with the time of the removal."""
    try:
        found = os.getxattr(directory, _NOTES)
        notes = [tuple(map(int, one.split(b":"))) for one in found.split()]
        now = _now_s()
        return [(group, at) for group, at in notes if 0 <= now - at < _REMEMBERED_S]
    except (OSError, ValueError):  # no record, or not one of ours
        return []


def _holds_many(directory: bytes) -> bool:
    count, pending = 0, [directory]
    while pending and count < _MANY:
        with os.scandir(pending.pop()) as found:
            entries = list(found)
        count += len(entries)
        pending += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
    return count >= _MANY


def _has_no_journal(device: int) -> bool:
    """Only an ext4 without a journal skips recently deleted inodes."""
    try:
        link = os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        with open(f"/sys/fs/ext4/{os.path.basename(link)}/journal_task", "rb") as file:
            return file.read().strip() == b"<none>"
    except OSError:
        return False
