"""Keys: which of them are trusted, as operators sign it in the registry, and whose were destroyed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Text, Whole


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


class SubjectErased(StandardEvent, event_type="subject.erased"):
    """The keys of a data subject were destroyed: what was sealed with them cannot be read any more.

    `keys` are their ids, `records` the number of records that were sealed with them.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("reason",)

    subject: Identifier
    keys: Names
    records: Whole = Field(ge=0)
    erased_by: Name
    reason: Text | None = None
