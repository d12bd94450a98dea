"""A record that is wrong in one field is a dead letter, and stops nothing but itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client.views.workers import owned_partitions
from noesium_stream.clock import SystemClock
from noesium_stream.errors import EventValidationError, LogUnavailableError
from noesium_stream.event import AgentRef, EventEnvelope, standard_catalogue
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.limits import MAX_NAME
from noesium_stream.event.standard import AgentHeartbeat, Capability, CapabilityRegistered
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.prepare import MAX_RECORD_BYTES, Prepared, header_text
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.decide import Action, judge
from noesium_stream.worker.inbox.journal_records import dead_letter
from tests.support.stores import inject
from tests.unit.worker.inbox.test_decide import CODEC, Record
from tests.unit.worker.inbox.test_decide_foreign_records import RUN, command, encoded, goes_on

CLOCK = SystemClock()


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    topology = log.topology
    names = (topology.inbox("sample"), topology.journal("sample"), topology.dlq, topology.registry)
    await log.ensure_topics([topology.spec(name) for name in (*names, topology.heartbeat)])
    yield log
    await log.close()


async def put(log: EventLog, topic: str, event: EventEnvelope) -> None:
    await inject(log, Prepared(topic, 0, "k", header_text(event), (), CODEC.encode(event)))


def forged(event: DomainEvent, agent: AgentRef, **changes: Any) -> EventEnvelope:
    sound = root_event(event, agent, CLOCK)
    return sound.replace(payload={**sound.payload, **changes})


# -- the inbox -----------------------------------------------------------------------------------------


async def test_a_run_id_that_no_event_of_the_run_can_hold_is_refused(log: EventLog, tmp_path: Path) -> None:
    """`run.started` has the id four times: it would not fit into the journal, and end its worker."""
    await inject(log, raw(log, command())._replace(key="r" * 300_000))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert reason == f"key: has more than {MAX_NAME:,} characters"


def test_a_dead_letter_quotes_a_little_of_what_is_wrong(log: EventLog) -> None:
    """The record in base64 and a text of it twice may be more than a record holds."""
    context = PartitionContext(log, CLOCK, BAD, 0, "inbox", "journal", 0, "partition-0")
    record = Record("inbox", 0, 0, 0, RUN, [], b"x" * 500_000, CODEC)
    letter, _ = dead_letter(context, record, EventValidationError("key", "is " + "y" * 400_000))
    assert len(CODEC.encode(letter.envelope)) < MAX_RECORD_BYTES


class Broken:
    """A partition's state that fails in a way that nobody foresaw."""

    agent_type, grown = "sample", False

    def __init__(self, error: Exception) -> None:
        self.error = error

    def is_known(self, run_id: str) -> bool:
        raise self.error


def test_whatever_a_record_makes_fail_is_its_dead_letter() -> None:
    record = Record("inbox", 0, 0, 0, RUN, [], CODEC.encode(command()), CODEC)
    found = judge(Broken(RecursionError("too deep")), record)  # type: ignore[arg-type]
    assert found.action is Action.DEAD_LETTER
    assert found.error is not None
    assert found.error.message == "value: RecursionError: too deep"


def test_a_log_that_is_away_is_no_fault_of_the_record() -> None:
    record = Record("inbox", 0, 0, 0, RUN, [], CODEC.encode(command()), CODEC)
    with pytest.raises(LogUnavailableError):
        judge(Broken(LogUnavailableError("gone")), record)  # type: ignore[arg-type]


# -- the registry --------------------------------------------------------------------------------------

GOOD, BAD = AgentRef("good", "good"), AgentRef("bad", "bad")


def offer(version: str = "1.0.0") -> Capability:
    return Capability(id="text.echo", version=version, input_schema={}, output_schema={}, priority=9)


@pytest.mark.parametrize("version", ["latest", "9" * 5_000, "", "1.0.0\x00"])
async def test_an_offer_of_no_version_hides_no_other(log: EventLog, version: str) -> None:
    registry = CapabilityRegistry(log)
    await registry.register(GOOD, offer().model_copy(update={"priority": 0}))
    wrong = {**offer().model_dump(mode="json"), "version": version}
    poison = CapabilityRegistered(agent_id="bad", agent_type="bad", capability=offer())
    event = forged(poison, BAD)
    value = CODEC.encode(event).replace(b'"version":"1.0.0"', b'"version":"1.0.x"')
    await inject(log, Prepared(log.topology.registry, 0, "k", header_text(event), (), value))
    unchecked = EventEnvelope.from_dict(
        {**event.to_dict(), "payload": {**event.payload, "capability": wrong}}
    )
    await inject(log, Prepared(log.topology.registry, 0, "k", header_text(event), (), encoded(unchecked)))
    assert (await registry.resolve("text.echo", "^1")).agent_id == "good"
    assert (await registry.resolve("text.echo")).agent_id == "good"
    assert len(registry.refused) == 2


async def test_an_offer_of_agents_without_topics_hides_no_other(log: EventLog) -> None:
    registry = CapabilityRegistry(log)
    await registry.register(GOOD, offer().model_copy(update={"priority": 0}))
    for name in ("a/b", "", "A", "x" * 100):
        poison = CapabilityRegistered(agent_id="bad", agent_type="bad", capability=offer())
        event = forged(poison, BAD).replace(
            payload={"agent_id": "bad", "agent_type": name, "capability": offer().model_dump(mode="json")}
        )
        await inject(log, Prepared(log.topology.registry, 0, "k", header_text(event), (), encoded(event)))
    assert (await registry.resolve("text.echo", "^1")).agent_id == "good"
    assert len(registry.refused) == 4


