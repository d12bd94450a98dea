"""Hosts of `net` permissions: names, `*.` before a name, addresses, and optional ports."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s\\@\x00-\x20\x7f]+", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_MAX_HOST: Final = 253
_MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class HostPattern:
    """Some hosts.

    Attributes:
        host: a name or an address in its canonical form; with `*.` before it, the names below it; `*`: any.
        port: None: any.
    """

    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def covers(self, other: HostPattern) -> bool:
        """Whether the other's hosts are among these. An address is covered only by itself and by `*`."""
        if self.port is not None and self.port != other.port:
            return False
        if self.host in ("*", other.host):
            return True
        return self.host.startswith("*.") and other.host.endswith(self.host[1:])


def host_pattern(text: str) -> HostPattern | None:
    """Read `api.example.com`, `*.example.com`, `*`, `10.0.0.1` or `[::1]`, each with `:port` or without.

    A name in another script is converted by IDNA, unless that changes the name beyond its case. None: it is
    no host, as is an address in an unusual form (`127.1`, `0x7f000001`).
    """
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        if rest and not rest.startswith(":"):
            return None
        port = rest
    elif text.count(":") < 2:
        host, colon, rest = text.partition(":")
        port = colon + rest
    number = _port(port[1:]) if port else None
    if port and number is None:
        return None
    canonical = _canonical(host)
    return None if canonical is None else HostPattern(canonical, number)


def host_of_url(url: object) -> str | None:
    """The host and port of a URL, as `host_pattern` reads them; None: it is not clear which these are.

    Without a port in the URL it is the scheme's. Two programs may read a URL with a user name, a space or a
    backslash in different ways, so these have no host here.
    """
    if not isinstance(url, str) or _URL.fullmatch(url) is None:
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or "*" in host:
        return None
    name = f"[{host}]" if ":" in host else host
    found = host_pattern(name)
    if found is None:
        return None
    return str(HostPattern(found.host, _PORTS.get(parts.scheme.lower()) if port is None else port))


def _port(text: str) -> int | None:
    if not text.isascii() or not text.isdecimal() or len(text) > 5:
        return None
    return int(text) if 0 < int(text) <= _MAX_PORT else None


def _canonical(host: str) -> str | None:
    if host == "*":
        return host
    host = host.lower().removesuffix(".")
    if not host or len(host) > _MAX_HOST:
        return None
    if not host.isascii():
        return _from_other_script(host)
    if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _address(host)
    return host if _NAME.fullmatch(host) else None


def _address(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return None if "%" in host else str(address)


def _from_other_script(host: str) -> str | None:
    prefix, name = ("*.", host[2:]) if host.startswith("*.") else ("", host)
    try:
        ascii_name = name.encode("idna").decode("ascii")
        if ascii_name.encode("ascii").decode("idna") != name:
            return None
    except ValueError:
        return None
    found = prefix + ascii_name.lower()
    return found if len(found) <= _MAX_HOST and _NAME.fullmatch(found) else None
