"""Facts of a program's own: published, and read by a projection that names their classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream import (
    AttachedProjection,
    BaseProjection,
    Client,
    DomainEvent,
    EventEnvelope,
    ProjectionEngine,
    SyncClient,
    open_log,
)
from noesium_stream.errors import ConfigError, EventValidationError
from noesium_stream.log.topics import partition_of


class Paid(DomainEvent, event_type="invoice.paid"):
    cents: int


class Revenue(BaseProjection[int]):
    name = "revenue"
    events = (Paid,)
    event_types = ("invoice.paid",)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["cents"])


async def test_what_is_published_is_read_by_a_projection_of_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    async with Client(url, agent_id="shop") as client:
        for cents in (100, 250):
            seen = await client.publish(Paid(cents=cents), key="ada")
        assert (seen.topic, seen.offset) == ("noesium.events.invoice", 1)
    log = await open_log(url)  # nothing is registered with it
    with ProjectionEngine(log) as engine:
        engine.register("revenue", Revenue())
        await engine.wait_for("revenue", seen)
        assert engine.query("revenue", "ada") == 350
    await log.close()
    log = await open_log(url)
    async with AttachedProjection(log, Revenue(), tmp_path / "states") as attached:
        await attached.wait_for(seen)
        assert await attached.query("ada") == 350
    [event] = [
        record.envelope
        async for record in log.read(
            seen.topic, {seen.partition: seen.offset}, until=await log.end(seen.topic)
        )
    ]
    assert (event.producer.agent_id, event.partition_key) == ("shop", "ada")
    assert seen.partition == partition_of("ada", len(await log.end(seen.topic)))
    await log.close()


async def test_an_event_without_a_type_or_that_is_not_valid_is_refused() -> None:
    class Nameless(DomainEvent):
        n: int

    class Another(DomainEvent, event_type="invoice.paid"):
        euros: int

    async with Client("memory://") as client:
        with pytest.raises(ConfigError):
            await client.publish(Nameless(n=1))
        await client.publish(Paid(cents=1))
        with pytest.raises(ConfigError, match="another schema"):
            await client.publish(Another(euros=1))
        with pytest.raises(EventValidationError):
            await client.publish(Paid.model_construct(), key="ada")


async def test_a_projection_whose_events_the_log_knows_otherwise_does_not_start() -> None:
    class Another(DomainEvent, event_type="invoice.paid"):
        euros: int

    log = await open_log("memory://")
    async with Client(log) as client:
        await client.publish(Another(euros=1))
        with ProjectionEngine(log) as engine:
            engine.register("revenue", Revenue())
            with pytest.raises(ConfigError, match="another schema"):
                await engine.catch_up("revenue")
    await log.close()


def test_a_program_without_an_event_loop_publishes_too(tmp_path: Path) -> None:
    with SyncClient(f"sqlite:///{tmp_path}/log.db") as client:
        assert client.publish(Paid(cents=1), key="ada").offset == 0
        assert client.publish(Paid(cents=1), key="ada").offset == 1
