"""Reasons for holding a world that schema 2 kept as sentences, as values.

The migration to schema 3 converts them. A ledger that cannot be written, and one that was
salvaged from damage, can still hold sentences: `hold_causes_in` reads both.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator

from substrate.model import Hold, HoldCause, hold_causes_from, hold_causes_json

_REPOSITORY = "your repository was changed on both sides: "
_BASELINE = "perhaps changed by others, too, while the project was read for the first time: "
_CODE = "it changes what other programs run: "
_LEFT = "some of it could not be applied: "
_MORE = re.compile(r"(.*) and ([0-9]+) more", re.DOTALL)
_WHOLE = {
    "asked for with --hold": Hold.REQUESTED,
    "processes of the command are still running": Hold.PROCESSES_RUNNING,
    "the command's recorder was ended": Hold.RECORDER_ENDED,
    "the shell was ended": Hold.SHELL_ENDED,
    "the machine stopped while its command ran": Hold.MACHINE_STOPPED,
    "the history was put aside while the command ran": Hold.HISTORY_REPLACED,
    "the history was put aside before it was recorded": Hold.HISTORY_LOST,
}
_IN_GIT = (
    (re.compile(r"(.*) was moved meanwhile", re.DOTALL), Hold.REF_MOVED),
    (re.compile(r"something was written in (.*) meanwhile", re.DOTALL), Hold.GIT_DIRECTORY_WRITTEN),
    (re.compile(r"(.*) was written meanwhile", re.DOTALL), Hold.GIT_FILE_WRITTEN),
)


def hold_causes_in(record: object) -> tuple[HoldCause, ...]:
    """The causes in an intent or in an entry's detail."""
    return tuple(_from_text(record)) if isinstance(record, str) else hold_causes_from(record)


def convert(connection: sqlite3.Connection) -> None:
    """Replace the sentences in a ledger of schema 2. Inside a transaction."""
    found = connection.execute(
        "SELECT intent_id, payload FROM intents WHERE kind IN ('held', 'discarded')"
    )
    for row in found.fetchall():
        text = _converted(row["payload"], "reason")
        if text:
            connection.execute(
                "UPDATE intents SET payload = ? WHERE intent_id = ?", (text, row["intent_id"])
            )
    found = connection.execute("SELECT seq, detail FROM entries WHERE detail LIKE '%\"held\"%'")
    for row in found.fetchall():
        text = _converted(row["detail"], "held")
        if text:
            connection.execute("UPDATE entries SET detail = ? WHERE seq = ?", (text, row["seq"]))


def _converted(raw: object, field: str) -> str:
    """The record with values in `field`; empty if there is nothing to convert."""
    try:
        record = json.loads(str(raw))
    except ValueError:
        return ""  # damaged: `fsck` reports it
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        return ""
    record[field] = hold_causes_json(_from_text(record[field]))
    return json.dumps(record, sort_keys=True)


def _from_text(text: str) -> Iterator[HoldCause]:
    if not text:
        return
    if text in _WHOLE:
        yield HoldCause(_WHOLE[text])
        return
    if text.startswith(_REPOSITORY):
        in_git, found, baseline = text.removeprefix(_REPOSITORY).partition("; " + _BASELINE)
        yield from map(_in_git, in_git.split("; "))
        if found:
            yield _named(Hold.CHANGED_DURING_BASELINE, baseline)
        return
    for prefix, cause in (
        (_BASELINE, Hold.CHANGED_DURING_BASELINE),
        (_CODE, Hold.RUNS_CODE),
        (_LEFT, Hold.PARTLY_APPLIED),
    ):
        if text.startswith(prefix):
            yield _named(cause, text.removeprefix(prefix))
            return
    yield HoldCause(Hold.OTHER, (text,))


def _in_git(text: str) -> HoldCause:
    for sentence, cause in _IN_GIT:
        found = sentence.fullmatch(text)
        if found is not None:
            return HoldCause(cause, (found[1],))
    return HoldCause(Hold.OTHER, (text,))


def _named(cause: Hold, names: str) -> HoldCause:
    found = _MORE.fullmatch(names) if cause is Hold.CHANGED_DURING_BASELINE else None
    more = int(found[2]) if found is not None else 0
    return HoldCause(cause, tuple((found[1] if found is not None else names).split(", ")), more)
