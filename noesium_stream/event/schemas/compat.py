"""Compatibility check of today's schemas with those of an older release.

Readers and writers of different releases share one log, in both directions: today's programs read old events,
and programs of the old release validate today's events by the newest minor version that they know. So within
a major version a schema may do one thing only: add optional fields. Any other change (a field is removed,
becomes required or optional, or has other values) is a new major version, and the previous major must stay
readable (RFC-0002).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ConfigError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.avro_schema import released_schemas
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.payload.schema import JsonSchema, meaning, resolved
from noesium_stream.event.schemas.files import read_schemas
from noesium_stream.event.standard.catalogue import standard_catalogue

_HANDLED: Final = frozenset({"properties", "required", "$defs", "$ref", "default"})
_Roots = tuple[JsonSchema, JsonSchema]
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


class Incompatibility(NamedTuple):
    """One change that breaks programs of the other release."""

    subject: str
    """The event type and its version, or the envelope's fingerprint."""
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}"


def incompatible_changes(directory: Path | str, catalogue: Catalogue | None = None) -> list[Incompatibility]:
    """The incompatible changes from the schemas in `directory` (see `schema_files`) to the catalogue.

    Raises:
        ConfigError: the folder holds no schemas, or files that cannot be read.
    """
    catalogue = catalogue if catalogue is not None else standard_catalogue()
    try:
        old = read_schemas(directory)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the schemas in {directory} cannot be read: {error}") from error
    if not old:
        raise ConfigError(
            f"there are no schemas in {directory}.", hint="`noesium schema write` makes them, in schemas/."
        )
    new: dict[str, dict[str, JsonSchema]] = {}
    for event_type, version, schema in catalogue.schemas():
        new.setdefault(event_type, {})[version] = schema
    found = list(_envelopes(Path(directory)))
    for event_type, versions in old.items():
        if event_type not in new:
            found.append(Incompatibility(event_type, "the type is gone, and its events are on the logs"))
            continue
        for version, schema in versions.items():
            reasons = _version_changes(catalogue, event_type, version, schema, new[event_type])
            found.extend(Incompatibility(f"{event_type} {version}", reason) for reason in reasons)
    return found


def _envelopes(directory: Path) -> Iterator[Incompatibility]:
    known = {f"{number:016x}" for number in released_schemas()}
    for path in sorted(Path(directory, "envelope").glob("*.avsc")):
        if path.stem not in known:
            yield Incompatibility(
                f"envelope {path.stem}", "this released version of the envelope can no longer be read"
            )


def _version_changes(
    catalogue: Catalogue, event_type: str, version: str, old: JsonSchema, new: dict[str, JsonSchema]
) -> Iterator[str]:
    if version in new:
        if meaning(old) != meaning(new[version]):
            what = "; ".join(_differences(old, new[version])) or "only optional fields were added"
            yield f"the schema changed and the version did not ({what})"
    else:
        yield from _successor_changes(version, old, new)
    major, newest = _number(version)[0], max(map(_number, new))[0]
    readable = any(_number(candidate)[0] == major for candidate in new)
    if readable and major < newest and not catalogue.upcasts(event_type, major):
        yield f"no upcaster leads from major version {major} to {newest}"


def _successor_changes(version: str, old: JsonSchema, new: dict[str, JsonSchema]) -> Iterator[str]:
    """The incompatible changes from a removed version to the versions that replace it."""
    number = _number(version)
    same_major = [candidate for candidate in new if _number(candidate)[0] == number[0]]
    newer = sorted((candidate for candidate in same_major if _number(candidate) > number), key=_number)
    newest = max(map(_number, new))
    if newer:
        yield from _differences(old, new[newer[0]])
    elif same_major or newest < number:
        yield f"the version went back, to {_dotted(newest)}"
    elif newest[0] - number[0] < 2:
        yield f"major version {number[0]} cannot be read any more, and it is the last one before {newest[0]}"


def _differences(old: JsonSchema, new: JsonSchema) -> Iterator[str]:
    return _changes(old, new, "payload", (old, new), frozenset())


def _changes(old: Any, new: Any, path: str, roots: _Roots, seen: frozenset[tuple[int, int]]) -> Iterator[str]:
    """The differences of `new` from `old` other than added optional fields."""
    old, new = resolved(old, roots[0]), resolved(new, roots[1])
    if (id(old), id(new)) in seen:
        return
    seen |= {(id(old), id(new))}
    if not isinstance(old, dict) or not isinstance(new, dict):
        if old != new:
            yield _changed(path, "", old, new)
        return
    for keyword in sorted((meaning(old).keys() | meaning(new).keys()) - _HANDLED):
        before, after = old.get(keyword), new.get(keyword)
        if (
            keyword in _LISTS
            and isinstance(before, list)
            and isinstance(after, list)
            and len(before) == len(after)
        ):
            for one, other in zip(before, after, strict=True):
                yield from _changes(one, other, path, roots, seen)
        elif isinstance(before, dict) and isinstance(after, dict):
            yield from _changes(before, after, f"{path}.*", roots, seen)
        elif before != after:
            yield _changed(path, keyword, before, after)
    yield from _field_changes(old, new, path, roots, seen)


def _field_changes(
    old: JsonSchema,
    new: JsonSchema,
    path: str,
    roots: tuple[JsonSchema, JsonSchema],
    seen: frozenset[tuple[int, int]],
) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, schema in before.items():
        if name not in after:
            yield f"{path}.{name} was removed"
        else:
            yield from _changes(schema, after[name], f"{path}.{name}", roots, seen)
    required_before, required_after = set(old.get("required", ())), set(new.get("required", ()))
    for name in sorted(required_after - required_before):
        yield f"{path}.{name} {'became' if name in before else 'is new and'} required"
    for name in sorted(required_before - required_after & after.keys()):
        yield f"{path}.{name} is no longer required, and older readers rely on it"


def _changed(path: str, keyword: str, before: Any, after: Any) -> str:
    what = f"{keyword} of {path}" if keyword else path
    return f"{what} was {_said(before)} and is {_said(after)}"


def _said(value: Any) -> str:
    return "not given" if value is None else short(value)


def _number(version: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, version.split(".")))
    except ValueError:
        raise ConfigError(f"{version}.json is not named after a version.") from None


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))
