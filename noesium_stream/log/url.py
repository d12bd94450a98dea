"""Log URLs: parsed once, refused with a hint, never printed with a secret in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote

from noesium_stream.errors import ConfigError, LogUrlError
from noesium_stream.log.topics import Topology
from noesium_stream.redaction import SHOWN_PARAMETERS, is_secret, redacted_url

SCHEMES: Final = ("memory", "sqlite", "kafka")
COMMON_PARAMETERS: Final = frozenset({"namespace", "partitions"})
"""Parameters that every backend accepts: the namespace of topics, and the partition count of new topics."""

_EXAMPLES: Final = {
    "memory": "memory://",
    "sqlite": "sqlite:///noesium.db",
    "kafka": "kafka://localhost:9092",
}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_UNQUOTED: Final = re.compile(r"((?<!sqlite)://[^:/?@\[,]*):(?!\d*(?:[,/?]|$)).*")
"""An invalid port: most likely a password with a `?` in it, which ends the address too early."""


@dataclass(frozen=True, slots=True, repr=False)
class LogUrl:
    """A log URL in parts: `scheme://user:password@host:port,host:port/path?parameters`.

    `hosts` is empty if the scheme has none; `name` is the text between `//` and `?` or `/`.
    """

    scheme: str
    name: str
    path: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """The address without secrets."""
        login = "" if self.user is None else f"{self.user}@"
        query = "&".join(
            f"{quote(key, safe='@')}={quote(value, safe='/:,.@ ')}" for key, value in self.parameters.items()
        )
        return redacted_url(f"{self.scheme}://{login}{self.name}{self.path}{'?' if query else ''}{query}")

    def __repr__(self) -> str:
        """As `str`."""
        return f"LogUrl({str(self)!r})"

    def check_parameters(self, known: Collection[str]) -> None:
        """Refuse parameters that neither the backend (`known`) nor every log accepts.

        Raises:
            LogUrlError: names the parameter and the one that it resembles.
        """
        allowed = COMMON_PARAMETERS.union(known)
        secret = any(is_secret(key) or "@" in key + value for key, value in self.parameters.items())
        for key in self.parameters:
            if key not in allowed:
                near = _did_you_mean(key, allowed)
                # An unquoted & or ? in a password makes a parameter of its rest.
                named = "one that it does not know" if secret and near is None else repr(key)
                raise LogUrlError(
                    f"{self}: {self.scheme}:// has no parameter {named}.",
                    hint=near or f"It knows {', '.join(sorted(allowed))}.",
                )

    def topology(self, default: Topology | None = None) -> Topology:
        """The topology from the common parameters; values that they do not set are taken from `default`.

        Raises:
            LogUrlError: a value is invalid.
        """
        try:
            partitions = self.whole_number("partitions", 1, 100_000)
            default = default or Topology()
            namespace = self.parameters.get("namespace", default.namespace)
            return Topology(namespace, default.partitions if partitions is None else partitions)
        except LogUrlError:
            raise
        except ConfigError as error:
            raise LogUrlError(f"{self}: {error.message}", hint=error.hint) from error

    def whole_number(self, key: str, low: int, high: int) -> int | None:
        """The parameter as an integer from `low` to `high`; None if it is not given.

        Raises:
            LogUrlError: the value is not such an integer.
        """
        text = self.parameters.get(key)
        if text is None:
            return None
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise LogUrlError(f"{self}: {key}={text!r} is not a whole number from {low} to {high}.")
        return int(text)

    def choice(self, key: str, choices: Collection[str], default: str) -> str:
        """The parameter as one of `choices` (in upper case), or `default`.

        Raises:
            LogUrlError: the value is not one of them.
        """
        value = self.parameters.get(key, default).upper()
        if value not in choices:
            raise LogUrlError(
                f"{self}: {key}={value!r} is not one of {', '.join(sorted(choices))}.",
                hint=_did_you_mean(value, choices),
            )
        return value


def parse_url(text: str) -> LogUrl:
    """Read a log URL.

    Raises:
        LogUrlError: not a URL, an unknown scheme (with the one that it resembles), a missing host or path, or
            a parameter that is given twice.
    """
    scheme, separator, rest = text.strip().partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise LogUrlError(f"{redacted_url(text)!r} is not a log URL.", hint=_all_examples())
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise LogUrlError(
            f"{redacted_url(text)}: there is no log called {scheme}://.",
            hint=_did_you_mean(scheme, SCHEMES, "://") or _all_examples(),
        )
    place, _, query = rest.partition("?")
    login, at, place = place.rpartition("@") if scheme == "kafka" else ("", "", place)
    hosts, slash, tail = place.partition("/")
    user, colon, password = login.partition(":")
    url = LogUrl(
        scheme,
        hosts,
        slash + unquote(tail),
        unquote(user) if at else None,
        unquote(password) if colon else None,
        tuple(host for host in hosts.split(",") if host),
        _parameters(text, query),
    )
    _check_place(url)
    return url


def _parameters(text: str, query: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in parameters:
            raise LogUrlError(f"{redacted_url(text)}: {_named(key)} is given twice.")
        parameters[key] = value
    return parameters


def _named(key: str) -> str:
    return f"the parameter {key!r}" if is_secret(key) or key in SHOWN_PARAMETERS else "a parameter"


def _check_place(url: LogUrl) -> None:
    if url.scheme == "kafka" and _UNQUOTED.search(f"://{url.name}"):
        raise LogUrlError(
            "a kafka:// URL has no port after its host, but something else.",
            hint="In a password ? % and & are written as %3F, %25 and %26; or set NOESIUM_KAFKA_PASSWORD.",
        )
    if url.scheme == "kafka" and url.path.strip("/"):
        raise LogUrlError(
            f"{url}: a broker's address has no path.", hint=f"For example {_EXAMPLES['kafka']}."
        )
    if url.scheme == "kafka" and not url.hosts:
        raise LogUrlError(f"{url}: the broker's host is missing.", hint=f"For example {_EXAMPLES['kafka']}.")
    if url.scheme == "sqlite":
        if url.name:
            raise LogUrlError(
                f"{url}: a file has no host.",
                hint="Three slashes for a relative path, four for an absolute one"
                + (f": sqlite:///{url.name}{url.path}" if not {"@", ":"} & {*url.name} else "."),
            )
        if not url.path.strip("/"):
            raise LogUrlError(f"{url}: the path of the file is missing.", hint="sqlite:///noesium.db")
    if url.scheme == "memory" and url.path.strip("/"):
        raise LogUrlError(
            f"{url}: a log in memory has a name and no path.", hint="For example memory://name."
        )


def _did_you_mean(word: str, words: Collection[str], suffix: str = "") -> str | None:
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}{suffix}?" if close else None


def _all_examples() -> str:
    return f"For example {', '.join(_EXAMPLES.values())}."
