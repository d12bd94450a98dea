"""What all figures are measured with: envelopes of about 450 bytes, of ten types, of a thousand runs."""

from __future__ import annotations

import random
from typing import Any

from noesium_stream.clock import SystemClock
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard.catalogue import standard_catalogue

KINDS = 10
RUNS = 1000
DOMAIN = "bench"
_WORDS = (
    *(
        "offset",
        "partition",
        "lag",
        "epoch",
        "watermark",
        "lease",
        "checkpoint",
        "superstep",
        "journal",
        "inbox",
    ),
    *("commit", "fence", "replay", "fold", "cursor", "segment", "broker", "agent", "tool", "capability"),
)


class Measured(DomainEvent):
    """A payload as tools and nodes have it: ids, a text, a number, an object."""

    call_id: str
    tool: str
    output: dict[str, Any]
    duration_ms: int
    ok: bool = True


EVENTS: list[type[DomainEvent]] = [
    type(f"Measured{kind}", (Measured,), {"__module__": __name__}, event_type=f"{DOMAIN}.kind{kind}")
    for kind in range(KINDS)
]
ONE_KIND = "bench.kind3"


def catalogue() -> Catalogue:
    """The standard events and the ten of this module: payloads are validated as everywhere."""
    known = standard_catalogue()
    for event in EVENTS:
        known.register(event)
    return known


def envelopes(count: int) -> list[EventEnvelope]:
    """The same mixture every time; ids and times are new."""
    rng = random.Random(7)
    clock = SystemClock()
    producers = [AgentRef(f"agent-{n}", "researcher", "local", f"host-{4711 + n}") for n in range(4)]
    runs = [(clock.uuid7(), f"{rng.getrandbits(128):032x}") for _ in range(RUNS)]
    made = []
    for number in range(count):
        run_id, trace_id = rng.choice(runs)
        made.append(
            EventEnvelope(
                event_id=clock.uuid7(),
                event_type=f"{DOMAIN}.kind{number % KINDS}",
                timestamp_ms=clock.now_ms(),
                producer=rng.choice(producers),
                trace=TraceContext(trace_id, f"{rng.getrandbits(64):016x}", f"{rng.getrandbits(64):016x}", 1),
                causation_id=made[-1].event_id if made else None,
                partition_key=run_id,
                payload=_payload(rng, number),
            )
        )
    return made


def _payload(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "call_id": f"call-{number:07d}",
        "tool": rng.choice(_WORDS),
        "output": {"text": " ".join(rng.choices(_WORDS, k=9)), "score": round(rng.random(), 4), "found": 3},
        "duration_ms": rng.randrange(5000),
        "ok": True,
    }
