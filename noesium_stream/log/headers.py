"""Record headers: the CloudEvents Kafka binding, and six of this project's own.

They are a convenience for filters and foreign tools; what an event says is in its envelope.

Decision record: the five texts that differ between events are built once, as one text with line ends
between them (`header_text`); embedded backends store that text as it is, Kafka gets the list. Building a
list of six encoded pairs costs 3 µs, the text 1 µs, and no value can hold a line end: ids and types are
checked by the envelope, the source is percent-encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import count
from typing import Final
from urllib.parse import quote

from noesium_stream.clock import to_rfc3339
from noesium_stream.event.envelope import AgentRef, EventEnvelope

CE_SPECVERSION: Final = "ce_specversion"
CE_ID: Final = "ce_id"
CE_TYPE: Final = "ce_type"
CE_SOURCE: Final = "ce_source"
CE_TIME: Final = "ce_time"
TRACEPARENT: Final = "traceparent"

SEQUENCE: Final = "noesium_seq"
"""Number of this record within its run's journal, from 0, decimal."""

SOURCE: Final = "noesium_source"
"""On a journal's copy of a received event: `topic/partition/offset` where it was received."""

ORIGIN: Final = "noesium_origin"
"""On what an agent's run sent to an inbox, and on the receiver's copy of it: the journal partition that
holds the original, `topic/partition`. A fold over all agents passes such records over, and so sees each
event once; a copy without it came from a program that has no journal."""

INBOX: Final = "noesium_inbox"
"""On a journal's copy of a received event: how far the owner has decided on its inbox, as JSON (see
`noesium_stream.worker.state`)."""

DEADLINE: Final = "noesium_deadline"
"""On a journal's copy of a command that has a deadline: its `deadline_ms`, decimal."""

COMMIT: Final = "noesium_commit"
"""`<commit id>:<index>:<count>` of a writer's commit, index and count within the partition."""

_DIGITS: Final = tuple(map(str, range(1024)))
"""To write a number takes as long as all else of a commit's header."""

_SPECVERSION: Final = (CE_SPECVERSION, b"1.0")


def header_text(envelope: EventEnvelope) -> str:
    """The standard headers that differ between events: type, id, source, time, traceparent, by lines."""
    producer, trace, ms = envelope.producer, envelope.trace, envelope.timestamp_ms
    return (
        f"{envelope.event_type}\n{envelope.event_id}\n{_source(producer.agent_type, producer.agent_id)}\n"
        f"{_second(ms // 1000)}{ms % 1000:03d}Z\n00-{trace.trace_id}-{trace.span_id}-01"
    )


def header_middle(producer: AgentRef, ms: int) -> str:
    """Of `header_text` what stands between id and trace: the same for all events of a producer and moment."""
    source = _source(producer.agent_type, producer.agent_id)
    return f"\n{source}\n{_second(ms // 1000)}{ms % 1000:03d}Z\n00-"


def headers_of_text(text: bytes) -> list[tuple[str, bytes]]:
    """The standard headers from what `header_text` wrote."""
    event_type, event_id, source, time, traceparent = text.split(b"\n")
    return [
        _SPECVERSION,
        (CE_ID, event_id),
        (CE_TYPE, event_type),
        (CE_SOURCE, source),
        (CE_TIME, time),
        (TRACEPARENT, traceparent),
    ]


def standard_headers(envelope: EventEnvelope) -> list[tuple[str, bytes]]:
    """The headers that every record has, a new list: CloudEvents' five, and `traceparent`."""
    return headers_of_text(header_text(envelope).encode())


def commit_header(commit_id: str, index: int, count: int) -> tuple[str, bytes]:
    """The header `noesium_commit` of one record."""
    return COMMIT, f"{commit_id}:{index}:{count}".encode()


def commit_headers(
    commit_id: str, places: Sequence[tuple[str, int]], counts: dict[tuple[str, int], int]
) -> list[tuple[str, bytes]]:
    """`commit_header` of each of several records.

    Args:
        commit_id: of their commit.
        places: topic and partition of each record.
        counts: how many records of the commit are in each place already; those come first. Counted on.
    """
    ends = {}
    for place, more in Counter(places).items():
        first = counts.get(place, 0)
        counts[place] = first + more
        ends[place] = count(first).__next__, f":{first + more}"
    start, headers = f"{commit_id}:", list[tuple[str, bytes]]()
    for place in places:
        number, end = ends[place]
        index = number()
        digits = _DIGITS[index] if index < len(_DIGITS) else str(index)
        headers.append((COMMIT, f"{start}{digits}{end}".encode()))
    return headers


class TypeFilter:
    """Judges records by the type in their headers; remembers its answer per type.

    Args:
        types: exact event types, or prefixes that end in `.`.
    """

    __slots__ = ("_answers", "_exact", "_prefixes")

    def __init__(self, types: Collection[str]) -> None:
        self._exact = frozenset(name for name in types if not name.endswith("."))
        self._prefixes = tuple(name for name in types if name.endswith("."))
        self._answers: dict[bytes, bool] = {}

    def keeps(self, event_type: bytes) -> bool:
        """Whether records whose header `ce_type` has this value are wanted."""
        answer = self._answers.get(event_type)
        if answer is None:
            answer = self.keeps_name(event_type.decode(errors="replace"))
            if len(self._answers) < 4096:
                self._answers[event_type] = answer
        return answer

    def keeps_name(self, event_type: str) -> bool:
        """Whether events of this type are wanted."""
        return event_type in self._exact or event_type.startswith(self._prefixes)


def type_filter(types: Collection[str] | None) -> TypeFilter | None:
    """A filter for `types`; None where all are wanted."""
    return None if types is None else TypeFilter(types)


def header_value(headers: Sequence[tuple[str, bytes]], name: str) -> bytes | None:
    """The first value of this name."""
    for key, value in headers:
        if key == name:
            return value
    return None


@lru_cache(maxsize=4096)
def _source(agent_type: str, agent_id: str) -> str:
    """`ce_source` has to be a URI reference; it names the agent for good, not the process."""
    return f"/agents/{quote(agent_type, safe='')}/{quote(agent_id, safe='')}"


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    """`2026-03-01T12:00:00.`: formatting a second costs more than all the rest."""
    return to_rfc3339(second * 1000)[:-4]
