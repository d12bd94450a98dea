"""Erasing a person on a real Kafka: runs and memory are sealed on the broker, and nothing is found later."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from noesium_stream import Worker
from noesium_stream.client import Client
from noesium_stream.client.erasure import erase
from noesium_stream.client.erasure.survey import records_of
from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.sealing.key_folder import KeyFolder
from noesium_stream.log import open_log
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S
from tests.unit.client.erasure.test_erase_runs import Planner

PLACE, CITY = "Lisbon on the Tagus", "Porto on the Douro"


async def test_nothing_of_a_person_is_left_on_the_broker(kafka: KafkaServer, tmp_path: Path) -> None:
    clock = SystemClock()
    keys = KeyFolder(tmp_path / "keys", clock)
    log = await open_log(f"{kafka.url('e' + secrets.token_hex(4))}&partitions=2", subject_keys=keys)
    home = tmp_path / "home"
    async with Worker(log, [Planner], home=home), Client(log) as client:
        run = await client.start("planner", {"place": "nowhere", "answer": PLACE}, subject="user:ada")
        await run.result(timeout=PATIENCE_S)
        memory = client.memory("user:ada", home=home)
        await memory.write("city", CITY)
        assert await memory.recall("city") == CITY
        memory.close()
        values: list[Any] = [record.value async for record in records_of(log)]
        assert not [one for one in values if PLACE.encode() in one or CITY.encode() in one]
    log = await open_log(log.url, subject_keys=keys)
    done = await erase(log, home, "user:ada", AgentRef("op", "client", "local", "i"), clock, prove=True)
    assert done.scanned is not None
    assert (done.scanned.found, done.left) == ([], [])
    assert done.scanned.texts >= 2
    assert done.scanned.records > len(values)
    async with Client(log) as client:
        assert (await (await client.get_run(run.id)).info()).result == "erased"
        memory = client.memory("user:ada", home=home)
        assert await memory.recall("city") is None
        memory.close()
    await log.close()
