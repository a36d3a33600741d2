"""Secrets that are known by their shape alone: private keys and services' tokens."""

from __future__ import annotations

import re

from substrate.trace.redact import REDACTED
from substrate.trace.redact_rule import Rule, compiled
from substrate.trace.secret_names import looks_random

_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)"

#: Triggers, and the pattern. Each match starts where no word is going on: ``task-…`` holds no
#: ``sk-…``.
_SHAPES = (
    (("sk-ant-",), r"sk-ant-[\w-]{8,}+"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{16,}+"),
    (("github_pat_",), r"github_pat_\w{16,}+"),
    (("glpat-",), r"glpat-[\w.-]{12,}+"),
    (("glsa_",), r"glsa_\w{16,}+"),
    (("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{8,}+"),
    (("akia", "asia", "abia", "acca"), r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{12,}+"),
    (("aiza",), r"AIza[\w-]{30,}+"),
    (("npm_",), r"npm_[A-Za-z0-9]{20,}+"),
    (("hf_",), r"hf_[A-Za-z0-9]{20,}+"),
    (("dop_v1_",), r"dop_v1_[a-f0-9]{16,}+"),
    (("k_live_", "k_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{12,}+"),
    (("whsec_",), r"whsec_[A-Za-z0-9+/=]{16,}+"),
    (("shpat_",), r"shpat_[A-Fa-f0-9]{16,}+"),
    (("age-secret-key-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{16,}+"),
    (("ya29.",), r"ya29\.[\w-]{16,}+"),
    (("sg.",), r"SG\.[\w-]{16,}+\.[\w-]{16,}+"),
    (("eyj",), r"eyJ[\w-]{8,}+\.[\w-]{4,}+\.[\w-]*+"),
    (("hooks.slack.com/services/",), r"(?<=hooks\.slack\.com/services/)[\w/]{16,}+"),
)
#: These begin like ordinary words: what follows must look like chance, too.
_DOUBTFUL = ("sk-", "pypi-")
_NO_WORD_BEFORE = r"(?<![A-Za-z0-9])"


def _private_keys(text: str) -> str:
    return compiled(_PEM, re.DOTALL).sub(REDACTED, text)


def _shape(triggers: tuple[str, ...], pattern: str) -> Rule:
    whole = _NO_WORD_BEFORE + pattern
    return Rule(triggers, lambda text: compiled(whole, re.ASCII).sub(REDACTED, text))


def _doubtful(prefix: str) -> Rule:
    whole = _NO_WORD_BEFORE + prefix + r"([\w-]{16,}+)"

    def replace(found: re.Match[str]) -> str:
        # One long run of letters is no name that anybody would type, either.
        secret = looks_random(found[1]) or "-" not in found[1]
        return REDACTED if secret else found[0]

    return Rule((prefix,), lambda text: compiled(whole, re.ASCII).sub(replace, text))


RULES = (
    Rule(("private key",), _private_keys),
    *(_shape(triggers, pattern) for triggers, pattern in _SHAPES),
    *(_doubtful(prefix) for prefix in _DOUBTFUL),
)
