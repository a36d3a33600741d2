"""Secrets recognisable by their shape alone: private keys and the tokens of known services."""

from __future__ import annotations

import re

from substrate.trace.redact.redact_rule import Rule, compiled
from substrate.trace.redact.redact_text import REDACTED
from substrate.trace.redact.secret_names import looks_random

_PEM = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\Z)"

#: Triggers, and the pattern, whose group stays. A match never starts inside a word: ``task-…``
#: does not match ``sk-…``.
_SHAPES = (
    (("sk-ant-",), r"sk-ant-[\w-]{8,}+"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{16,}+"),
    (("github_pat_",), r"github_pat_\w{16,}+"),
    (("glpat-", "gldt-", "glrt-", "glptt-"), r"gl(?:pat|dt|rt|ptt)-[\w.-]{12,}+"),
    (("glsa_",), r"glsa_\w{16,}+"),
    (("xox", "xapp-"), r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{8,}+"),
    (("akia", "asia", "abia", "acca"), r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{12,}+"),
    (("aiza",), r"AIza[\w-]{30,}+"),
    (("npm_",), r"npm_[A-Za-z0-9]{20,}+"),
    (("hf_",), r"hf_[A-Za-z0-9]{20,}+"),
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"do[por]_v1_[a-f0-9]{16,}+"),
    (("k_live_", "k_test_"), r"[sr]k_(?:live|test)_[A-Za-z0-9]{12,}+"),
    (("whsec_",), r"whsec_[A-Za-z0-9+/=]{16,}+"),
    (("shpat_", "shpss_", "shpca_", "shppa_"), r"shp(?:at|ss|ca|pa)_[A-Fa-f0-9]{16,}+"),
    (("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[\w-]{16,}+"),
    (("dckr_pat_",), r"dckr_pat_[\w-]{16,}+"),
    (("lin_api_",), r"lin_api_[A-Za-z0-9]{16,}+"),
    (("figd_",), r"figd_[\w-]{16,}+"),
    (("gsk_",), r"gsk_[A-Za-z0-9]{20,}+"),
    (("r8_",), r"r8_[A-Za-z0-9]{30,}+"),
    (("nvapi-",), r"nvapi-[\w-]{20,}+"),
    (("sntrys_", "sntryu_"), r"sntry[su]_[\w+/=-]{20,}+"),
    (("rubygems_",), r"rubygems_[a-f0-9]{20,}+"),
    (("dapi",), r"dapi[a-f0-9]{32}(?![A-Za-z0-9])"),
    (("tskey-",), r"tskey-[a-z]++-[\w-]{12,}+"),
    (("pul-",), r"pul-[a-f0-9]{40}(?![A-Za-z0-9])"),
    (("nrak-",), r"NRAK-[A-Z0-9]{20,}+"),
    (("gocspx-",), r"GOCSPX-[\w-]{16,}+"),
    (("atatt3x",), r"ATATT3x[\w=-]{16,}+"),
    (("sbp_",), r"sbp_[a-f0-9]{40}(?![A-Za-z0-9])"),
    (("ntn_",), r"ntn_[A-Za-z0-9]{20,}+"),
    (("xkeysib-",), r"xkeysib-[a-f0-9-]{20,}+"),
    (("pmak-",), r"PMAK-[a-f0-9-]{20,}+"),
    (("phx_",), r"phx_[A-Za-z0-9]{20,}+"),
    (("glc_",), r"glc_[A-Za-z0-9+/=]{20,}+"),
    (("age-secret-key-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{16,}+"),
    (("ya29.",), r"ya29\.[\w-]{16,}+"),
    (("sg.",), r"SG\.[\w-]{16,}+\.[\w-]{16,}+"),
    (("eyj",), r"eyJ[\w-]{8,}+\.[\w-]{4,}+\.[\w-]*+"),
    (("hooks.slack.com/services/",), r"(hooks\.slack\.com/services/)[\w/]{16,}+"),
    (("/api/webhooks/",), r"(discord(?:app)?\.com/api/webhooks/\d++/)[\w-]{16,}+"),
    (("api.telegram.org/bot",), r"(api\.telegram\.org/bot\d++:)[\w-]{16,}+"),
)
#: These begin like ordinary words, so the text after them must also look random.
_DOUBTFUL = ("sk-", "pypi-", "xai-")
_NO_WORD_BEFORE = r"(?<![A-Za-z0-9])"


def _private_keys(text: str) -> str:
    return compiled(_PEM, re.DOTALL).sub(REDACTED, text)


def _shape(triggers: tuple[str, ...], pattern: str) -> Rule:
    whole = _NO_WORD_BEFORE + pattern
    return Rule(triggers, lambda text: compiled(whole, re.ASCII).sub(_keep_group, text))


def _keep_group(found: re.Match[str]) -> str:
    return (found[1] if found.re.groups else "") + REDACTED


def _doubtful(prefix: str) -> Rule:
    whole = _NO_WORD_BEFORE + prefix + r"([\w-]{16,}+)"

    def replace(found: re.Match[str]) -> str:
        # A long run without any dash is not an ordinary hyphenated name, either.
        secret = looks_random(found[1]) or "-" not in found[1]
        return REDACTED if secret else found[0]

    return Rule((prefix,), lambda text: compiled(whole, re.ASCII).sub(replace, text))


RULES = (
    Rule(("private key",), _private_keys),
    *(_shape(triggers, pattern) for triggers, pattern in _SHAPES),
    *(_doubtful(prefix) for prefix in _DOUBTFUL),
)


def redact_shapes(text: str) -> str:
    """`text` without keys and tokens recognisable by their shape; names are ignored."""
    lowered = text.lower()
    for rule in RULES:
        if any(trigger in lowered for trigger in rule.triggers):
            text = rule.apply(text)
    return text
