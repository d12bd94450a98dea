"""The catalogue: the known event types and versions, and the schemas of their payloads.

Each version has a JSON Schema (2020-12), generated from the event's class or registered alone. An event is
validated against the schema of its own minor version. If that is newer than all known ones, the newest known
minor of its major is used: a higher minor only adds fields, which are kept. Each other major has a schema of
its own, and upcasters convert old payloads to the newest major, one major at a time (RFC-0002: at least two
majors are readable at once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jsonschema_rs
from pydantic import ValidationError

from noesium_stream.errors import ConfigError, EventValidationError, UnknownSchemaError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import check_kind
from noesium_stream.event.payload.schema import JsonSchema, class_schema, meaning, refuse_remote_references
from noesium_stream.event.payload.validator import validator
from noesium_stream.event.payload.value import refuse_non_json

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a copy of a payload of one major version to the next major version."""

EventClass = TypeVar("EventClass", bound=type[DomainEvent])
_Version = tuple[int, int, int]
_MAX_MESSAGE = 300


class _Entry:
    """One version of a type; its schema is generated on first use, for a fast start-up."""

    def __init__(
        self, version: _Version, event_class: type[DomainEvent] | None, schema: JsonSchema | None = None
    ) -> None:
        self.version = version
        self.event_class = event_class
        self._given = schema

    @cached_property
    def schema(self) -> JsonSchema:
        if self._given is not None or self.event_class is None:
            return self._given or {}
        return class_schema(self.event_class)

    @cached_property
    def validator(self) -> jsonschema_rs.Draft202012Validator:
        refuse_remote_references(self.schema)
        try:
            return validator(self.schema)
        except ValueError as error:
            raise ConfigError(
                f"{self.schema.get('$id', 'a schema')} is no JSON Schema 2020-12: {error}"
            ) from None


class _Claim(NamedTuple):
    """The envelope fields that the catalogue validates."""

    event_type: str
    event_version: str
    payload: dict[str, Any]


