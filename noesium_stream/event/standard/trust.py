"""Which keys are trusted: events of the registry that operators sign."""

from __future__ import annotations

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Names, Text, Whole


class KeyTrusted(StandardEvent, event_type="key.trusted"):
    """A public key is trusted from here on, for these names.

    It counts if an operator's key signed it, one that speaks for everybody. `public_key` is the key's 32
    bytes in url-safe base64; the two times are milliseconds since the epoch.
    """

    key_id: Identifier
    public_key: Text
    speaks_for: Names
    not_before_ms: Whole | None = None
    not_after_ms: Whole | None = None


class KeyRevoked(StandardEvent, event_type="key.revoked"):
    """What a key signed counts no more from `from_ms` on, by the log's time of the append.

    Null: from when the log took this event. It counts if an operator's key signed it.
    """

    key_id: Identifier
    from_ms: Whole | None = None
    reason: Text | None = None
