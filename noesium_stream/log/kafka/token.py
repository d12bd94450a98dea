"""Tokens for OAUTHBEARER: fetched by client credentials (RFC 6749 §4.4), and shared by both client libraries.

What the endpoint answers is bounded and checked; the secret and the token are in no error and no `repr`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from aiokafka.abc import AbstractTokenProvider

from noesium_stream.errors import LogUrlError
from noesium_stream.redaction import redacted

MAX_BYTES: Final = 65_536
TIMEOUT_S: Final = 10.0
_EARLIER_S: Final = 30.0
_DEFAULT_S: Final = 300.0
_MOST_S: Final = 86_400.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,32768}")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class TokenError(Exception):
    """The endpoint gives no token; the message says why, without a secret."""


class Token(NamedTuple):
    """A token, and when it is replaced, by `time.time`."""

    text: str
    until_s: float


class TokenSource(AbstractTokenProvider):
    """Fetches a token when it is needed, and again before it expires.

    Args:
        url: the token endpoint.
        client_id: of this client.
        secret: of this client.
        scope: that is asked for; None: the endpoint's default.
        ca: file of certificates to trust beside the system's.

    Raises:
        LogUrlError: the address is no https URL (http is accepted on this machine alone).
    """

    def __init__(
        self, url: str, client_id: str, secret: str, scope: str | None = None, ca: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOCAL):
            raise LogUrlError(
                f"{redacted(url)} is no https URL of a token endpoint (token_url).",
                hint="A secret is sent there: http is accepted on this machine alone.",
            )
        self._url = url
        self._basic = base64.b64encode(
            f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()
        ).decode()
        self._scope = scope
        self._context = ssl.create_default_context()
        if ca is not None:
            self._context.load_verify_locations(cafile=ca)
        self._lock = threading.Lock()
        self._token: Token | None = None
        self.now: Callable[[], float] = time.time

    def for_librdkafka(self, _config: str) -> tuple[str, float]:
        """The token and when it expires, as librdkafka's `oauth_cb` returns them. Raises `TokenError`."""
        token = self._fresh()
        return token.text, token.until_s + _EARLIER_S

    async def token(self) -> str:
        """The token for aiokafka. Raises `TokenError`."""
        return (await asyncio.to_thread(self._fresh)).text

    def _fresh(self) -> Token:
        with self._lock:
            known = self._token
            if known is not None and self.now() < known.until_s:
                return known
            try:
                self._token = known = self._fetch()
            except TokenError:
                if known is None or self.now() >= known.until_s + _EARLIER_S:
                    raise
            return known

    def _fetch(self) -> Token:
        fields = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        headers = {"Authorization": f"Basic {self._basic}", "Accept": "application/json"}
        request = Request(self._url, urlencode(fields).encode(), headers, method="POST")
        opener = build_opener(HTTPSHandler(context=self._context), ProxyHandler(), _NoRedirect())
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                body = answer.read(MAX_BYTES + 1)
        except HTTPError as error:
            raise TokenError(f"the token endpoint answers {error.code}") from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise TokenError(f"the token endpoint cannot be reached: {type(reason).__name__}") from None
        return token_of(body, self.now())


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the secret is for the configured endpoint alone."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def token_of(body: bytes, now_s: float) -> Token:
    """The token in an answer of the endpoint (RFC 6749 §5.1).

    Raises:
        TokenError: it has none.
    """
    if len(body) > MAX_BYTES:
        raise TokenError(f"the answer of the token endpoint has more than {MAX_BYTES:,} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    text = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(text, str) or _TOKEN.fullmatch(text) is None:
        raise TokenError("the answer of the token endpoint has no access_token")
    lasts = found.get("expires_in", _DEFAULT_S)
    if isinstance(lasts, bool) or not isinstance(lasts, int | float) or not 0 < lasts < float("inf"):
        raise TokenError("the answer of the token endpoint has an expires_in that is no number of seconds")
    lasts = min(float(lasts), _MOST_S)
    return Token(text, now_s + max(lasts - _EARLIER_S, lasts / 2))
