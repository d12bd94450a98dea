"""Events: the envelope, typed events, the catalogue, the codec, signatures (RFC-0002, RFC-1001 §6)."""

from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.codec.other_schemas import SchemaRegistry
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, SignatureBlock, TraceContext
from noesium_stream.event.payload.canonical import canonical_envelope, canonical_json
from noesium_stream.event.schemas.compat import Incompatibility, incompatible_changes
from noesium_stream.event.schemas.files import stale_schemas, write_schemas
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard.catalogue import standard_catalogue, standard_events

__all__ = [
    "AgentRef",
    "Catalogue",
    "DomainEvent",
    "EnvelopeCodec",
    "EventEnvelope",
    "Incompatibility",
    "SchemaRegistry",
    "SignatureBlock",
    "Signer",
    "TraceContext",
    "Verifier",
    "canonical_envelope",
    "canonical_json",
    "incompatible_changes",
    "stale_schemas",
    "standard_catalogue",
    "standard_events",
    "write_schemas",
]
