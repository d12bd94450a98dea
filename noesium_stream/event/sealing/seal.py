"""Sealing of payloads with the keys of the people whom they are about, and reading them back.

An event is of the data subjects that its `metadata.data_subject` names, or, if it is an event of memory, of
the user whose scope it is about. When it is encoded, the sealed fields of its payload (`fields.py`) become

    metadata.sealed = {keys: [key id, …], nonce, fields: [name, …], text: AES-256-GCM of their JSON}

in base64. When it is decoded they are in the payload again, below all readers: nobody else knows of it. When
one of the keys was destroyed, stand-ins are in their place, and `is_erased` says so.

Decision record: the nonce is not drawn but derived from the key, the event and the text (as AES-SIV does). So
an event that is encoded again, as a copy in another topic or after a commit of unknown outcome, has the same
bytes, a simulation can be repeated, and two different texts still never share a nonce. Event id and type are
authenticated: sealed fields that are moved to another event are refused.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noesium_stream.errors import EventValidationError, SubjectKeyError, UnknownSchemaError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.envelope import EventEnvelope, trusted
from noesium_stream.event.payload.value import dump_json, parse_object
from noesium_stream.event.sealing.fields import Fields, fields_of
from noesium_stream.event.sealing.keys import KEY_ID, SubjectKey, SubjectKeys, checked_subject
from noesium_stream.event.standard.base import StandardEvent

SUBJECT: Final = "data_subject"
"""The entry of an envelope's metadata that names whom the event is about: a text, or a list of texts."""
SEALED: Final = "sealed"
"""The entry of an encoded envelope's metadata with the sealed fields; after decoding: of an erased event."""
MEMORY: Final = frozenset({"memory.written", "memory.deleted", "memory.retracted"})
SEGMENT: Final = "run.segment.started"
IMPLYING: Final = frozenset({*MEMORY, SEGMENT})
"""Types of events whose payloads say whom they are about."""
MAX_SUBJECTS: Final = 8

_USER: Final = "user:"
_NONCE_BYTES: Final = 12
_FIELDS: Final = 1_000
_ONLY: Final = frozenset({"keys", "nonce", "fields", "text"})
_CACHED: Final = 4_096


def is_erased(event: EventEnvelope) -> bool:
    """Whether the key of a decoded event was destroyed: its payload has stand-ins."""
    return SEALED in event.metadata


