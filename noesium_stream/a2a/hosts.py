"""Hosts: which are this machine, and which may be called.

A name that comes from a log, a model or another system's card does not decide where the network goes: the
setting `a2a_allow` of the process does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short
from noesium_stream.serving.loopback import is_loopback

SCHEME: Final = "a2a:"
MOST_TARGET: Final = 1_000
_PORTS: Final = {"https": 443, "http": 80}


class Target(NamedTuple):
    """An agent of another system: the URL of its server, and a skill of it (None: its only one)."""

    url: str
    skill: str | None


def parse_target(text: str) -> Target:
    """Parse `a2a:https://HOST/PATH#SKILL`.

    Raises:
        ConfigError: it has another form.
    """
    url, _, skill = text.removeprefix(SCHEME).partition("#")
    if len(text) > MOST_TARGET or not text.startswith(SCHEME) or "?" in url or not text.isprintable():
        raise ConfigError(f"{short(text)} names no agent.", hint=_FORM)
    host_of(url)
    return Target(url, skill or None)


def host_of(url: str) -> str:
    """Return the host of a URL, with its port if it is not the scheme's own, lower case.

    Raises:
        ConfigError: it is no URL of HTTPS, nor of HTTP at this machine, or it has a login in it.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise ConfigError(f"{short(url)} is no URL.", hint=_FORM) from None
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc:
        raise ConfigError(f"{short(_bare(url))} is no URL of an agent.", hint=_FORM)
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(f"{host} would be called without TLS.", hint="Call it by https://.")
    shown = f"[{host}]" if ":" in host else host
    return shown if port in (None, _PORTS[parts.scheme]) else f"{shown}:{port}"


def check_allowed(url: str, allowed: Collection[str]) -> str:
    """Return the host of a URL that may be called: this machine, and those of the setting.

    Raises:
        ConfigError: it may not be called.
    """
    host = host_of(url)
    if not is_loopback(urlsplit(url).hostname or "") and host not in allowed:
        raise ConfigError(
            f"The settings of this process do not allow calls of {host}.",
            hint=f"If they should: NOESIUM_A2A_ALLOW={','.join([*sorted(allowed), host])}",
        )
    return host


def _bare(url: str) -> str:
    """Return a URL without what may be a login."""
    return url.rpartition("@")[2]


_FORM: Final = "Write a2a:https://HOST/PATH#SKILL, without a login and parameters."
