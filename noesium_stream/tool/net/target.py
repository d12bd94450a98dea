"""URLs of tools' requests: parsed once, by one parser, and only in a form that no other reads differently."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import httpx

from noesium_stream.errors import ToolInputError
from noesium_stream.escapes import escaped
from noesium_stream.redaction import redacted_url

MAX_URL: Final = 8_192
PORTS: Final = {"http": 80, "https": 443}

_SHOWN: Final = 200
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*", re.ASCII
)
_LOGIN: Final = re.compile(r"[^/?#]*//[^/?#]*@")
_NUMBER: Final = re.compile(r"(\d+|0x[0-9a-f]*)", re.ASCII)
_FORM: Final = "Give a URL such as https://example.com/page, without a login."


@dataclass(frozen=True)
class Target:
    """Where one request goes.

    Attributes:
        url: normalised, without a fragment.
        scheme: `http` or `https`.
        host: lower case, ASCII (IDNA), without a final dot; an IPv6 address has no brackets.
        port: given, or the scheme's own.
    """

    url: httpx.URL
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> tuple[str, str, int]:
        """What credentials belong to."""
        return self.scheme, self.host, self.port

    @cached_property
    def authority(self) -> str:
        """Host and port as in the header `Host`: the port only if it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_literal(self) -> bool:
        """Whether the host is an address."""
        return _address(self.host) is not None

    def join(self, location: str) -> Target:
        """The target of a `Location` header.

        Raises:
            ToolInputError: it is no URL that may be called.
        """
        if len(location) > MAX_URL or not location.isprintable():
            raise ToolInputError(f"{self.authority} redirects to a text that is no URL.")
        try:
            return parse_target(str(self.url.join(location)))
        except (httpx.InvalidURL, ValueError):
            raise ToolInputError(f"{self.authority} redirects to a text that is no URL.") from None


def shown(url: str) -> str:
    """A URL for a message: short, escaped, without secrets."""
    text = escaped(redacted_url(url[: 4 * _SHOWN]))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def parse_target(url: str) -> Target:
    """Parse a URL.

    Raises:
        ToolInputError: it is no URL of HTTP or HTTPS, is too long, holds a login, or its host can be read in
            several ways (`http://2130706433/`).
    """
    if not 0 < len(url) <= MAX_URL or not url.isprintable() or "\\" in url or " " in url:
        raise ToolInputError(f"{shown(url)} is no URL.", hint=_FORM)
    try:
        parsed = httpx.URL(url)
        scheme, host, port = parsed.scheme, parsed.raw_host.decode("ascii"), parsed.port
    except (httpx.InvalidURL, ValueError):  # errors of IDNA are ValueErrors
        raise ToolInputError(f"{shown(url)} is no URL.", hint=_FORM) from None
    if scheme not in PORTS:
        raise ToolInputError(f"{shown(url)} is no URL of http or https.", hint=_FORM)
    if parsed.userinfo or _LOGIN.match(url):
        raise ToolInputError(f"The URL of {escaped(host)[:_SHOWN]} holds a login.", hint=_FORM)
    host = host.lower().removesuffix(".")
    if not _is_host(host) or (port is not None and not 1 <= port <= 65_535):
        raise ToolInputError(f"{shown(url)} has no host that can be called.", hint=_FORM)
    address = _address(host)
    host = str(address) if address is not None else host
    return Target(parsed.copy_with(host=host, fragment=None), scheme, host, port or PORTS[scheme])


def _is_host(host: str) -> bool:
    if _address(host) is not None:
        return True
    return _NAME.fullmatch(host) is not None and _NUMBER.fullmatch(host.rpartition(".")[2]) is None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host) if "%" not in host else None
    except ValueError:
        return None
