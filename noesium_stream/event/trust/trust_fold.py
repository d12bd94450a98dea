"""Which keys are trusted after the next event of the registry: a pure fold.

The root is the file of public keys that a process is given. An event changes something only if an operator's
key signed it, one that speaks for everybody and that counts at that time by the events before.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from noesium_stream.errors import ConfigError, EventValidationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import KeyRevoked, KeyTrusted
from noesium_stream.event.trust.trusted_key import TrustedKey, check_key_id, checked_key, checked_principals

TRUST_TYPES: Final = (KeyTrusted.TYPE, KeyRevoked.TYPE)


def trusted_after(
    keys: Mapping[str, TrustedKey], event: EventEnvelope, signed_by: TrustedKey | None, at_ms: int
) -> TrustedKey:
    """The key that an event of the registry changes, as it is after it.

    Args:
        keys: those that are trusted before, by id.
        event: of one of `TRUST_TYPES`.
        signed_by: the key that signed its record, which counts at that time; None: nobody did.
        at_ms: when the log took it.

    Raises:
        EventValidationError: it changes nothing: no operator signed it, or what it says is wrong.
    """
    if signed_by is None or not signed_by.speaks_for_everybody:
        whose = "nobody" if signed_by is None else f"the key {short(signed_by.key_id)}"
        raise EventValidationError("noesium_proof", f"is by {whose}: only operators say which keys count")
    payload = event.payload
    key_id = payload["key_id"]
    known = keys.get(key_id)
    if event.event_type == KeyRevoked.TYPE:
        if known is None:
            raise EventValidationError("payload.key_id", f"there is no key {short(key_id)}")
        from_ms = payload.get("from_ms")
        from_ms = at_ms if from_ms is None else from_ms
        earlier = known.revoked_ms
        return replace(known, revoked_ms=from_ms if earlier is None else min(from_ms, earlier))
    if known is not None:
        raise EventValidationError("payload.key_id", f"there is a key {short(key_id)} already")
    try:
        check_key_id(key_id)
        return TrustedKey(
            key_id,
            checked_key(key_id, base64.urlsafe_b64decode(payload["public_key"])),
            checked_principals(payload["speaks_for"]),
            payload.get("not_before_ms"),
            payload.get("not_after_ms"),
        )
    except (ConfigError, binascii.Error, ValueError) as error:
        raise EventValidationError("payload", str(error)) from None
