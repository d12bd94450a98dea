"""Commits whose outcome the broker never tells: the answer is lost on the way, or the question is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.errors import CommitUnknownError, EventStoreError, LogUnavailableError
from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.kafka import append as kafka_append
from noesium_stream.log.kafka import transactional_producer as kafka_producer
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka import LOCAL_SETTINGS
from tests.support.ports import free_port
from tests.support.proxy import END_TXN, PRODUCE, KafkaProxy
from tests.support.reading import PATIENCE_S, numbers, stored


@pytest.fixture
async def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KafkaProxy]:
    """A broker whose clients all come through the proxy."""
    outside, inside = free_port(), free_port()
    settings = {**LOCAL_SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
    broker = LocalBroker(tmp_path, inside, settings=settings)
    proxy = KafkaProxy(inside)
    hurry(proxy, monkeypatch)
    await proxy.listen(outside)
    try:
        await asyncio.to_thread(broker.up)
        yield proxy
    finally:
        await proxy.close()
        broker.kill()


def hurry(proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for two seconds for what gets no answer, and as long as usual for all else."""
    usual_s, flush = kafka_producer._COMMIT_S, TransactionalProducer.flush

    def flushed(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(kafka_producer, "_COMMIT_S", usual_s)
        flush(producer)
        monkeypatch.setattr(kafka_producer, "_COMMIT_S", usual_s if proxy.losing is None else 2.0)

    monkeypatch.setattr(TransactionalProducer, "flush", flushed)


async def opened(proxy: KafkaProxy) -> EventLog:
    return await open_log(f"kafka://127.0.0.1:{proxy.port}?partitions=1", catalogue=catalogue())


async def test_a_commit_without_an_answer_is_unknown_and_reading_tells_what_became_of_it(
    proxy: KafkaProxy,
) -> None:
    log = await opened(proxy)
    journal = log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    writer = await log.writer("w")
    await writer.commit(outgoing([counted(0)], journal, 0))

    proxy.losing = END_TXN
    with pytest.raises(CommitUnknownError):
        await writer.commit(outgoing([counted(1)], journal, 0))
    assert proxy.lost >= 1
    proxy.losing = None
    with pytest.raises(CommitUnknownError):
        await writer.commit(outgoing([counted(2)], journal, 0))
    again = await log.writer("w")
    assert numbers(await stored(log, journal)) == [0, 1], "the broker had carried it out"

    proxy.losing, proxy.lose_requests = END_TXN, True
    with pytest.raises(CommitUnknownError):
        await again.commit(outgoing([counted(3)], journal, 0))
    proxy.losing = None
    third = await log.writer("w")
    assert numbers(await stored(log, journal)) == [0, 1], "the broker had not heard of it"
    await third.commit(outgoing([counted(4)], journal, 0))
    assert numbers(await stored(log, journal)) == [0, 1, 4]
    await log.close()


async def test_an_append_without_an_answer_finds_out_by_itself(proxy: KafkaProxy) -> None:
    log = await opened(proxy)
    topic = log.topology.events("demo")
    await log.append([counted(0, "k"), counted(1, "k")])

    proxy.losing = END_TXN
    waiting = asyncio.create_task(log.append([counted(2, "k"), counted(3, "k")]))
    while not proxy.lost:
        await asyncio.sleep(0.01)
    proxy.losing = None
    positions = await waiting
    records = await stored(log, topic)
    assert numbers(records) == [0, 1, 2, 3]
    assert [record.offset for record in records[2:]] == [position.offset for position in positions]

    proxy.losing, proxy.lose_requests = END_TXN, True
    waiting = asyncio.create_task(log.append([counted(4, "k"), counted(5, "k")]))
    lost = proxy.lost
    while proxy.lost == lost:
        await asyncio.sleep(0.01)
    with pytest.raises(EventStoreError) as caught:
        await waiting
    assert isinstance(caught.value, LogUnavailableError)
    proxy.losing = None
    await log.append([counted(6, "k"), counted(7, "k")])
    assert numbers(await stored(log, topic)) == [0, 1, 2, 3, 6, 7], "nothing of it was written"
    await log.close()


async def test_a_lone_append_without_an_answer_is_unknown_and_the_log_still_closes(
    proxy: KafkaProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await opened(proxy)
    topic = log.topology.events("demo")
    await log.append([counted(0, "k")])

    monkeypatch.setattr(kafka_append, "PUBLISH_S", 2.0)
    proxy.losing = PRODUCE
    with pytest.raises(CommitUnknownError, match="may be on the log or not"):
        await log.append([counted(1, "k")])
    async with asyncio.timeout(PATIENCE_S):
        await log.close()
    proxy.losing = None

    again = await opened(proxy)
    assert numbers(await stored(again, topic))[:2] == [0, 1], "the broker had taken it"
    await again.close()
