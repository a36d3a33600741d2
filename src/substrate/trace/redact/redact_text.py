"""Keep secrets out of everything that Substrate records.

Command text, arguments, variables and URLs pass through here before they reach a trace line or a
commit message. Only the value is replaced, never its name: ``TOKEN=[redacted]``. Redacting twice
gives the same result as redacting once, and the time is linear in the length of the text: every
pattern starts at the beginning of a word, matches possessively (``*+``), and is never tried twice
at the same position.

Most commands contain no text that could mark a secret. For them only a few substring searches
run: the rules are imported, and their patterns compiled, when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrate.trace.redact.redact_rule import Rule

REDACTED = "[redacted]"

#: No rule can match a text without one of these; a test checks that this holds.
MARKS = (
    # names
    *("token", "secret", "pass", "pwd", "key", "auth", "cookie", "cred", "bearer", "basic"),
    *("signature", "sig=", "://", "login", "set", "config", "identified", "securestring"),
    # shapes
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "glrt-"),
    *("glptt-", "glsa_", "xox", "xapp-", "akia", "asia", "abia", "acca", "aiza", "npm_", "hf_"),
    *("dop_v1_", "doo_v1_", "dor_v1_", "k_live_", "k_test_", "whsec_", "shpat_", "shpss_"),
    *("shpca_", "shppa_", "hvs.", "hvb.", "hvr.", "dckr_pat_", "lin_api_", "figd_", "gsk_", "r8_"),
    *("nvapi-", "sntrys_", "sntryu_", "rubygems_", "dapi", "tskey-", "pul-", "nrak-", "gocspx-"),
    *("atatt3x", "sbp_", "ntn_", "pmak-", "phx_", "glc_", "ya29.", "sg.", "eyj", "pypi-", "xai-"),
    *("hooks.slack.com", "/api/webhooks/", "api.telegram.org/bot"),
    # programs and their verbs
    *("curl", "http", "xh", "mysql", "mycli", "mariadb", "mongo", "redis-cli", "valkey-cli"),
    *("sqlcmd", "bcp", "tsql", "sqlplus", "cqlsh", "cypher-shell", "etcdctl", "rabbitmq"),
    *("mosquitto_", "ldap", "smbclient", "zip", "7z", "rar", "openssl", "lftp", "twine", "vault"),
    *("wandb", "snyk", "ngrok", "rclone", "infracost", "doctl", "vercel", "alias", "cloudflared"),
    *("unseal", "unwrap", "unlock", "knife", "publish", "nuget", "conan", "variable", "travis"),
    *("p4", "ejabberd", "pw", "useradd", "usermod", "kinit", "sudo", "su -", "winexe", "freerdp"),
    *("rpcclient", "rdesktop", "ipmitool", "snmp", "nmcli"),
)
#: A replacement can expose another secret (a quote that now closes elsewhere), so the rules run
#: until nothing changes. No known text needs more passes than this.
_MOST_PASSES = 8


def redact(text: str) -> str:
    """`text` with its secrets replaced."""
    if not _is_marked([text]):
        return text
    for _ in range(_MOST_PASSES):
        before = text
        lowered = text.lower()
        for rule in rules():
            if any(trigger in lowered for trigger in rule.triggers):
                text = rule.apply(text)
        if text == before:
            break
    return text


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are tried."""
    from substrate.trace.redact import (
        secret_shapes,
        secrets_by_name,
        secrets_by_program,
        secrets_in_files,
        secrets_in_urls,
    )

    # Shapes come first: a secret that they replaced cannot confuse the rules that search for the
    # end of a value.
    return (
        *secret_shapes.RULES,
        *secrets_in_urls.RULES,
        *secrets_in_files.RULES,
        *secrets_by_name.RULES,
        *secrets_by_program.RULES,
    )


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The same for separate arguments, where an option's value is the argument after it."""
    if not _is_marked(argv):
        return list(argv)
    from substrate.trace.redact.secret_names import is_secret_option, names_a_place
    from substrate.trace.redact.secrets_by_program import redact_words
    from substrate.trace.redact.shell_words import is_reference

    out: list[str] = []
    option = ""  # the previous argument, if it is an option without an attached value
    for argument in argv:
        if (
            option
            and not argument.startswith("-")
            and is_secret_option(option, argument)
            and not names_a_place(option, argument, " ".join(argv[:3]))
            and not is_reference(argument)
        ):
            out.append(REDACTED if argument else "")
        elif option.endswith("c") and " " in argument:
            out.append(redact(argument))  # a script for sh -c
        else:
            out.append(_redact_argument(argument, " ".join(argv[:3])))
        option = argument if argument.startswith("-") and "=" not in argument else ""
    return redact_words(out)


def redact_variable(name: str, value: str) -> str:
    """A variable's value, replaced entirely if the name marks a secret."""
    from substrate.trace.redact.secret_names import is_secret_name

    return REDACTED if value and is_secret_name(name, value) else redact(value)


def _is_marked(texts: Iterable[str]) -> bool:
    for text in texts:
        lowered = text.lower()
        if any(mark in lowered for mark in MARKS):
            return True
    return False


def _redact_argument(argument: str, command: str) -> str:
    """Redact one argument. It is not quoted, so everything after a secret's ``=`` is its value."""
    from substrate.trace.redact.secret_names import (
        is_secret_name,
        is_secret_option,
        names_a_place,
    )

    name, equals, value = argument.partition("=")
    if equals and value and re.fullmatch(r"-{0,2}[A-Za-z_][\w.-]*+", name):
        is_option = name.startswith("-")
        if is_option and names_a_place(name, value, command):
            return argument
        if is_secret_option(name, value) if is_option else is_secret_name(name, value):
            return f"{name}={REDACTED}"
    return redact(argument)
