"""Changes that make other programs run code: the user should review them first.

A hook runs at the next commit, a task when the editor opens the folder, a shell's start file at
the next login. A command may make all of these changes; Substrate names every one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from substrate.model import ABSENT, Kind, RelPath
from substrate.recorder.arrival.code_file_rules import ENDINGS, NAMES, PLACES
from substrate.recorder.user_git import GitLinks, settings
from substrate.workspace.apply import LayerEntry

_PLACES = tuple(tuple(place.split(b"/")) for place in PLACES)
_ENDINGS = tuple(ENDINGS)
#: The names that do not begin with a dot; all places do.
_WITHOUT_DOT = frozenset(name for name in NAMES if not name.startswith(b"."))
#: A path without any of these parts is in none of the places: true for most paths.
_PLACES_BEGIN = frozenset(place[0] for place in _PLACES)
#: Keys of git's configuration whose value is a program, or leads to one.
_GIT_KEYS = re.compile(
    r"core\.(fsmonitor|hookspath|sshcommand|pager|editor|askpass|gitproxy|attributesfile"
    r"|alternaterefscommand)"
    r"|(filter|diff|merge)\..*\.?(clean|smudge|process|command|textconv|driver)"
    r"|alias\..*|credential\..*|gpg\..*(program|command)|sequence\.editor|include(if)?\..*path"
    r"|(pager|difftool|mergetool|browser|man|guitool|remote|url|protocol)\..*"
    r"|(submodule\..*|trailer|tar|hook|sendemail|gc|imap)\..*(update|command|cmd|hook|tunnel)"
    r"|uploadpack\.packobjectshook|interactive\.difffilter|diff\.external|init\.templatedir"
)
#: What `git config` never writes, and what git parses differently from our parser.
_ODD = re.compile(
    rb"\\\r?\n|\A\xef\xbb\xbf|\r(?!\n)|[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]"
)


#: The files checked in a ``.git`` besides hooks.
_ENDS_IN_GIT = (b"/config", b"/config.worktree", b"/attributes")
_NO_LINKS = GitLinks()


def runs_code(
    entries: Iterable[LayerEntry],
    configs: Callable[[RelPath], tuple[bytes, bytes]],
    links: GitLinks = _NO_LINKS,
) -> list[RelPath]:
    """The paths among `entries` that can make other programs run code.

    `configs` gives the old and the new content of a git configuration, `links` the files that the
    repository's settings refer to.
    """
    out = []
    for one in entries:
        linked = one.path in links.included or links.is_hook(one.path)
        if not linked and (_is_ordinary(one.path) or _is_gits_own(one.path)):
            continue
        if one.new in (ABSENT, one.old) or one.new.kind is Kind.DIRECTORY:
            continue
        if linked:
            found = links.is_hook(one.path) or _has_new_programs(*configs(one.path))
        else:
            found = _makes_run(one.path, configs)
        if found:
            out.append(one.path)
    return sorted(out)


def _makes_run(path: RelPath, configs: Callable[[RelPath], tuple[bytes, bytes]]) -> bool:
    parts = tuple(path.split(b"/"))
    if b".git" in parts[:-1]:
        return _in_git(parts, path, configs)
    return parts[-1] == b".git" or _is_named(parts)  # a link to a repository, hooks and all


def _is_ordinary(path: RelPath) -> bool:
    """A quick check for most paths: no part begins with a dot, and the name is not special."""
    if path.startswith(b".") or path.find(b"/.") >= 0 or path.endswith(_ENDINGS):
        return False
    return path.rpartition(b"/")[2] not in _WITHOUT_DOT


def _is_gits_own(path: RelPath) -> bool:
    """A quick check for most paths in a ``.git``: an object, a ref, a log."""
    if not path.startswith(b".git/") and path.find(b"/.git/") < 0:
        return False
    return path.find(b"hooks/") < 0 and not path.endswith(_ENDS_IN_GIT)


def _is_named(parts: tuple[bytes, ...]) -> bool:
    if parts[-1] in NAMES or parts[-1].endswith(_ENDINGS):
        return True
    if _PLACES_BEGIN.isdisjoint(parts):
        return False
    for place in _PLACES:
        width = len(place)
        if any(parts[at : at + width] == place for at in range(len(parts) - width + 1)):
            return True
    return False


def _in_git(
    parts: tuple[bytes, ...],
    path: RelPath,
    configs: Callable[[RelPath], tuple[bytes, bytes]],
) -> bool:
    below = parts[len(parts) - 1 - parts[::-1].index(b".git") + 1 :]
    if b"hooks" in below[:-1]:
        return not parts[-1].endswith(b".sample")
    if parts[-1] in (b"config", b"config.worktree"):
        return _has_new_programs(*configs(path))
    return below == (b"info", b"attributes")


def _has_new_programs(old: bytes, new: bytes) -> bool:
    if old != new and _ODD.search(new):
        return True  # only git can parse it
    return bool(_programs(new) - _programs(old))


def _programs(config: bytes) -> set[tuple[str, str]]:
    """The settings of a git configuration that name programs."""
    return {
        (name, value)
        for name, value in settings(config)
        if _GIT_KEYS.fullmatch(name.lower()) and not _is_plain(name.lower())
    }


def _is_plain(name: str) -> bool:
    """Every clone has a remote's address and fetch settings; they run nothing."""
    return bool(re.fullmatch(r"remote\..*\.(url|fetch|pushurl|tagopt|prune)", name))
