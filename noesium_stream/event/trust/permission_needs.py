"""What one call of a tool needs: the permissions that the tool declares, filled with the call's arguments.

In a declaration `{path}` stands for the argument `path`, and `{url|host}` for the host of the URL in the
argument `url`: `fs:write:{path}`, `net:outbound:{url|host}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.host_pattern import host_of_url
from noesium_stream.event.trust.permission import MAX_GRANTS, MAX_PERMISSION, check_permission

_PLACE: Final = re.compile(r"\{([^{}|]{1,128})(?:\|([a-z]{1,16}))?\}")
_MAX_WHOLE: Final = 2**64
_FILTERS: Final = frozenset({None, "host"})


class _Template(NamedTuple):
    """A declared permission: domain and action, the text of its pattern, and where arguments go."""

    kind: str
    pattern: str
    places: tuple[re.Match[str], ...]


def needs_of(permissions: Iterable[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What a call needs, in the order of the declaration, each once.

    A list as an argument gives one need for each of its items. An argument that is missing, or is no text and
    no number, gives the need without a pattern, that is of everything; so does a URL without a clear host.
    The arguments may be anything that a model writes.
    """
    found: dict[str, None] = {}
    for permission in permissions:
        template = _template(permission)
        if not template.places:
            found[permission] = None
            continue
        for need in _filled(template, arguments):
            found[need] = None
    return tuple(found)


def check_declared(permission: str) -> None:
    """Check what a tool declares.

    Raises:
        ConfigError: it is no permission, or has a `{…}` outside its pattern or of an unknown form.
    """
    template = _template(permission)
    check_permission(_PLACE.sub("x", template.pattern) if template.places else permission)
    rest = _PLACE.sub("", template.pattern)
    if "{" in rest or "{" in template.kind or any(place[2] not in _FILTERS for place in template.places):
        raise ConfigError(
            f"The permission {short(permission)} has a part in braces that cannot be filled.",
            hint="Write {name} or {name|host} behind the second colon.",
        )


@lru_cache(4_096)
def _template(permission: str) -> _Template:
    domain, _, rest = permission.partition(":")
    action, _, pattern = rest.partition(":")
    return _Template(f"{domain}:{action}", permission, tuple(_PLACE.finditer(permission)) if pattern else ())


def _filled(template: _Template, arguments: Mapping[str, Any]) -> list[str]:
    """The needs of one declaration; with several lists in it, of each combination."""
    texts, end = [""], 0
    for place in template.places:
        values = _values(place, arguments)
        if values is None or len(values) * len(texts) > MAX_GRANTS:
            return [template.kind]
        between = template.pattern[end : place.start()]
        texts = [f"{text}{between}{value}" for text in texts for value in values]
        end = place.end()
    rest = template.pattern[end:]
    return [text + rest for text in texts]


def _values(place: re.Match[str], arguments: Mapping[str, Any]) -> list[str] | None:
    """The texts for a place; None: the argument has none."""
    value = arguments.get(place[1])
    items = value if isinstance(value, list) and value else [value]
    read = host_of_url if place[2] == "host" else _text
    found = [read(item) for item in items]
    return None if None in found else [text for text in found if text is not None]


def _text(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_WHOLE:
        return str(value)
    return value[: MAX_PERMISSION + 1] if isinstance(value, str) and value else None
