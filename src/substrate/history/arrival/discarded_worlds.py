"""Discarded worlds: kept until they expire, by the same rules as the trash.

Each is an intent in the ledger, of a kind of its own: its directory and its base stay, and no
list of held worlds shows it. `world apply` can still apply it.
"""

from __future__ import annotations

import os

from substrate.history.arrival import held_world_rows
from substrate.history.arrival.held_world_rows import DISCARDED, Held
from substrate.history.maintenance import metrics
from substrate.history.store import HistoryStore

_DAY_NS = 86_400 * 10**9


def put_aside(store: HistoryStore, world: Held) -> None:
    """Inside the lock. Its directory stays where it is."""
    intents = {one.intent_id: one for one in store.ledger.intents()}
    payload = {**intents[world.intent_id].payload, "state": DISCARDED}
    with store.commit_point() as ledger:
        ledger.drop_intent(world.intent_id)
        ledger.add_intent(store.new_intent(DISCARDED, payload))
        entry = ledger.by_command_id(world.command_id)
        if entry is not None:
            ledger.add_detail(entry, discarded=True)


def was_applied(store: HistoryStore, world: Held) -> None:
    """The world's change has arrived after all: the log no longer says that it was discarded."""
    entry = store.ledger.by_command_id(world.command_id)
    if entry is not None:
        with store.commit_point() as ledger:
            ledger.add_detail(entry, discarded=None)


def may_stay(world: Held) -> bool:
    """Whether the disk has room for it: a world that would fill the disk is removed at once."""
    directory = world.directory
    if directory is None:
        return False
    room = os.statvfs(directory)
    return room.f_bavail * room.f_frsize > metrics.disk_bytes(directory)


def expire(store: HistoryStore) -> list[str]:
    """Remove worlds older than the trash's age limit, then the oldest until the rest fits."""
    config = store.config
    days = store.own_days()
    intents = {one.intent_id: one for one in store.ledger.intents() if one.kind == DISCARDED}
    if not intents:
        return []
    worlds = held_world_rows.discarded(store)
    sizes = {
        one.intent_id: metrics.disk_bytes(one.directory) if one.directory else 0 for one in worlds
    }
    total, gone = sum(sizes.values()), []
    for world in worlds:
        age_ns = days.age_of(intents[world.intent_id].ts_ns)
        is_old = age_ns > config.trash_max_age_days * _DAY_NS
        if not is_old and total <= config.trash_max_mib << 20:
            continue
        total -= sizes[world.intent_id]
        directory = world.directory
        held_world_rows.let_go(store, world)
        if directory is not None:
            held_world_rows.remove_directory(directory)
        gone.append(world.world_id)
    return gone
