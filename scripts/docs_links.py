"""A hook of mkdocs: links from a page in `docs/` to other files of the repository.

The site does not have those files. With `repo_url` in mkdocs.yml such a link leads to the
repository; without it only its text stays. A link to a file that does not exist is a warning, and
so fails `mkdocs build --strict`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]+)\)")
_LOG = logging.getLogger("mkdocs.hooks.docs_links")


def on_page_markdown(markdown: str, page: Any, config: Mapping[str, Any], **_: object) -> str:
    """Called by mkdocs for each page."""
    directory = ROOT / "docs" / Path(page.file.src_uri).parent
    repository = config.get("repo_url")

    def linked(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = (directory / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            return found[0]  # another page: mkdocs checks it
        if not path.exists():
            _LOG.warning("%s links to %s, which does not exist", page.file.src_uri, target)
        if not repository:
            return text
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path.relative_to(ROOT)})"

    return _LINK.sub(linked, markdown)
