"""Redaction of secrets in all that is printed: settings, URLs, error messages, log lines.

A URL that somebody mistyped holds its password all the same, in a place where no parser finds it. So a URL is
not parsed here but cut down: what is known to be harmless is shown, the rest is hidden. When in doubt, hide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

HIDDEN: Final = "***"

SHOWN_PARAMETERS: Final = frozenset(
    {
        *("namespace", "partitions", "seed", "synchronous", "retention", "replication", "security"),
        *("mechanism", "scope", "ca", "cert", "region", "endpoint_url", "anon", "timeout"),
    }
)
"""Parameters of URLs whose values are shown; those of all others are hidden: a name may be mistyped."""

_SECRET_NAME: Final = re.compile(
    r"pass|pwd|secret|token|key|credential|jaas|private|header|auth|cookie|bearer|signature", re.IGNORECASE
)
_IN_TEXT: Final = (
    r"[\w.-]{0,64}(?:passw|passphrase|pwd|secret|token|api[_.-]?key|credential|jaas|authorization|cookie)"
    r"[\w.-]{0,64}"
)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S*")
_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*")
_PUNCTUATION: Final = ".,;:!?'\"`)>]}"
_WHOLE_URL: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)
_SCHEME_TOKEN: Final = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{6,}", re.IGNORECASE)
_PAIR: Final = re.compile(
    rf"""(?P<name>\b{_IN_TEXT})(?P<mid>["']?\s*=\s*|["']\s*:\s*)(?P<value>"[^"]*"?|'[^']*'?|[^\s,;&"'}}\])]+)""",
    re.IGNORECASE,
)
_HEADER: Final = re.compile(r"\b((?:proxy-)?authorization|(?:set-)?cookie)(\s*:\s*)[^\r\n]+", re.IGNORECASE)
_PATHS: Final = ("sqlite", "file", "local")
_WITH_HOSTS: Final = ("kafka", "memory", "file", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs")
"""Schemes after which a plain host or bucket may stand, with an `@` in its path."""
_WITH_USERS: Final = ("kafka", "http", "https")
"""Schemes whose user names are shown: `me://x:y@host` may be a login without its scheme."""
_USER: Final = re.compile(r"[\w.+-]{1,64}")
_NO_PORT: Final = re.compile(r":(?!(?:\d*|PORT)(?:[,/?#]|$))")
"""A colon that no port follows, nor its name in advice (`kafka://HOST:PORT`): then a login follows."""


def is_secret(name: str) -> bool:
    """Whether a setting, parameter, header or variable of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None


def hide_secrets(value: Any, name: str = "") -> Any:
    """A JSON value for display: what has a secret name is hidden, and so are secrets in texts.

    Counts of tokens are shown.
    """
    if name and value is not None and is_secret(name):
        counts = isinstance(value, int | float) and "tokens" in name.lower()
        return value if counts else HIDDEN
    if isinstance(value, Mapping):
        return {key: hide_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [hide_secrets(item, name) for item in value]
    if isinstance(value, str):
        return redacted_url(value) if _WHOLE_URL.match(value) else redacted(value)
    return value


def redacted(text: str) -> str:
    """A text for display: secrets of URLs, headers, pairs (`password=…`) and PEM keys in it are hidden."""
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL.sub(_hidden_url, text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _SCHEME_TOKEN.sub(rf"\1 {HIDDEN}", text)
    return _PAIR.sub(_hidden_pair, text)


def without(text: str, secrets: Mapping[str, Any]) -> str:
    """A text without the values that have secret names in these settings, at any depth, and redacted."""
    for secret in sorted(_secret_texts(secrets, hidden=False), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return redacted(text)


def redacted_url(url: str) -> str:
    """A URL for display, well-formed or not: logins and the values of unknown parameters are hidden."""
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        scheme, separator, rest = "", "", url
    start = scheme + separator
    if rest.startswith("/") and scheme.strip().lower() in _PATHS:  # a path alone: sqlite:///a@b
        place, query = _cut(rest, "?")
        return start + place + _parameters(query)
    if _has_login(rest) if scheme.strip().lower() in _WITH_HOSTS else "@" in rest:
        if "@" in _cut(rest, "?#")[1]:  # a `?` in the password, or an `@` in a parameter: hide both
            name, colon, _ = _cut(rest, "?#")[0].partition(":")
            return f"{start}{name if _USER.fullmatch(name) else HIDDEN}{colon or '?'}{HIDDEN}"
        login, _, rest = rest.rpartition("@")
        user, colon, _ = login.partition(":")
        shown = _USER.fullmatch(user) and (colon or scheme.lower() == "kafka")
        shown = shown and (not separator or scheme.strip().lower() in _WITH_USERS)
        start += (user if shown else HIDDEN) + (f":{HIDDEN}@" if colon and shown else "@")
    place, query = _cut(rest, "?#")
    authority = place if not separator else place.partition("/")[0]
    broken = None if authority.startswith("[") else _NO_PORT.search(authority)
    if broken:
        return f"{start}{authority[: broken.start()]}:{HIDDEN}"
    return start + place + _parameters(query)


def _has_login(rest: str) -> bool:
    """Whether an `@` ends a login: not if it is in the path of a plain host."""
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    plain = "@" not in authority and ":" not in authority and rest[len(authority) :].startswith("/")
    return "@" in (_cut(rest, "?#")[1] if plain else rest)


def _cut(text: str, marks: str) -> tuple[str, str]:
    found = re.search(f"[{marks}]", text)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])


def _parameters(query: str) -> str:
    """The part of a URL from `?` or `#` on."""
    if not query:
        return ""
    if query[0] == "#":
        return f"#{HIDDEN}"
    return "?" + "&".join(_parameter(part) for part in query[1:].split("&"))


def _parameter(part: str) -> str:
    name, equals, _ = part.partition("=")
    if name.lower() in SHOWN_PARAMETERS and not re.search("[#@;:]//|[#@;]", part):
        return part
    if not equals:
        return HIDDEN if part else ""
    known = is_secret(name) or name.lower() in SHOWN_PARAMETERS
    return f"{name if known and re.fullmatch('[A-Za-z_.-]{1,64}', name) else HIDDEN}={HIDDEN}"


def _hidden_url(found: re.Match[str]) -> str:
    url = found[0].rstrip(_PUNCTUATION)  # of the sentence around it
    return redacted_url(url) + found[0][len(url) :]


def _hidden_pair(found: re.Match[str]) -> str:
    quote = found["value"][0] if found["value"][0] in "\"'" else ""
    return f"{found['name']}{found['mid']}{quote}{HIDDEN}{quote}"


def _secret_texts(value: Any, *, hidden: bool) -> list[str]:
    if isinstance(value, Mapping):
        return [
            text
            for name, item in value.items()
            for text in _secret_texts(item, hidden=hidden or is_secret(str(name)))
        ]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _secret_texts(item, hidden=hidden)]
    if callable(getattr(value, "get_secret_value", None)):
        value = value.get_secret_value()
    return [value] if hidden and isinstance(value, str) and len(value) >= 4 else []
