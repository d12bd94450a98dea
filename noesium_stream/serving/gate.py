"""What every request passes before the SDK sees it: who asks, for which host, and how much it may send.

Without tokens everybody who reaches the port is one requester. Then a request has to name the server by a
host that it is known as, or a page in a browser on this machine could reach it by a name of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from starlette.authentication import SimpleUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noesium_stream.serving.tokens import MOST_TOKEN, token_hash

MAX_BODY_BYTES: Final = 1_000_000
"""Size of a request: as a record of the log."""
BODY_S: Final = 30.0
"""Time for a whole request to arrive, in seconds."""

_BEARER: Final = "bearer "


class Gate:
    """ASGI middleware; see the module.

    Args:
        app: what is behind it.
        tokens: names by the hashes of their tokens; None: nobody is asked for one.
        hosts: names by which requests may address the server, lower case, without a port; None: any.
        public: paths that need no token.
        anybody: name of the requester where no tokens are asked for.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, str] | None,
        hosts: Collection[str] | None,
        public: Collection[str],
        anybody: str,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = hosts
        self._public = frozenset(public)
        self._anybody = anybody

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what may not pass, and hand on the rest."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            await _refuse(send, 421, "this server is not known by that name: see --url")
            return
        name = self._name(headers.get(b"authorization", b""))
        if name is None and scope["path"] not in self._public:
            await _refuse(send, 401, "a valid bearer token is missing", (b"www-authenticate", b"Bearer"))
            return
        scope["user"] = SimpleUser(name or self._anybody)
        body = await _body(receive, headers)
        if body is None:
            await _refuse(send, 413, f"the request has more than {MAX_BODY_BYTES:,} bytes, or is too slow")
            return
        await self._app(scope, _replay(body, receive), send)

    def _name(self, header: bytes) -> str | None:
        if self._tokens is None:
            return self._anybody
        text = header.decode("latin-1")
        if not text.lower().startswith(_BEARER) or len(text) > MOST_TOKEN:
            return None
        return self._tokens.get(token_hash(text[len(_BEARER) :].strip()))


async def _body(receive: Receive, headers: Mapping[bytes, bytes]) -> bytes | None:
    """Read the whole body; None: it is too large, or does not come."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
        return None
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    return None
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body once, and then what comes: the end of the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _host(header: bytes) -> str:
    """Return the host of a `Host` header, without its port."""
    text = header.decode("latin-1").lower().strip()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return text.partition(":")[0]


async def _refuse(send: Send, status: int, why: str, *more: tuple[bytes, bytes]) -> None:
    body: dict[str, Any] = {"error": why}
    text = json.dumps(body).encode()
    sizes = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*sizes, *more]})
    await send({"type": "http.response.body", "body": text})
