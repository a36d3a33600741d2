"""Changes that make other programs run code: what a person should look at before it happens.

A hook runs at the next commit, a task when the editor opens the folder, a shell's start file at
the next login. None of them is forbidden to a command; all of them are named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import RelPath
from substrate.workspace.layer import LayerEntry

#: Whole paths at the root, or (ending in ``/``) directories, or (starting with ``*/``) names at
#: any depth.
_ANYWHERE = frozenset(
    (
        *(b".envrc", b".bashrc", b".bash_profile", b".bash_login", b".bash_logout", b".profile"),
        *(b".zshrc", b".zprofile", b".zshenv", b".zlogin", b".kshrc", b".cshrc", b".tcshrc"),
        *(b".inputrc", b".vimrc", b".nvimrc", b".exrc", b".nvim.lua", b".emacs", b".gdbinit"),
        *(b".lldbinit", b".pythonrc", b".mcp.json", b".pre-commit-config.yaml", b".gitmodules"),
        *(b".dir-locals.el", b".npmrc", b".yarnrc.yml", b"sitecustomize.py"),
    )
)
_PLACES: tuple[tuple[bytes, ...], ...] = (
    (b".claude", b"settings.json"),
    (b".claude", b"settings.local.json"),
    (b".claude", b"hooks"),
    (b".claude", b"commands"),
    (b".vscode", b"tasks.json"),
    (b".vscode", b"launch.json"),
    (b".vscode", b"settings.json"),
    (b".cursor",),
    (b".windsurf",),
    (b".codex",),
    (b".gemini",),
    (b".aider.conf.yml",),
    (b".idea", b"runConfigurations"),
    (b".zed", b"tasks.json"),
    (b".zed", b"settings.json"),
    (b".devcontainer",),
    (b".husky",),
    (b".config", b"fish"),
    (b".ctx", b"config.json"),  # the tools of a replay
)
#: Of all the names here those that do not begin with a dot; the places all do.
_WITHOUT_DOT = frozenset(name for name in _ANYWHERE if not name.startswith(b"."))
#: A path without any of these is in none of them: most are not.
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
#: What `git config` never writes, and what git reads in another way than we do.
_ODD = re.compile(
    rb"\\\r?\n|\A\xef\xbb\xbf|\r(?!\n)|[\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]"
)
_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)')


#: What is looked at in a ``.git`` besides hooks.
_ENDS_IN_GIT = (b"/config", b"/config.worktree", b"/attributes")


def runs_code(
    entries: Iterable[LayerEntry], configs: Callable[[RelPath], tuple[bytes, bytes]]
) -> list[RelPath]:
    """The paths among `entries` that can make something run. `configs` gives the old and the
    new content of a git configuration."""
    out = []
    for one in entries:
        if _is_ordinary(one.path) or _is_gits_own(one.path):
            continue
        if one.new in (ABSENT, one.old) or one.new.kind is Kind.DIRECTORY:
            continue
        parts = tuple(one.path.split(b"/"))
        if b".git" in parts[:-1]:
            if _in_git(parts, one.path, configs):
                out.append(one.path)
        elif parts[-1] == b".git" or _is_named(parts):  # a link to a repository, hooks and all
            out.append(one.path)
    return sorted(out)


def _is_ordinary(path: RelPath) -> bool:
    """Quickly, of most: no part of it begins with a dot, and its name is no other special one."""
    if path.startswith(b".") or path.find(b"/.") >= 0:
        return False
    return path.rpartition(b"/")[2] not in _WITHOUT_DOT


def _is_gits_own(path: RelPath) -> bool:
    """Quickly, of most in a ``.git``: an object, a ref, a log."""
    if not path.startswith(b".git/") and path.find(b"/.git/") < 0:
        return False
    return path.find(b"hooks/") < 0 and not path.endswith(_ENDS_IN_GIT)


def _is_named(parts: tuple[bytes, ...]) -> bool:
    if parts[-1] in _ANYWHERE:
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
        old, new = configs(path)
        if old != new and _ODD.search(new):
            return True  # nobody can say what is in it without being git
        return _programs(new) != _programs(old) and bool(_programs(new) - _programs(old))
    return below == (b"info", b"attributes")


def _programs(config: bytes) -> set[tuple[str, str]]:
    """The settings of a git configuration that name programs."""
    out, section = set(), ""
    for raw in config.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        while match := _SECTION.match(line):  # one line may hold several
            section = match[1].lower() + (f".{match[2]}" if match[2] is not None else "")
            line = match[3].strip()
        if not line or line[0] in "#;":
            continue
        key, _, value = line.partition("=")
        name = f"{section}.{key.strip().lower()}"
        if _GIT_KEYS.fullmatch(name.lower()) and not _is_plain(name.lower()):
            out.add((name, value.strip()))
    return out


def _is_plain(name: str) -> bool:
    """A remote's address and what it fetches are every clone's; they run nothing."""
    return bool(re.fullmatch(r"remote\..*\.(url|fetch|pushurl|tagopt|prune)", name))
