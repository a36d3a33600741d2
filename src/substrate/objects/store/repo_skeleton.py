"""The files of a new, ordinary git repository, written without running git."""

from __future__ import annotations

from pathlib import Path

from substrate.system.files import fsync_dir, write_atomic

# What a user keeps in a `.gitmodules` or `.gitattributes` is their content, not a fault of ours:
# `git fsck --strict` must not stumble over it.
_USER_CONTENT_CHECKS = (
    "gitmodulesBlob",
    "gitmodulesLarge",
    "gitmodulesMissing",
    "gitmodulesName",
    "gitmodulesParse",
    "gitmodulesPath",
    "gitmodulesSymlink",
    "gitmodulesUpdate",
    "gitmodulesUrl",
    "gitattributesBlob",
    "gitattributesLarge",
    "gitattributesLineLength",
    "gitattributesMissing",
    "gitattributesSymlink",
    "gitignoreSymlink",
    "mailmapSymlink",
)

# Packs taken over from the user hold their old commits as well, written by who knows what. Nothing
# that is wrong with those is in the way of reading blobs; our own are made by `signature`.
_OLD_HISTORY_CHECKS = (
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badFilemode",
    "badName",
    "badTagName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "missingTaggerEntry",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
)

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = false
\tquotepath = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[fsck]
"""


def create_repository(git_dir: Path) -> None:
    """Make `git_dir` a repository that plain git can read; what is there already stays."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (git_dir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    ignored = _USER_CONTENT_CHECKS + _OLD_HISTORY_CHECKS
    config = _CONFIG + "".join(f"\t{check} = ignore\n" for check in ignored)
    _write_new(git_dir / "config", config)
    # HEAD last: it is what makes the directory a repository.
    _write_new(git_dir / "HEAD", "ref: refs/heads/main\n")
    fsync_dir(git_dir.parent)


def _write_new(path: Path, text: str) -> None:
    """Synced, and written anew where it is empty: a power cut leaves such files."""
    try:
        if path.stat().st_size:
            return
    except FileNotFoundError:
        pass
    write_atomic(path, text.encode())
