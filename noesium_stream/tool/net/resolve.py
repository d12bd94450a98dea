"""Names to addresses: resolved once for each request, and every address judged before one is called."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from noesium_stream.errors import ToolPermissionError, ToolServerError
from noesium_stream.tool.net.address import is_public
from noesium_stream.tool.net.settings import MAX_ADDRESSES, NetSettings
from noesium_stream.tool.net.target import Target

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a host; raises `OSError` if there are none."""


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def addresses_of(target: Target, settings: NetSettings, resolver: Resolver) -> Sequence[str]:
    """The addresses to connect to, in the resolver's order, at most `MAX_ADDRESSES`.

    Raises:
        ToolPermissionError: one of all addresses is not public, and the settings do not allow the host.
        ToolServerError: the host has no address, or the resolver does not answer.
    """
    if target.is_literal:
        found: Sequence[str] = (target.host,)
    else:
        try:
            found = await resolver(target.host, target.port)
        except (OSError, UnicodeError):
            found = ()
    if not found:
        raise ToolServerError(f"{target.authority} has no address.")
    if not settings.may_be_private(target) and not all(map(is_public, found)):
        raise ToolPermissionError(
            f"{target.authority} has an address that is not of the public internet.",
            reason="rule",
            hint="The operator can allow it in the toolkit's settings: "
            f'allow_private=("{target.authority}",).',
        )
    return found[:MAX_ADDRESSES]
