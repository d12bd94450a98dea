"""Record headers: the CloudEvents Kafka binding, and nine headers of this project.

Headers are a convenience for filters and other tools. The envelope alone says what an event is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Final

from noesium_stream.errors import EventValidationError
from noesium_stream.event.envelope import EventEnvelope

_REMEMBERED: Final = 4096
"""Number of event types for which a filter caches its answer."""

CE_SPECVERSION: Final = "ce_specversion"
CE_ID: Final = "ce_id"
CE_TYPE: Final = "ce_type"
CE_SOURCE: Final = "ce_source"
CE_TIME: Final = "ce_time"
TRACEPARENT: Final = "traceparent"

SEQUENCE: Final = "noesium_seq"
"""Number of this record within its run's journal, from 0, decimal."""

SOURCE: Final = "noesium_source"
"""On a journal's copy of a received event: where it was received, as `topic/partition/offset`."""

ORIGIN: Final = "noesium_origin"
"""On a record that an agent's run sent to an inbox, and on the receiver's copy of it: the journal partition
that holds the original, `topic/partition`. A fold over all agents skips such records, and so sees each event
once. A copy without this header came from a program that has no journal."""

INBOX: Final = "noesium_inbox"
"""On a journal's copy of a received event: the owner's progress in its inbox, as JSON (see
`noesium_stream.worker.state.partition_state`)."""

DEADLINE: Final = "noesium_deadline"
"""On a journal's copy of a command that has a deadline: its `deadline_ms`, decimal."""

LOGGED: Final = "noesium_logged"
"""On a command with a time to live that was forwarded to the next generation of its topics: when the log took
it first, in milliseconds since the epoch, decimal."""

SENDER: Final = "noesium_sender"
"""On a journal's copy of a received event, and on a forwarded request: its sender's own proof, and what else
is needed to verify it (see `noesium_stream.log.sender_proof`)."""

ALLOWED: Final = "noesium_allowed"
"""On a journal's copy of an answer to a question: by which of the question's `approvers`, by which rule of
the policy and by which key it is allowed, as JSON (`approver`, `rule`, `key`; without what had no say)."""

LATEST_MS: Final = 253_402_300_799_999
"""End of the year 9999, in milliseconds since the epoch: no later moment has a text."""

COMMIT: Final = "noesium_commit"
"""`<commit id>:<index>:<count>` of a writer's commit, index and count within the partition."""


class TypeFilter:
    """Judges records by the type in their headers; caches its answer per type.

    Args:
        types: exact event types, or prefixes that end in `.`.

    Attributes:
        keeps: whether records are wanted whose header `ce_type` has this value.
    """

    __slots__ = ("_exact", "_prefixes", "keeps")

    def __init__(self, types: Collection[str]) -> None:
        self._exact = frozenset(name for name in types if not name.endswith("."))
        self._prefixes = tuple(name for name in types if name.endswith("."))
        self.keeps: Final = _Answers(self.keeps_name).__getitem__

    def keeps_name(self, event_type: str) -> bool:
        """Whether events of this type are wanted."""
        return event_type in self._exact or event_type.startswith(self._prefixes)


def keeps_undeclared(keep: TypeFilter, value: bytes, decode: Callable[[bytes], EventEnvelope]) -> bool:
    """Whether a filter keeps a record without the type's header; an unreadable one: its error is reported.

    `decode` is the codec's `decode_unchecked`.
    """
    try:
        return keep.keeps_name(decode(value).event_type)
    except EventValidationError:
        return True


class _Answers(dict[bytes, bool]):
    """Answers of a filter by type; a known type costs one look-up."""

    def __init__(self, keeps_name: Callable[[str], bool]) -> None:
        self._keeps_name = keeps_name

    def __missing__(self, event_type: bytes) -> bool:
        answer = self._keeps_name(event_type.decode(errors="replace"))
        if len(self) < _REMEMBERED:
            self[event_type] = answer
        return answer


shared_filter: Final = lru_cache(maxsize=256)(TypeFilter)
"""The filter for a frozen set of types; readers of the same types share its cached answers."""


def header_value(headers: Sequence[tuple[str, bytes]], name: str) -> bytes | None:
    """The first value of the header with this name."""
    for key, value in headers:
        if key == name:
            return value
    return None