class Catalogue:
    """Event types by name and version; generates and compiles each schema once."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[_Version, _Entry]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}
        self._judges: dict[tuple[str, str], Callable[[Any], None]] = {}
        self._current: set[tuple[str, str]] = set()
        self.changes = 0
        """Grows with each type or version that becomes known: others may be judged by it, too."""

    def register(self, event_class: EventClass, *, lazily: bool = False) -> EventClass:
        """Register a class under its type and version; returns it, so that it serves as a decorator.

        Its own `upcast` converts payloads of the previous major, unless `register_upcaster` sets another
        upcaster. `lazily` defers generating its schema, and with it the errors, until the first event of this
        type.

        Raises:
            ConfigError: it has no type, no schema can be generated from it, or this type and version is
                registered with another schema.
        """
        name, version = event_class.event_type(), event_class.event_version()
        checked = _checked(name, version, event_class.__name__)
        self._add(name, _Entry(checked, event_class), lazily)
        if "upcast" in vars(event_class):  # an inherited one leads to another major
            self._upcasters.setdefault((name, checked[0] - 1), event_class.upcast)
        return event_class

    def register_schema(self, event_type: str, version: str, schema: JsonSchema) -> None:
        """Register a type and version by its JSON Schema alone: it can be read without a class.

        Raises:
            ConfigError: it is not a self-contained JSON Schema, or the version is registered with another
                one.
        """
        self._add(event_type, _Entry(_checked(event_type, version, "a schema"), None, schema), False)

    def register_upcaster(self, event_type: str, from_major: int, upcaster: Upcaster) -> None:
        """Register a conversion of payloads of `from_major` to the next major.

        Raises:
            ConfigError: there is one already.
        """
        if self._upcasters.setdefault((event_type, from_major), upcaster) is not upcaster:
            raise ConfigError(f"{event_type} has an upcaster from major {from_major} already.")

    def types(self) -> tuple[str, ...]:
        """The known event types, sorted."""
        return tuple(sorted(self._entries))

    def versions(self, event_type: str) -> tuple[str, ...]:
        """The known versions of a type, oldest first; empty for an unknown type."""
        return tuple(_dotted(version) for version in sorted(self._entries.get(event_type, ())))

    def schemas(self) -> Iterator[tuple[str, str, JsonSchema]]:
        """Type, version and JSON Schema of every known version, sorted."""
        for event_type in self.types():
            for version, entry in sorted(self._entries[event_type].items()):
                yield event_type, _dotted(version), entry.schema

    def schema_for(self, event_type: str, version: str) -> JsonSchema:
        """The schema that validates payloads of this type and version; raises `UnknownSchemaError`."""
        return self._find(event_type, version).schema

    def class_for(self, event_type: str, version: str) -> type[DomainEvent] | None:
        """The class of this type and version; None: it is known by its schema alone.

        Raises:
            UnknownSchemaError: as `schema_for`.
        """
        return self._find(event_type, version).event_class

    def upcasts(self, event_type: str, from_major: int) -> bool:
        """Whether payloads of this major can be converted to the newest known major."""
        newest = max(self._entries.get(event_type, {(from_major, 0, 0): None}))[0]
        return all((event_type, major) in self._upcasters for major in range(from_major, newest))

    def check(self, event_type: str, version: str, payload: dict[str, Any]) -> None:
        """Validate a payload, as `validate`, before its envelope exists."""
        self.validate(_Claim(event_type, version, payload))

    def validate(self, envelope: EventEnvelope | _Claim) -> None:
        """Validate the payload against the schema of its type and version.

        Raises:
            UnknownSchemaError: the type, or this major version of it, is not known here.
            EventValidationError: the payload violates its schema; names the field.
        """
        kind = envelope.event_type, envelope.event_version
        validate = self._judges.get(kind)
        if validate is None:
            validate = self._judge(kind)
        try:
            validate(envelope.payload)
        except jsonschema_rs.ValidationError as error:
            raise _refusal(error) from None
        except ValueError as error:
            # The validator met a value that is not JSON; it does not say where.
            refuse_non_json(envelope.payload, "payload")
            raise EventValidationError("payload", str(error)[:_MAX_MESSAGE]) from None

    def upcast(self, envelope: EventEnvelope) -> EventEnvelope:
        """The event in the newest known major version of its type; unchanged if it is that already.

        The converted content was not signed, so the signature is dropped.

        Raises:
            UnknownSchemaError: the major version is not known here, or no upcaster converts it.
            EventValidationError: an upcaster failed, or made a payload that violates its schema.
        """
        event_type = envelope.event_type
        kind = (event_type, envelope.event_version)
        if kind in self._current:
            return envelope
        entry = self._find(event_type, envelope.event_version)
        newest = max(self._entries[event_type])
        if entry.version[0] == newest[0]:
            if len(self._current) < 4096:
                self._current.add(kind)
            return envelope
        payload = _copied(envelope.payload)
        for major in range(entry.version[0], newest[0]):
            upcaster = self._upcasters.get((event_type, major))
            if upcaster is None:
                raise UnknownSchemaError(
                    "event_version",
                    f"{event_type} {envelope.event_version} cannot be read as {_dotted(newest)}: "
                    f"no upcaster leads on from major {major}",
                    hint="Declare `upcast` in the newer version's class, or use Catalogue.register_upcaster.",
                )
            payload = _translated(upcaster, payload, f"{event_type} from major {major}")
        event = envelope.replace(event_version=_dotted(newest), payload=payload, signature=None)
        self.validate(event)
        return event

    def parse(self, envelope: EventEnvelope) -> DomainEvent:
        """The typed event, after upcasting; it keeps fields that its class does not know.

        Raises:
            UnknownSchemaError: no class of this type and major version is known here.
            EventValidationError: the payload is invalid; names the field.
        """
        event = self.upcast(envelope)
        entry = self._find(event.event_type, event.event_version)
        if entry.event_class is None:
            raise UnknownSchemaError(
                "event_type",
                f"{event.event_type} {event.event_version} is known by its schema alone",
                hint="Register its class with Catalogue.register.",
            )
        try:
            return entry.event_class.model_validate(event.payload)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(["payload", *(str(part) for part in first["loc"])])
            raise EventValidationError(field, first["msg"]) from None

    def _add(self, event_type: str, entry: _Entry, lazily: bool) -> None:
        entries = self._entries.get(event_type, {})
        known = entries.get(entry.version)
        again = known is not None and known.event_class is not None and known.event_class is entry.event_class
        if known is not None and again:
            entry = known  # with its compiled validator
        if not lazily:
            entry.validator  # noqa: B018 - refuse an invalid schema here
        if again:
            return
        if known is None:
            self._entries.setdefault(event_type, {})[entry.version] = entry
        elif known.event_class is not entry.event_class and meaning(known.schema) != meaning(entry.schema):
            raise ConfigError(
                f"{event_type} {_dotted(entry.version)} is registered already, with another schema.",
                hint="A changed payload is a new version: the minor number for a new optional field, the "
                "major one for everything else. Two classes of one type need two versions.",
            )
        elif known.event_class is None:
            entries[entry.version] = entry
        self._judges.clear()
        self._current.clear()
        self.changes += 1

    def _find(self, event_type: str, version: str) -> _Entry:
        entries = self._entries.get(event_type)
        if entries is None:
            raise UnknownSchemaError(
                "event_type",
                f"{event_type} is not known here",
                hint="Register its class with the catalogue, or start an agent whose `events` name it.",
            )
        wanted = _number(version)
        same_major = sorted(number for number in entries if number[0] == wanted[0])
        if not same_major:
            known = ", ".join(self.versions(event_type))
            raise UnknownSchemaError(
                "event_version",
                f"{event_type} {version} has a major version that is not known here ({known})",
            )
        # The newest version up to the event's; if all are newer, the oldest: minors only add fields.
        older = [number for number in same_major if number[:2] <= wanted[:2]]
        return entries[older[-1] if older else same_major[0]]

    def _judge(self, kind: tuple[str, str]) -> Callable[[Any], None]:
        """The cached function that refuses invalid payloads of a type and version."""
        judge: Callable[[Any], None] = self._find(*kind).validator.validate
        if len(self._judges) < 4096:
            self._judges[kind] = judge
        return judge


def _checked(event_type: str, version: str, who: str) -> _Version:
    try:
        check_kind("1.0.0", event_type, version)
    except EventValidationError as error:
        raise ConfigError(
            f"{who} cannot be registered: {error.message}.",
            hint='Give the class its type: class Drafted(DomainEvent, event_type="reply.drafted").',
        ) from None
    return _number(version)


def _number(version: str) -> _Version:
    major, minor, patch = version.split(".")
    return int(major), int(minor), int(patch)


def _dotted(version: _Version) -> str:
    return ".".join(map(str, version))


def _refusal(error: jsonschema_rs.ValidationError) -> EventValidationError:
    path = ["payload", *(str(part) for part in error.instance_path)]
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        path.append(str(error.kind.property))
        return EventValidationError(".".join(path)[:_MAX_MESSAGE], "is missing")
    return EventValidationError(".".join(path)[:_MAX_MESSAGE], error.message[:_MAX_MESSAGE])


def _translated(upcaster: Upcaster, payload: dict[str, Any], what: str) -> dict[str, Any]:
    try:
        return upcaster(payload)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EventValidationError(
            "payload", f"the upcaster of {what} failed: {type(error).__name__}: {error}"
        ) from error


def _copied(value: Any) -> Any:
    """A copy of JSON values that an upcaster may modify."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
