"""The guarded client: requests that reach public hosts which the call was granted, and nothing else.

One request has a target that was parsed once, addresses that were judged, and a connection to one of these.
httpx gets the address and no name, so nothing resolves it again; the name is in `Host`, in SNI and in the
check of the certificate. Redirects are followed here, each judged as the first request was. There is no
proxy, no netrc, no cookie, and no connection outlives its request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import httpx

from noesium_stream.errors import ToolError, ToolExecutionError, ToolPermissionError, ToolServerError
from noesium_stream.escapes import escaped
from noesium_stream.tool.net.decode import ACCEPTED, read_body
from noesium_stream.tool.net.grants import check_granted
from noesium_stream.tool.net.resolve import Resolver, addresses_of, system_resolver
from noesium_stream.tool.net.settings import MAX_REDIRECTS, NetSettings
from noesium_stream.tool.net.target import Target, parse_target

REDIRECTS: Final = (301, 302, 303, 307, 308)
MAX_HEADERS: Final = 200
MAX_REFUSAL: Final = 200

_SENDS: Final = "send_request_headers.started"

Hop = Callable[[Target], Awaitable[None]]
"""Judges each target before it is called; raises to refuse it."""


class SentError(ToolServerError):
    """A request was sent, at least in part, and no whole answer came: the server may have done it."""


@dataclass(frozen=True)
class Call:
    """One request.

    Attributes:
        url: as given; checked by `parse_target`.
        granted: permissions of the call that makes it.
        method, headers, body: of the request.
        secrets: headers that go to the first origin alone.
        follow: whether redirects are followed; only for `GET` and `HEAD`.
        before: judges each target.
        max_bytes: a smaller limit than that of the settings.
    """

    url: str
    granted: Sequence[str]
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    follow: bool = True
    before: Hop | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Answer:
    """One answer: the URL that gave it, and what it gave."""

    url: str
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def media_type(self) -> str:
        """The type and subtype, lower case, without parameters; empty if there is none."""
        return str(self.headers.get("content-type", "")).partition(";")[0].strip().lower()[:200]


class GuardedClient:
    """Makes requests within limits; keeps nothing between them."""

    def __init__(self, settings: NetSettings, resolver: Resolver = system_resolver) -> None:
        self._settings = settings
        self._resolver = resolver

    async def request(self, call: Call) -> Answer:
        """Make a request, and follow its redirects.

        Raises:
            ToolInputError: a URL cannot be called.
            ToolPermissionError: a host is not granted, or has an address that is not public.
            SentError: it was sent, and no whole answer came in time.
            ToolServerError: nothing was sent: the host has no address or does not accept connections.
            ToolExecutionError: the answer breaks a limit, or there are too many redirects.
        """
        sent = _Sent()
        try:
            async with asyncio.timeout(self._settings.total_s):
                return await self._follow(call, parse_target(call.url), sent)
        except TimeoutError:
            message = f"{sent.host} did not answer in {self._settings.total_s:g} s."
            raise (SentError if sent else ToolServerError)(message) from None

    async def _follow(self, call: Call, target: Target, sent: _Sent) -> Answer:
        first = target
        for _ in range(MAX_REDIRECTS + 1):
            sent.host = target.authority
            check_granted(target, call.granted)
            if call.before is not None:
                await call.before(target)
            secrets = call.secrets if target.origin == first.origin else {}
            answer = await self._once(call, target, secrets, sent)
            location = answer.headers.get("location")
            if answer.status not in REDIRECTS or location is None or not call.follow:
                return answer
            following = target.join(location)
            if target.scheme == "https" and following.scheme == "http":
                raise ToolPermissionError(
                    f"{target.authority} redirects from https to http at {following.authority}.",
                    reason="rule",
                )
            target = following
        raise ToolExecutionError(f"{first.authority} redirects more than {MAX_REDIRECTS} times.")

    async def _once(self, call: Call, target: Target, secrets: Mapping[str, str], sent: _Sent) -> Answer:
        addresses = await addresses_of(target, self._settings, self._resolver)
        headers = {
            "Host": target.authority,
            "User-Agent": self._settings.user_agent,
            "Accept-Encoding": ACCEPTED,
            "Connection": "close",
            **call.headers,
            **secrets,
        }
        refusal = ""
        for address in addresses:
            request = httpx.Request(
                call.method,
                target.url.copy_with(host=address),
                headers=headers,
                content=call.body,
                extensions=self._extensions(target, sent),
            )
            try:
                return await self._exchange(request, call, target)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                refusal = escaped(str(error))[:MAX_REFUSAL] or "no answer in time"
            except (httpx.TransportError, ssl.SSLError) as error:
                raise _failure(error, target, sent) from None
        raise ToolServerError(f"{target.authority} cannot be connected to: {refusal}.")

    def _extensions(self, target: Target, sent: _Sent) -> dict[str, Any]:
        settings = self._settings
        timeout = httpx.Timeout(settings.silence_s, connect=settings.connect_s)
        return {"timeout": timeout.as_dict(), "sni_hostname": target.host, "trace": sent.trace}

    async def _exchange(self, request: httpx.Request, call: Call, target: Target) -> Answer:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=0)
        tls = _tls(self._settings.ca_file)
        async with httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits) as transport:
            response = await transport.handle_async_request(request)
            try:
                if len(response.headers) > MAX_HEADERS:
                    raise ToolExecutionError(f"{target.authority} answers with over {MAX_HEADERS} headers.")
                body = b""
                if not (response.status_code in REDIRECTS and call.follow) and call.method != "HEAD":
                    limit = min(call.max_bytes or self._settings.max_bytes, self._settings.max_bytes)
                    assert isinstance(response.stream, httpx.AsyncByteStream), "the transport is async"
                    body = await read_body(response.stream, response.headers, limit, target.authority)
            finally:
                await response.aclose()
        return Answer(str(target.url), response.status_code, response.headers, body)


class _Sent:
    """Whether any part of a request has left this process, and to whom."""

    def __init__(self) -> None:
        self.host = "the host"
        self._any = False

    def __bool__(self) -> bool:
        return self._any

    async def trace(self, event: str, _: Mapping[str, Any]) -> None:
        self._any = self._any or event.endswith(_SENDS)


def _failure(error: Exception, target: Target, sent: _Sent) -> ToolError:
    message = f"{target.authority} does not answer in HTTP: {type(error).__name__}."
    if isinstance(error, httpx.TimeoutException):
        message = f"{target.authority} does not go on with its answer."
    return (SentError if sent else ToolServerError)(message)


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    """The context of all requests: to make one reads all certificates."""
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context
