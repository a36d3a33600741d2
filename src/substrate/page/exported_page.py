"""A part of history as one HTML file: no script, no network, secrets blacked out.

Commands, prompts and diffs pass the redaction of the trace. It finds what looks like a secret, not
every secret. Output of commands is not in the file, and contents of private files only on request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from fnmatch import fnmatch
from typing import NamedTuple

from substrate.page.static_files import DIRECTORY
from substrate.recorder import Entry, HistoryStore, Place, Prompt, queries, redact, scopes
from substrate.review import diff_document, scope_meant
from substrate.system import clock

_MOST_ENTRIES = 2_000
#: Files whose contents are left out: their names are shown.
_PRIVATE = (".env*", "*.pem", "*.key", "*.p12", "id_*", ".netrc", ".npmrc", ".pypirc", "*secret*")
#: Characters that act on their surroundings: control, bidi, invisible.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
)
_CLASSES = {"+": "a", "-": "d", " ": ""}
_MARK = "[redacted]"
_EXTRA_STYLE = (
    "body{overflow:auto}main{max-width:1100px;margin:0 auto;padding:16px}"
    "details{border-bottom:1px solid var(--line);padding:4px 0}summary{cursor:pointer}"
    "section.prompt{margin-top:24px}"
)


class Exported(NamedTuple):
    data: bytes
    entries: int
    #: How many places were blacked out.
    secrets: int
    #: Private files whose contents were left out.
    left_out: int


class _Text:
    """Text on its way into the file: redacted, then escaped. It counts what it blacks out."""

    def __init__(self) -> None:
        self.secrets = 0

    def redacted(self, text: str) -> str:
        found = redact(text)
        if found != text:
            self.secrets += max(found.count(_MARK) - text.count(_MARK), 1)
        return found

    def shown(self, text: str) -> str:
        return _escaped(self.redacted(text))

    def lines(self, texts: list[str]) -> list[str]:
        """Redacted together: a key spans several lines."""
        found = self.redacted("\n".join(texts)).split("\n")
        if len(found) != len(texts):
            found = [_MARK] * len(texts)
        return [_escaped(one) for one in found]


def _escaped(text: str) -> str:
    def code(match: re.Match[str]) -> str:
        number = ord(match[0])
        shown = f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
        return f'<span class="odd">{shown}</span>'

    return _ODD.sub(code, html.escape(text))


def _value(value: object) -> str:
    """A value that should be a number or a word of ours. The ledger may hold anything."""
    return _escaped(str(value))


def export_html(place: Place, scope: str, *, private: bool = False) -> Exported:
    """`scope` is as in /v1/diff; empty: all of history. `private`: with private files' contents."""
    with place.existing_history() as store:
        found = scope_meant(scope, place).find(store) if scope else scopes.everything(store, None)
        entries = list(reversed(found.entries[:_MOST_ENTRIES]))
        prompts = queries.prompts_of(store, entries)
        text = _Text()
        title = text.shown(f"{place.workspace.root.name}: {found.name}")
        left_out = len(found.entries) - len(entries)
        known = [(entry, _is_shown(store, entry)) for entry in entries]
    parts: list[str] = []
    hidden = 0
    group = ""
    for entry, has_diff in known:
        prompt = prompts.get(entry.command_id)
        if prompt is not None and prompt.prompt_id != group:
            group = prompt.prompt_id
            parts.append(_prompt(prompt, text))
        body, more = _diff(place, entry, text, private=private) if has_diff else ("", 0)
        hidden += more
        parts.append(_entry(entry, body, text))
    about = f"{len(entries)} commands; {text.secrets} secrets blacked out"
    if left_out:
        about += f"; {left_out} older commands are not in this file"
    data = _page(title, about, "".join(parts))
    return Exported(data, len(entries), text.secrets, hidden)


def _is_shown(store: HistoryStore, entry: Entry) -> bool:
    return entry.commit is not None and store.parent_snapshot(entry.commit) is not None


def _prompt(prompt: Prompt, text: _Text) -> str:
    at = clock.iso(prompt.started_ns)[:16].replace("T", " ")
    said = text.shown(prompt.text) or "(its text was not reported)"
    return f'<section class="prompt"><h2>{said}</h2><p class="dim">{_value(at)} UTC</p></section>'


def _entry(entry: Entry, body: str, text: _Text) -> str:
    at = clock.iso(entry.ts_ns)[:19].replace("T", " ")
    failed = (
        ""
        if entry.exit in (None, 0)
        else f' <span class="tag bad">exit {_value(entry.exit)}</span>'
    )
    who, kind = text.shown(entry.agent_id or ""), _value(entry.kind)
    about = f'<span class="dim">{_value(at)} UTC · {who} · {kind}</span>'
    line = f"<code>{text.shown(entry.command)}</code>{failed} {about}"
    if not body:
        return f"<p>{line}</p>"
    return f"<details><summary>{line}</summary>{body}</details>"


def _diff(place: Place, entry: Entry, text: _Text, *, private: bool) -> tuple[str, int]:
    out, hidden = [], 0
    document = diff_document(place, entry.command_id)
    files = document["files"]
    assert isinstance(files, list)
    for file in files:
        name = str(file["path"])
        counts = f"{file['change']} +{file['additions']} −{file['deletions']}"
        out.append(f'<div class="f-head"><span class="path"><b>{text.shown(name)}</b></span>')
        out.append(f'<span class="dim">{_value(counts)}</span></div>')
        last = name.rpartition("/")[2].lower()
        if not private and any(fnmatch(last, one) for one in _PRIVATE):
            hidden += 1
            out.append('<p class="dim">A private file: its contents are not in this page.</p>')
            continue
        out += [_hunk(hunk["lines"], text) for hunk in file["hunks"]]
    return "".join(out), hidden


def _hunk(lines: list[list[object]], text: _Text) -> str:
    shown = text.lines([str(line[3]) for line in lines])
    rows = [
        f'<div class="ln {_CLASSES[str(sign)]}">'
        f"<b>{_value(old or '')}</b><b>{_value(new or '')}</b>"
        f"<u>{html.escape(str(sign))}</u><span>{one}</span></div>"
        for (sign, old, new, _), one in zip(lines, shown, strict=True)
    ]
    return f'<div class="code">{"".join(rows)}</div>'


def _page(title: str, about: str, body: str) -> bytes:
    style = (DIRECTORY / "page.css").read_text("utf-8")
    dark = re.search(r':root\[data-theme="dark"\] (\{.*?\n\})', style, re.S)
    if dark is not None:  # without a script the system decides
        style += f"@media (prefers-color-scheme: dark) {{ :root {dark[1]} }}"
    style += _EXTRA_STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><main>"
        f'<h1>{title}</h1><p class="dim">{about}. Rules find what looks like a secret, not every'
        f" secret.</p>{body}</main></body></html>\n"
    ).encode("utf-8", "backslashreplace")
