"""One module per verb of `ctx`; `cli/ctx.py` lists them."""

from __future__ import annotations
