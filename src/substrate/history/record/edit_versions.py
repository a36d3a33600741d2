"""Which content an edit tool found and which it left, from its report, history and the disk.

    tip ──outside edit──▶ before ──the tool──▶ after ──outside edit──▶ disk

The tip and the disk are known. Whatever the tool did not do in between was done by others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from substrate.model import CannotEditError, ReportedEdit

_BOM = b"\xef\xbb\xbf"


class Versions(NamedTuple):
    before: bytes | None
    after: bytes | None
    #: False: the report does not fit what is there, so the change may be another process's.
    is_certain: bool = True


def versions(reported: ReportedEdit, tip: bytes | None, disk: bytes | None) -> Versions:
    """`tip`, `disk`: the file in history and in the tree; None where there is none."""
    if reported.before is None:
        return _from_tip(reported, tip, disk)
    if _looks_like(tip, reported.before.data):
        return _since_tip(reported, tip, disk)
    for form in _forms():
        before = form(reported.before.data)
        after = _after(reported, before, form)
        if after is not None and after.data == disk:
            return Versions(before, disk)
    # Others have edited the file since: then its style shows how the tool wrote it.
    form = _style_of(tip, disk)
    before = form(reported.before.data)
    after = _after(reported, before, form)
    return Versions(before, after.data) if after is not None else Versions(before, disk)


def _looks_like(tip: bytes | None, reported: bytes | None) -> bool:
    """Whether the report shows this content: as text, with plain line ends and without a BOM.

    Bytes that are not UTF-8, and mixed line ends, cannot be told from the report.
    """
    if tip is None or reported is None:
        return not tip and not reported
    return _as_reported(tip) == _as_reported(reported)


def _as_reported(data: bytes) -> str:
    text = data.removeprefix(_BOM).decode("utf-8", "replace")
    return text.replace("\r\n", "\n")


def _since_tip(reported: ReportedEdit, tip: bytes | None, disk: bytes | None) -> Versions:
    """The tool found the tip; `disk` is what it left, unless others have edited the file since."""
    for form in _forms():
        after = _after(reported, form(reported.before.data if reported.before else None), form)
        if after is not None and _looks_like(disk, after.data):
            return Versions(tip, disk)
    form = _style_of(tip, disk)
    after = _after(reported, form(reported.before.data if reported.before else None), form)
    return Versions(tip, after.data if after is not None else disk)


def _from_tip(reported: ReportedEdit, tip: bytes | None, disk: bytes | None) -> Versions:
    """Without the content that the tool found: it is the tip, recorded right before the call."""
    if reported.after is not None:
        for form in _forms():
            if form(reported.after.data) == disk:
                return Versions(tip, disk)
        return Versions(tip, _style_of(tip, disk)(reported.after.data))
    if reported.rewrite is None:
        return Versions(tip, disk)
    if tip == disk:  # the tool failed, or its change is recorded already
        return Versions(tip, disk)
    for form in _forms():
        try:
            after = form(reported.rewrite(_plain(tip, form)))
        except CannotEditError:
            continue
        if after == disk:
            return Versions(tip, disk)
    try:
        form = _style_of(tip, disk)
        return Versions(tip, form(reported.rewrite(_plain(tip, form))))
    except CannotEditError:
        return Versions(tip, disk, is_certain=False)


class _After(NamedTuple):
    data: bytes | None


Form = Callable[[bytes | None], bytes | None]


def _after(reported: ReportedEdit, before: bytes | None, form: Form) -> _After | None:
    if reported.after is not None:
        return _After(form(reported.after.data))
    if reported.rewrite is None:
        return None
    try:
        return _After(form(reported.rewrite(_plain(before, form))))
    except CannotEditError:
        return None


def _forms() -> Iterator[Form]:
    """Agents report text with plain line ends and without a byte order mark."""
    yield _same
    yield _with_crlf
    yield _with_bom
    yield lambda data: _with_bom(_with_crlf(data))


def _style_of(tip: bytes | None, disk: bytes | None) -> Form:
    known = tip if tip is not None else disk or b""
    has_crlf, has_bom = b"\r\n" in known, known.startswith(_BOM)
    if has_crlf and has_bom:
        return lambda data: _with_bom(_with_crlf(data))
    if has_crlf:
        return _with_crlf
    return _with_bom if has_bom else _same


def _same(data: bytes | None) -> bytes | None:
    return data


def _with_crlf(data: bytes | None) -> bytes | None:
    return None if data is None else data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _with_bom(data: bytes | None) -> bytes | None:
    return data if data is None or data.startswith(_BOM) else _BOM + data


def _plain(data: bytes | None, form: Form) -> bytes | None:
    """The content as the tool sees it, if it writes in this form."""
    if data is None or form is _same:
        return data
    return data.removeprefix(_BOM).replace(b"\r\n", b"\n")