async def test_bytes_that_are_no_event_hide_no_offer(log: EventLog) -> None:
    registry = CapabilityRegistry(log)
    header = (("ce_type", b"capability.registered"),)
    await inject(log, Prepared(log.topology.registry, 0, "k", "", header, b"\xc3\x01garbage\xff" * 9))
    await registry.register(GOOD, offer())
    assert (await registry.resolve("text.echo", "^1")).agent_id == "good"
    assert list(registry.refused) == [0]


# -- heartbeats ----------------------------------------------------------------------------------------


async def test_a_heartbeat_that_is_none_hides_no_worker(log: EventLog) -> None:
    beat = AgentHeartbeat(
        agent_id="bad", agent_type="sample", instance_id="i", sequence=0, open_runs=0, interval_ms=9_000
    )
    event = forged(beat, BAD, partitions=[{"partition": 0, "epoch": 0, "next_offset": 0, "open_runs": 0}])
    for name in ("process", "versions"):
        del event.payload[name]
    header = (("ce_type", b"agent.heartbeat"),)
    await inject(log, Prepared(log.topology.heartbeat, 0, "k", "", header, b"garbage"))
    await put(log, log.topology.heartbeat, event)
    (found,) = await owned_partitions(log, CLOCK, ["sample"])
    assert found.partition == 0


# -- forms and bounds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/b", "", "A", "a" * 64, "a\n", "../x", "\u0430gent"])
async def test_an_answer_to_agents_without_topics_is_never_owed(
    log: EventLog, tmp_path: Path, name: str
) -> None:
    reply_to = {"agent_type": name, "run_id": RUN, "call_id": RUN}
    await inject(log, raw(log, command(reply_to=reply_to)))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert "payload.reply_to" in reason


@pytest.mark.parametrize("version", ["9" * 5_000, " " * 60_000, "1." + "0" * 300, "^" * 257])
async def test_a_version_has_a_bound(log: EventLog, tmp_path: Path, version: str) -> None:
    await inject(log, raw(log, command(agent_version=version)))
    (reason,) = await goes_on(log, tmp_path, 1)
    assert "payload.agent_version" in reason


@pytest.mark.parametrize("field", ["correlation_id", "causation_id", "idempotency_key"])
def test_a_text_of_the_envelope_has_a_bound(field: str) -> None:
    longest = CODEC.encode(command().replace(**{field: "x" * MAX_NAME}))
    assert getattr(CODEC.decode(longest), field) == "x" * MAX_NAME
    with pytest.raises(EventValidationError, match="4,097 characters"):
        command().replace(**{field: "x" * (MAX_NAME + 1)})
    length, longer = "\x02\x80\x40".encode("latin-1"), "\x02\x82\x40".encode("latin-1")
    longer_value = longest.replace(length + b"x", longer + b"xx", 1)
    with pytest.raises(EventValidationError, match=f"{field}: has 4,097 characters"):
        CODEC.decode(longer_value)


def test_every_field_of_every_standard_event_has_a_bound() -> None:
    """What holds any JSON value is bounded by the size and depth of a record."""
    unbounded = [
        f"{event_type}: {path}"
        for event_type, _, schema in standard_catalogue().schemas()
        for path, part in parts(schema)
        if not {"enum", "const"} & part.keys()
        and part.get("type") in BOUNDS
        and not BOUNDS[part["type"]] & part.keys()
    ]
    assert unbounded == []


BOUNDS = {"string": {"maxLength"}, "integer": {"maximum"}, "number": {"maximum"}}


def parts(schema: Any, path: str = "payload") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        yield path, schema
        for name, part in schema.items():
            if name not in ("default", "examples", "description"):
                yield from parts(part, f"{path}.{name}")
    elif isinstance(schema, list):
        for part in schema:
            yield from parts(part, path)


def raw(log: EventLog, event: EventEnvelope) -> Prepared:
    """The record of an event that nobody has checked."""
    key = event.partition_key or ""
    return Prepared(log.topology.inbox("sample"), 0, key, header_text(event), (), encoded(event))


@pytest.mark.parametrize("url", ["memory://?partitions=1", "sqlite:///{}/log.db?partitions=1"])
async def test_a_filter_passes_over_no_record_that_says_nothing_of_itself(tmp_path: Path, url: str) -> None:
    """Without a header and with garbage: the read went wrong, and nobody could tell by which record."""
    log = await open_log(url.format(tmp_path))
    topic = log.topology.registry
    await log.ensure_topics([log.topology.spec(topic)])
    await inject(log, Prepared(topic, 0, "k", "", (), b"garbage"))
    await put(
        log, topic, forged(CapabilityRegistered(agent_id="good", agent_type="good", capability=offer()), GOOD)
    )
    types = ("capability.",)
    records = [record async for record in log.read(topic, {}, until=await log.end(topic), types=types)]
    assert [record.offset for record in records] == [0, 1]
    await log.close()


async def test_what_waits_for_another_worker_may_have_no_key(log: EventLog, tmp_path: Path) -> None:
    value = encoded(command().replace(event_type="unknown.here"))
    await inject(log, Prepared(log.topology.inbox("sample"), 0, "", "", (), value))
    assert await goes_on(log, tmp_path, 0) == []
