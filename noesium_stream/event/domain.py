"""Domain events: what programs say, typed; an envelope is how it travels (RFC-1001 §6.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from noesium_stream.clock import Clock, SystemClock
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.plain import plain_payload


class DomainEvent(BaseModel):
    """Base of typed events.

    The type and version are class arguments, the fields are the payload:

        class ReplyDrafted(DomainEvent, event_type="reply.drafted", version="1.0.0"):
            words: int

    Payloads are validated against the JSON Schema of the class; unknown fields of newer minor versions
    are kept.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    TYPE: ClassVar[str] = ""
    VERSION: ClassVar[str] = "1.0.0"
    LEFT_OUT: ClassVar[tuple[str, ...]] = ()
    """Fields that are no part of the payload where they are None: events of older releases have none."""

    def __init_subclass__(
        cls, event_type: str | None = None, version: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if event_type is not None:
            cls.TYPE = event_type
        if version is not None:
            cls.VERSION = version

    @classmethod
    def event_type(cls) -> str:
        """The dotted type, for example `kernel.node.entered`."""
        return cls.TYPE

    @classmethod
    def event_version(cls) -> str:
        """The semantic version of the payload's schema."""
        return cls.VERSION

    @classmethod
    def upcast(cls, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload of the major version before this class's own, as one of its own: declare it in the class
        of a new major, so that readers are given old events in the new form. It is given a copy.

        Raises:
            NotImplementedError: it is not declared.
        """
        raise NotImplementedError

    def payload(self) -> dict[str, Any]:
        """The fields as JSON values."""
        payload = plain_payload(self)
        if payload is None:
            payload = self.model_dump(mode="json", by_alias=True)
        for name in self.LEFT_OUT:
            if payload[name] is None:
                del payload[name]
        return payload

    def to_envelope(
        self,
        producer: AgentRef,
        trace: TraceContext,
        causation_id: str | None = None,
        correlation_id: str | None = None,
        *,
        partition_key: str | None = None,
        idempotency_key: str | None = None,
        ttl_ms: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> EventEnvelope:
        """Wrap this event; `event_id` and time come from `clock` (default: the machine's).

        Raises:
            EventValidationError: a field is malformed.
        """
        clock = clock or SystemClock()
        return EventEnvelope(
            event_id=clock.uuid7(),
            event_type=self.event_type(),
            event_version=self.event_version(),
            timestamp_ms=clock.now_ms(),
            producer=producer,
            trace=trace,
            causation_id=causation_id,
            correlation_id=correlation_id,
            idempotency_key=idempotency_key,
            partition_key=partition_key,
            ttl_ms=ttl_ms,
            payload=self.payload(),
            metadata=metadata,
        )
