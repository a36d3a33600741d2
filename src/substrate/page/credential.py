"""Who may use the page: a token that works once, and the secret that it is exchanged for.

The token is in the link's fragment, which browsers send to no server. The page posts it and keeps
the secret in the tab's own storage. There is no cookie: a cookie goes to every port of a host, so
that a server which an agent starts on another port would receive it.
"""

from __future__ import annotations

import hmac
import secrets

from substrate.errors import RefusedError
from substrate.system import clock

TOKEN_S = 60
_BYTES = 16


class TokenUsedError(RefusedError):
    """The link was used, is too old, or was never given out."""

    kind = "token"


class LinkUsedTwiceError(TokenUsedError):
    """Another program may have read the link: what it was exchanged for is worth nothing now."""


class Credential:
    def __init__(self) -> None:
        self._token: str | None = None
        self._given_ns = 0
        self._used: list[str] = []
        self._secrets: list[str] = []

    def new_token(self) -> str:
        """A token for the next link; an older one stops working."""
        self._token, self._given_ns = secrets.token_urlsafe(_BYTES), clock.monotonic_ns()
        return self._token

    def exchange(self, token: str) -> str:
        """The secret for a token. A second exchange of the same token revokes every secret: one of
        the two is a thief, and nothing shows which."""
        if any(_same(one, token) for one in self._used):
            self._secrets.clear()
            raise LinkUsedTwiceError(
                "the link was used twice: another program may have read it; the page is closed",
                hint="run `substrate ui` again; `substrate log` shows what was taken back",
            )
        known, self._token = self._token, None if self._is_it(token) else self._token
        is_late = clock.monotonic_ns() - self._given_ns > TOKEN_S * 10**9
        if known is None or not _same(known, token) or is_late:
            raise TokenUsedError(
                "this link was used already, or is older than a minute",
                hint="run `substrate ui` again for a new one",
            )
        self._used.append(known)
        self._secrets.append(secrets.token_urlsafe(_BYTES * 2))
        return self._secrets[-1]

    def _is_it(self, token: str) -> bool:
        return self._token is not None and _same(self._token, token)

    def is_valid(self, header: str) -> bool:
        """Whether an `Authorization` header has one of the secrets."""
        way, _, secret = header.partition(" ")
        return way == "Bearer" and any(_same(one, secret) for one in self._secrets)


def _same(known: str, said: str) -> bool:
    return hmac.compare_digest(known.encode(), said.encode("utf-8", "surrogatepass"))
