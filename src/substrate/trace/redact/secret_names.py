"""Which names mark a secret: ``GITHUB_TOKEN``, ``--db-password``, ``X-Api-Key``, ``apiKey``.

A name is split into words, so that ``tokenizer`` and ``--author`` do not count as secrets.
"""

from __future__ import annotations

import re
from functools import cache


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: A name with one of these words holds a secret.
_SECRET_WORDS = _word_set(
    "token secret secrets password passwords passwd passphrase passcode pass pwd auth oauth bearer"
    " authorization cookie cookies credential credentials creds apikey apikeys sshpass signature"
    " storepass keypass passin passout authtoken authkey requirepass masterauth"
)
#: Words written together: ``PGPASSWORD``, ``accesstoken``.
_SECRET_ENDINGS = (
    *("password", "passwd", "passphrase", "secret", "token", "cookie", "credential", "credentials"),
    *("apikey", "secretkey", "privatekey", "accesskey"),
)
#: ``key`` alone is usually a dictionary key; after one of these words it is a secret.
_KEY_OWNERS = _word_set(
    "api private access secret ssh encryption signing master account service deploy auth jwt hmac"
    " client gpg pgp openai anthropic gemini stripe azure google aws gcp mistral cohere sendgrid"
    " twilio datadog algolia cloudflare license rsa ecdsa ed25519 storage subscription app"
)
#: A name with one of these endings describes a secret (its file, its length), but is not one.
_HARMLESS_ENDINGS = _word_set(
    "file path dir directory name url uri endpoint host port count counts limit limits ttl length"
    " len size type method helper provider sock enabled disabled required expires expiry lifetime"
    " algorithm policy scope scopes stdin prompt env version issuer audience mode store strategy"
    " budget usage max min per username user email"
)
#: Options that name a secret and do not contain it, by the programs that have them.
_NAMING_OPTIONS = {
    "--secret": ("gcloud", "pulumi", "docker", "podman", "buildah", "vercel"),
}
#: ``openssl -passin env:NAME``: where the secret is. ``pass:…`` is the secret itself.
_PLACE = re.compile(r"(?:env|file|fd):\S*+|stdin")
#: Names that only look like those of secrets.
_HARMLESS = frozenset({"pwd", "oldpwd", "pass"})


def is_secret_name(name: str, value: str = "") -> bool:
    """Whether a variable, header or key of that name holds a secret; `value` decides doubts."""
    if _is_secret(name):
        return True
    return (_counts(name) or name.lower() == "pass") and value != "" and not _is_number(value)


def is_secret_option(option: str, value: str = "") -> bool:
    """The same for a command-line option, dashes included. Its last word must be the secret."""
    name = option.lstrip("-")
    if option.startswith("-D") and len(option) > 2:
        name = option[2:]  # a Java property
    words = _words(name)
    if not words:
        return False
    if _counts(name):
        return value != "" and not _is_number(value)
    if words[-1] == "pass" and option.startswith("-"):
        return True
    return _is_secret(name) and (_is_secret_word(words[-1]) or _is_key(words[-2:]))


def names_a_place(option: str, value: str, command: str) -> bool:
    """Whether the option says in this command where a secret is; `command`: the words before."""
    if option.lstrip("-") in ("pass", "passin", "passout"):
        return _PLACE.fullmatch(value) is not None
    return any(program in command for program in _NAMING_OPTIONS.get(option, ()))


def looks_random(text: str, at_least: int = 8) -> bool:
    """Whether the text mixes letters and digits and is not short: unlikely to be a word."""
    return (
        len(text) >= at_least
        and any(c.isdigit() for c in text)
        and any(c.isalpha() for c in text)
        and not any(c in "()[]{}<>,;" for c in text)
    )


@cache
def _cut() -> re.Pattern[str]:
    # A new word starts after a separator, and where a capital follows a small letter.
    return re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")


def _words(name: str) -> list[str]:
    # Real names are shorter than this; the limit bounds the work on very long texts.
    return [word.lower() for word in _cut().split(name[-200:]) if word]


def _is_secret(name: str) -> bool:
    if name.lower() in _HARMLESS:
        return False
    words = _words(name)
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    if any(_is_secret_word(word.rstrip("0123456789") or word) for word in words):
        return True
    return any(_is_key(words[at : at + 2]) for at in range(len(words) - 1))


def _is_secret_word(word: str) -> bool:
    return word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS)


def _is_key(pair: list[str]) -> bool:
    keys = ("key", "keys")
    return len(pair) == 2 and pair[0] in _KEY_OWNERS and pair[1].rstrip("0123456789") in keys


def _counts(name: str) -> bool:
    """``MAX_TOKENS`` is usually a number; ``DEPLOY_TOKENS`` may be a list of secrets."""
    words = _words(name)
    return bool(words) and words[-1] == "tokens"


def _is_number(value: str) -> bool:
    return value.strip("'\"").replace("_", "").replace(".", "").isdigit()