def subject_entry(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of metadata that names data subjects, for an event that has the same ones; empty: none."""
    return {SUBJECT: metadata[SUBJECT]} if SUBJECT in metadata else {}


def implied_subjects(event: EventEnvelope) -> tuple[str, ...]:
    """The data subjects that follow from what an event says.

    Of memory these are the users whose scope it is about; of the beginning of a segment those of the messages
    that are copied into it.
    """
    if event.event_type == SEGMENT:
        return subjects_of_copies(event.payload)
    if event.event_type not in MEMORY:
        return ()
    scope, about = event.payload.get("scope"), event.payload.get("about")
    found = [scope] if isinstance(scope, str) and scope.startswith(_USER) else []
    found += [one for one in about if isinstance(one, str)] if isinstance(about, list) else []
    return tuple(sorted(set(found)))


def subjects_of_copies(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """The data subjects of the messages in a payload of `run.segment.started`, sorted."""
    carried = payload.get("carried")
    signals = carried.get("signals") if isinstance(carried, Mapping) else None
    found: set[str] = set()
    for of_name in signals.values() if isinstance(signals, Mapping) else ():
        left = of_name.get("left") if isinstance(of_name, Mapping) else None
        for copy in left if isinstance(left, list) else ():
            metadata = copy.get("metadata") if isinstance(copy, Mapping) else None
            given = metadata.get(SUBJECT) if isinstance(metadata, Mapping) else None
            named = [given] if isinstance(given, str) else given if isinstance(given, list) else []
            found.update(one for one in named if isinstance(one, str))
    return tuple(sorted(found))


def subjects_of(event: EventEnvelope) -> tuple[str, ...]:
    """The data subjects of an event, sorted.

    Raises:
        EventValidationError: its metadata names what is none, or more than eight.
    """
    given = event.metadata.get(SUBJECT, ())
    named = [given] if isinstance(given, str) else given
    if not isinstance(named, list | tuple):
        raise EventValidationError(f"metadata.{SUBJECT}", "is neither a text nor a list of texts")
    found = {*map(checked_subject, named), *implied_subjects(event)}
    if len(found) > MAX_SUBJECTS:
        raise EventValidationError(f"metadata.{SUBJECT}", f"names more than {MAX_SUBJECTS} data subjects")
    return tuple(sorted(found))


class _Block(NamedTuple):
    """`metadata.sealed`, checked."""

    keys: list[str]
    nonce: bytes
    fields: list[str]
    text: bytes


class Sealer:
    """Seals and opens events with the keys of a store.

    Args:
        keys: the store; None: there is none. An event that names its data subject is then refused.
        catalogue: the forms of payloads.
    """

    def __init__(self, keys: SubjectKeys | None, catalogue: Catalogue) -> None:
        self.keys = keys
        self._catalogue = catalogue
        self._fields: dict[tuple[str, str], Fields] = {}
        self._known = catalogue.changes

    def seal(self, event: EventEnvelope) -> EventEnvelope:
        """The event as it is encoded: sealed, if it is about somebody.

        Raises:
            EventValidationError: its data subject is none, or it is signed as an event.
            SubjectKeyError: there is no store of keys, or it cannot be used.
        """
        if SEALED in event.metadata:
            return self._closed(event)
        subjects = subjects_of(event)
        if not subjects:
            return event
        if self.keys is None:
            if SUBJECT not in event.metadata:
                return event
            raise SubjectKeyError(
                f"metadata.{SUBJECT}",
                f"names {subjects[0][:60]!r}, and there is no store of keys for data subjects",
                hint="Set NOESIUM_SUBJECT_KEYS to a folder that all programs of this log share.",
            )
        if event.signature is not None:
            raise EventValidationError(
                "signature", "an event about a data subject is not signed itself: its record is"
            )
        keys = [self.keys.current(subject) for subject in subjects]
        names = self._of(event).sealed(event.payload)
        text = dump_json({name: event.payload[name] for name in names}, "payload")
        secret, bound = _secret(keys), _bound(event)
        nonce = hmac.digest(sha256(b"nonce" + secret).digest(), bound + b"\n" + text, "sha256")[:_NONCE_BYTES]
        sealed = AESGCM(secret).encrypt(nonce, text, bound)
        block = {
            "keys": [key.key_id for key in keys],
            "nonce": base64.b64encode(nonce).decode(),
            "fields": names,
            "text": base64.b64encode(sealed).decode(),
        }
        metadata = {name: value for name, value in event.metadata.items() if name != SUBJECT}
        return _with(event, _without(event.payload, names), {**metadata, SEALED: block})

    def open(self, event: EventEnvelope) -> EventEnvelope:
        """A decoded event with its fields, or with stand-ins if one of its keys was destroyed.

        Raises:
            EventValidationError: the sealed fields are not what was sealed.
            SubjectKeyError: a key is not here, though it was not destroyed.
        """
        block = _block(event)
        if self.keys is None:
            raise SubjectKeyError(
                "metadata.sealed",
                "it is sealed, and there is no store of keys for data subjects",
                hint="Set NOESIUM_SUBJECT_KEYS to the folder that the programs of this log share.",
            )
        keys = [self.keys.find(key_id) for key_id in block.keys]
        living = [key for key in keys if key is not None]
        if len(living) < len(keys):
            stand_ins = {name: self._of(event).stand_in(name) for name in block.fields}
            return _with(event, {**event.payload, **stand_ins}, event.metadata)
        try:
            text = AESGCM(_secret(living)).decrypt(block.nonce, block.text, _bound(event))
        except (InvalidTag, ValueError):
            reason = "it is not what was sealed for this event"
            raise EventValidationError("metadata.sealed", reason) from None
        payload = {**event.payload, **parse_object(text, "payload")}
        metadata = {name: value for name, value in event.metadata.items() if name != SEALED}
        subjects = tuple(sorted(key.subject for key in living))
        opened = _with(event, payload, metadata)
        if implied_subjects(opened) != subjects:
            metadata[SUBJECT] = subjects[0] if len(subjects) == 1 else list(subjects)
        return opened

    def _closed(self, event: EventEnvelope) -> EventEnvelope:
        """An event that was read without its key, as it was."""
        return _with(event, _without(event.payload, _block(event).fields), event.metadata)

    def _of(self, event: EventEnvelope) -> Fields:
        if self._known != self._catalogue.changes:
            self._fields.clear()
            self._known = self._catalogue.changes
        kind = event.event_type, event.event_version
        found = self._fields.get(kind)
        if found is None:
            if len(self._fields) >= _CACHED:
                self._fields.clear()
            found = self._fields[kind] = self._judged(*kind)
        return found

    def _judged(self, event_type: str, version: str) -> Fields:
        try:
            schema = self._catalogue.schema_for(event_type, version)
        except UnknownSchemaError:
            return fields_of({}, standard=False)
        event_class = self._catalogue.class_for(event_type, version)
        standard = event_class is not None and issubclass(event_class, StandardEvent)
        return fields_of(schema, standard=standard, personal=event_class.PERSONAL if event_class else ())


def sealed_keys(event: EventEnvelope) -> tuple[str, ...]:
    """The ids of the keys of an event as it was encoded, or of an erased one; empty: it is not sealed.

    Raises:
        EventValidationError: the block is malformed.
    """
    return tuple(_block(event).keys) if SEALED in event.metadata else ()


def _block(event: EventEnvelope) -> _Block:
    given = event.metadata.get(SEALED)
    if not isinstance(given, Mapping) or set(given) != _ONLY:
        raise EventValidationError("metadata.sealed", "has not the fields keys, nonce, fields and text")
    keys, fields = given["keys"], given["fields"]
    if not _texts(keys, MAX_SUBJECTS) or not all(map(KEY_ID.fullmatch, keys)) or not keys:
        raise EventValidationError("metadata.sealed.keys", "are no ids of keys")
    if not _texts(fields, _FIELDS):
        raise EventValidationError("metadata.sealed.fields", "are no names")
    try:
        nonce, text = (base64.b64decode(given[name], validate=True) for name in ("nonce", "text"))
    except (TypeError, ValueError):
        raise EventValidationError("metadata.sealed", "nonce or text is no base64") from None
    if len(nonce) != _NONCE_BYTES:
        raise EventValidationError("metadata.sealed.nonce", f"has not {_NONCE_BYTES} bytes")
    return _Block(keys, nonce, fields, text)


def _texts(value: Any, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most and all(isinstance(one, str) for one in value)


def _secret(keys: Sequence[SubjectKey]) -> bytes:
    """The secret of one key, or of several together: without any of them nothing can be read."""
    if len(keys) == 1:
        return keys[0].secret
    return sha256(b"".join(key.secret for key in keys)).digest()


def _bound(event: EventEnvelope) -> bytes:
    return f"{event.event_id}\n{event.event_type}\n{event.event_version}".encode()


def _without(payload: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in names}


def _with(event: EventEnvelope, payload: dict[str, Any], metadata: dict[str, Any]) -> EventEnvelope:
    """The event with another payload and other metadata; all else was checked."""
    changed = {"payload": payload, "metadata": metadata}
    slots = EventEnvelope.__slots__
    return trusted(*(changed[name] if name in changed else getattr(event, name) for name in slots))
