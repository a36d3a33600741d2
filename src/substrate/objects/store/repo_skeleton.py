"""The files of a new, ordinary git repository, written without running git."""

from __future__ import annotations

from pathlib import Path

from substrate.system.files import fsync_dir, write_atomic

# The contents of a `.gitmodules` or `.gitattributes` belong to the user: `git fsck --strict` must
# not report them as errors of our store.
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

# Packs taken over from the user also contain their old commits, written by unknown programs. Errors
# in those do not prevent reading blobs; `signature` makes the identity lines of our own commits.
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
    """Make `git_dir` a repository that plain git can read; existing files stay."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (git_dir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    ignored = _USER_CONTENT_CHECKS + _OLD_HISTORY_CHECKS
    config = _CONFIG + "".join(f"\t{check} = ignore\n" for check in ignored)
    _write_new(git_dir / "config", config)
    # HEAD last: it makes the directory a repository.
    _write_new(git_dir / "HEAD", "ref: refs/heads/main\n")
    fsync_dir(git_dir.parent)


def _write_new(path: Path, text: str) -> None:
    """Write the file, synced; also if it exists but is empty, as a power cut leaves it."""
    try:
        if path.stat().st_size:
            return
    except FileNotFoundError:
        pass
    write_atomic(path, text.encode())
