"""A2A on a real Kafka: offsets with gaps, and two servers on one log."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from a2a.types import SubscribeToTaskRequest

from noesium_stream.client import Client
from tests.support.a2a import Desk, Place, Tour, after, message, seen, sent, until_seen
from tests.support.kafka import KafkaServer


async def test_a_stream_goes_on_at_another_server_while_the_first_one_still_serves(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.url = f"{kafka.url('a' + secrets.token_hex(4))}&partitions=2"
    async with place.working(Desk, Tour) as log, Client(log) as runs:
        with place.serving() as one, place.serving() as other:
            async with one.client(streaming=True) as first, other.client(streaming=True) as second:
                events: list[dict[str, object]] = []

                async def read() -> None:
                    async for response in first.send_message(message("m1", "north", skill="tour.walk")):
                        events.append(seen(response))

                reading = asyncio.create_task(read())
                await until_seen(events, state="WORKING")
                [info] = await runs.list_runs(agent_type="tour")
                run = runs.run_handle("tour", info.run_id)
                for node in ("first", "second", "third"):
                    await run.signal(node)
                await reading
                request = SubscribeToTaskRequest(id=f"tour.{info.run_id}")
                for place_in in range(1, len(events) - 1):
                    context = after(str(events[place_in]["cursor"]))
                    rest = [seen(event) async for event in second.subscribe(request, context=context)]
                    assert rest[1:] == events[place_in + 1 :]
            async with one.client() as first, other.client() as second:
                tasks = await asyncio.gather(
                    *(
                        sent(peer, message("m2", "good day", skill="desk.upper"))
                        for peer in (first, second) * 3
                    )
                )
        assert len(await runs.list_runs(agent_type="desk")) == 1
    assert [event["node"] for event in events if "node" in event] == ["first", "second", "third"]
    assert [event["kind"] for event in events][-2:] == ["artifact_update", "status_update"]
    assert len({task.id for task in tasks}) == 1
    assert {task.artifacts[0].parts[0].text for task in tasks} == {"GOOD DAY"}
