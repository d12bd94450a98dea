"""Mutated records of every standard type, for a real worker with honest runs beside them.

    python -m tests.security.fuzz_records COUNT [SEED] [URL]

writes COUNT of them (URL: `memory://`, the default, or `sqlite://`) and prints a line of JSON: how many went
where, how many honest runs completed and how many dead letters there are. It fails if the worker ends, takes
its partition again, or leaves an honest run without its result. The same seed gives the same records.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from noesium_stream import agent_from_graph
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.client.run import Run
from noesium_stream.client.views.workers import owned_partitions
from noesium_stream.clock import SystemClock, VirtualClock
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext, standard_catalogue
from noesium_stream.event.codec.avro_schema import released_schemas
from noesium_stream.event.codec.codec import EnvelopeCodec, encode_body
from noesium_stream.event.envelope import trusted
from noesium_stream.event.standard import Capability
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.prepare import Prepared
from noesium_stream.worker import Worker
from tests.support.reading import stored
from tests.support.stores import inject

PATIENCE_S: Final = 120.0
CHUNK: Final = 20_000
"""Records on one log: memory does not grow with their number."""
ROUND: Final = 500
"""Records between two honest runs."""
_FRAME: Final = EnvelopeCodec().frame
_TARGETS: Final = ("inbox", "inbox", "inbox", "inbox", "registry", "heartbeat")

Raw = tuple[str, str, tuple[tuple[str, bytes], ...], bytes]
"""Target, key, headers and value."""


# -- sound events ----------------------------------------------------------------------------------------


def sample(schema: Any, root: Any, ids: dict[str, str], name: str = "") -> Any:
    """A value that satisfies a standard event's schema; ids and agent types by their fields' names."""
    if "$ref" in schema:
        return sample(root["$defs"][schema["$ref"].rpartition("/")[2]], root, ids, name)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return sample(schema[choice][0], root, ids, name)
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        fields = schema.get("properties", {})
        return {field: sample(part, root, ids, field) for field, part in fields.items()}
    if kind == "array":
        return [sample(schema["items"], root, ids, name)] if isinstance(schema.get("items"), dict) else []
    if kind == "integer":
        return max(1, schema.get("minimum", 1))
    if kind == "string":
        return ids.get(name, "1.0.0" if "version" in name else "text")
    return {"boolean": True, "number": 1.5, "null": None}.get(str(kind), {"n": 1})


# -- hostile values --------------------------------------------------------------------------------------


def hostile(chance: random.Random) -> Any:
    """A value that no honest program writes into a field."""
    nested: Any = "x"
    match chance.randrange(28):
        case 0:
            return "9" * 5_000
        case 1:
            return " " * 60_000
        case 2:
            for _ in range(chance.choice((30, 260, 500))):
                nested = [nested]
            return nested
        case 3:
            return {"$ref": "http://localhost:1/x", "__class__": {"os": "system"}}
        case 4:
            return [chance.random() for _ in range(chance.randrange(500))]
        case 5:
            return "x" * chance.choice((4_096, 4_097, 70_000))
        case 6:
            return json.dumps({"run_id": "x", "payload": {"n": [1] * 9}})
        case _:
            return deepcopy(chance.choice(_HOSTILE))


_HOSTILE: Final[tuple[Any, ...]] = (
    "", " ", "\x00", "a\x00b", "a\nb", "\x1b[31mred\x1b[0m", "a/b", "../../etc/passwd", "a" * 64, "-", "A",
    "\u202e\u0430\u0301", "\U0001f600" * 40, "\ufeff", "\uffff", "os:system", "^9", ">=0 || " * 30, "latest",
    "1.0.0.0", "1" + ".0" * 200, "noesium.dlq", "null", "1e999", "%s%n{}{0.__class__}",
    None, True, False, 0, -1, 1, 1.0, 0.5, -0.0, float("nan"), float("inf"), -float("inf"), 1e30, 1e300,
    2**31, 2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), 10**400,
    [], {}, [[]], [None], {"": ""},
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in items:
        yield (*at, name)
        if len(at) < 9:
            yield from places(part, (*at, name))


def spoilt(payload: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The payload with a field or a few replaced, removed or added."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        found = list(places(payload))
        if not found:
            break
        *way, last = chance.choice(found)
        within: Any = payload
        for name in way:
            within = within[name]
        what = chance.random()
        if what < 0.8:
            within[last] = hostile(chance)
        elif what < 0.9:
            del within[last]
        else:
            payload[chance.choice(("x", "agent_version", "reply_to", "fork", "deadline_ms"))] = hostile(
                chance
            )
    return payload


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes with some flipped, cut out, put in or repeated."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if not found:
            break
        at = chance.randrange(len(found))
        match chance.randrange(5):
            case 0:
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                found[at:at] = chance.randbytes(chance.randint(1, 9))
            case 2:
                del found[at : at + chance.randint(1, 30)]
            case 3:
                del found[at:]
            case _:
                found[at:at] = found[at : at + 20]
    return bytes(found)


class Fuzzer:
    """Makes records; `ids` are fields by name, `runs` the runs that records are sent to."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = VirtualClock(seed=seed)
        self.runs: list[str] = []
        self.schemas = [(name, version, schema) for name, version, schema in standard_catalogue().schemas()]
        self.frames = [b"\xc3\x01" + number.to_bytes(8, "little") for number in released_schemas()]
        self.requests = [one for one in self.schemas if one[0].startswith(_REQUESTS)]

    def record(self) -> Raw:
        """The next record."""
        chance = self.chance
        target = chance.choice(_TARGETS)
        prefix = {"registry": ("capability.", "agent.", "projection.", "tool."), "heartbeat": ("agent.h",)}
        kinds = [one for one in self.schemas if one[0].startswith(prefix.get(target, ""))]
        if target == "inbox" and chance.random() < 0.7:
            kinds = self.requests
        event_type, version, schema = chance.choice(kinds)
        run_id = chance.choice(self.runs) if self.runs and chance.random() < 0.4 else self.clock.uuid7()
        ids = {
            "run_id": run_id, "caller_run_id": run_id, "agent_type": "sample", "target_agent_type": "sample",
            "agent_id": "fuzz", "target_agent_id": "sample", "capability_id": "tool.text.text",
        }  # fmt: skip
        payload = sample(schema, schema, ids)
        if chance.random() < 0.7:
            payload.pop("fork", None)
            payload.pop("agent_version", None)
            payload.pop("deadline_ms", None)
        gentle = chance.random() < 0.4  # one thing is wrong at most, so that much is judged
        if chance.random() < (0.6 if gentle else 0.75):
            payload = spoilt(payload, chance)
        event = self.envelope(event_type, version, run_id)
        value = self.encoded(event, payload)
        headers, key = [("ce_id", event.event_id.encode()), ("ce_type", event_type.encode())], run_id
        if not gentle and chance.random() < 0.25:
            value = (
                mutated(value, chance) if chance.random() < 0.9 else chance.randbytes(chance.randrange(400))
            )
        if not gentle and chance.random() < 0.1:
            headers = self.headers(headers)
        if not gentle and chance.random() < 0.05:
            key = chance.choice(("", "x" * 9_000, "\x00", "\U0001f600", "partition-0", "a/b"))
        return target, key, tuple(headers), value

    def envelope(self, event_type: str, version: str, run_id: str) -> EventEnvelope:
        """A sound envelope, or one with a field that is not."""
        clock, chance = self.clock, self.chance
        fields: dict[str, Any] = {
            "spec_version": "1.0.0", "event_id": clock.uuid7(), "event_type": event_type,
            "event_version": version, "timestamp_ms": clock.now_ms(),
            "producer": AgentRef("fuzz", "fuzz", "local", "one"),
            "trace": TraceContext(clock.token(16), clock.token(8)), "causation_id": None,
            "correlation_id": None, "idempotency_key": None, "partition_key": run_id, "ttl_ms": None,
            "payload": {}, "metadata": {"to": "sample"}, "signature": None, "stream_sequence": None,
            "stream_final": None, "extensions": {},
        }  # fmt: skip
        if chance.random() < 0.25:
            text = next(one for one in (hostile(chance) for _ in range(1_000)) if isinstance(one, str))
            number = chance.choice((0, 1, 2**31, 2**53 - 1, 2**53, 2**62))
            match chance.randrange(6):
                case 0:
                    fields[chance.choice(("causation_id", "correlation_id", "idempotency_key"))] = text
                case 1:
                    fields["partition_key"] = text
                case 2:
                    fields["producer"] = AgentRef(text, text, text, text)
                case 3:
                    fields[chance.choice(("timestamp_ms", "ttl_ms", "stream_sequence"))] = number
                case 4:
                    fields["trace"] = TraceContext(clock.token(16), clock.token(8), None, number)
                case _:
                    fields["metadata"] = {"to": text, "fairness_key": hostile(chance)}
        return trusted(*fields.values())

    def encoded(self, event: EventEnvelope, payload: dict[str, Any]) -> bytes:
        """The bytes of an event, whatever is in it."""
        text = json.dumps(payload)
        if self.chance.random() < 0.03:
            text = '{"run_id":"twice",' + text[1:]
        metadata = json.dumps(event.metadata).encode()
        frame = self.chance.choice(self.frames) if self.chance.random() < 0.02 else _FRAME
        return frame + encode_body(event, text.encode(), metadata, {})

    def headers(self, headers: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Headers of which some are missing, doubled or garbage."""
        chance = self.chance
        found = [header for header in headers if chance.random() < 0.7]
        for _ in range(chance.randint(1, 3)):
            name = chance.choice((*_HEADERS, *(name for name, _ in headers)))
            found.insert(chance.randint(0, len(found)), (name, chance.randbytes(chance.choice((0, 9, 400)))))
        return found


_HEADERS: Final = (
    "ce_type",
    "noesium_origin",
    "noesium_source",
    "noesium_seq",
    "noesium_inbox",
    "\u00e9",
    "",
)
_REQUESTS: Final = (
    "run.requested", "run.signalled", "run.cancel.requested", "capability.invoked", "capability.completed",
    "tool.invocation", "approval.answered", "effect.reported", "effect.resolved", "partition.outgrown",
)  # fmt: skip


# -- the worker and the honest runs ----------------------------------------------------------------------


class State(TypedDict, total=False):
    n: Any
    ask: Any
    said: Any


async def say(state: State) -> State:
    return {"said": interrupt("may I?") if state.get("ask") == "honest" else state.get("n")}


def agent() -> Any:
    """An agent that says what it was given; or waits for a person, if it is asked to."""
    graph = StateGraph(State)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    return agent_from_graph(graph)


async def campaign(count: int, seed: int, url: str, home: Path) -> Counter[str]:
    """Write records to a log of its own while a worker and honest runs are at work there."""
    found: Counter[str] = Counter()
    log = await open_log(f"{url}{'&' if '?' in url else '?'}partitions=1")
    topology, fuzzer = log.topology, Fuzzer(seed)
    topics = {
        "inbox": topology.inbox("sample"),
        "registry": topology.registry,
        "heartbeat": topology.heartbeat,
    }
    try:
        async with Worker(log, [agent()], home=home) as worker, Client(log) as client:
            ended = asyncio.ensure_future(worker.wait())
            registry = CapabilityRegistry(log)
            offer = Capability(id="honest", input_schema={}, output_schema={})
            await registry.register(AgentRef("honest", "honest"), offer)
            waiting = await client.start("sample", {"ask": "honest"})
            target = await client.start("sample", {"ask": "honest"})
            fuzzer.runs = [target.id, (await client.start("sample", {"n": 0})).id]
            while found["records"] < count:
                size = min(ROUND, count - found["records"])
                for where, key, headers, value in (fuzzer.record() for _ in range(size)):
                    await inject(log, Prepared(topics[where], 0, key, "", headers, value))
                    found[where] += 1
                found["records"] += size
                run = await client.start("sample", {"n": found["records"]})
                await completes(run, ended, found["records"])
                found["honest runs"] += 1
                assert (await registry.resolve("honest", "^1")).agent_id == "honest"
                assert await owned_partitions(log, SystemClock(), ["sample"])
            await waiting.approve(value=True)
            await completes(waiting, ended, True)
            ended.cancel()
        await judge(log, found)
    finally:
        await log.close()
    return found


async def completes(run: Run, ended: asyncio.Future[None], said: Any) -> None:
    """Wait for an honest run's result; fail as soon as the worker has ended."""
    result = asyncio.ensure_future(run.result(timeout=PATIENCE_S))
    await asyncio.wait((result, ended), return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        result.cancel()
        ended.result()
        raise AssertionError("the worker has ended")
    assert (await result)["said"] == said


async def judge(log: EventLog, found: Counter[str]) -> None:
    """The partition was taken once, so that no record has cost a tenure."""
    journal = log.topology.journal("sample")
    taken = await stored(log, journal, types=("partition.acquired",))
    assert len(taken) == 1, f"the partition was taken {len(taken)} times"
    found["dead letters"] += len(await stored(log, log.topology.dlq))
    found["runs"] += len(await stored(log, journal, types=("run.started",)))


async def fuzz(count: int, seed: int = 1, url: str = "memory://") -> dict[str, Any]:
    """Write so many records, on as many logs as it takes."""
    total: Counter[str] = Counter()
    begun = time.monotonic()
    while total["records"] < count:
        number = total["records"] // CHUNK
        with TemporaryDirectory() as folder:
            place = f"sqlite:///{folder}/log.db" if url == "sqlite://" else f"memory://fuzz{seed}-{number}"
            size = min(CHUNK, count - total["records"])
            total += await campaign(size, seed * 1_000_003 + number, place, Path(folder, "home"))
    return {**total, "seconds": round(time.monotonic() - begun, 1)}


if __name__ == "__main__":
    arguments = sys.argv[1:]
    print(json.dumps(asyncio.run(fuzz(int(arguments[0]), *map(int, arguments[1:2]), *arguments[2:3]))))
