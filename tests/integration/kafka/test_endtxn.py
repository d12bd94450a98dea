"""An EndTxn that is late on its way must not end a later transaction.

librdkafka speaks the old transaction protocol: its EndTxn names the producer and its epoch, and not the
transaction. The client repeats one whose connection broke, and is told that all is well; the late copy still
fits the next transaction of the same producer. (Under KIP-890 the broker itself raises the epoch with each
transaction; that takes EndTxn of version 5 from the client.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from noesium_stream.errors import BrokerError, EventStoreError, FencedError
from noesium_stream.log.broker.local import LocalBroker
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, LogWriter
from tests.support.endtxn import LateEndTxnProxy
from tests.support.events import catalogue, counted, outgoing
from tests.support.kafka import LOCAL_SETTINGS
from tests.support.ports import free_port
from tests.support.reading import PATIENCE_S, numbers, stored

OLD_PROTOCOL = 4
"""The last version of EndTxn that names no transaction."""


async def started(folder: Path) -> tuple[LocalBroker, LateEndTxnProxy]:
    """A broker, and the proxy before it; with other ports where a program beside has taken one of these."""
    for number in range(5):
        outside, inside = free_port(), free_port()
        settings = {**LOCAL_SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{outside}"}
        broker, proxy = LocalBroker(folder / str(number), inside, settings=settings), LateEndTxnProxy(inside)
        try:
            await proxy.listen(outside)
        except OSError:
            continue
        try:
            await asyncio.to_thread(broker.up)
        except BrokerError as error:
            await proxy.close()
            if "is taken by another program" not in str(error):
                raise
            continue
        return broker, proxy
    raise AssertionError("no free ports on this machine")


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[LateEndTxnProxy]:
    """A broker whose clients all come through the proxy."""
    broker, proxy = await started(tmp_path)
    try:
        yield proxy
    finally:
        await proxy.close()
        broker.kill()


async def opened(proxy: LateEndTxnProxy) -> tuple[EventLog, str]:
    """A log, and a journal on it."""
    log = await open_log(f"kafka://127.0.0.1:{proxy.port}?partitions=1", catalogue=catalogue())
    journal = log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    return log, journal


async def still_open(log: EventLog, writer: LogWriter, journal: str, number: int) -> LogWriter:
    """Write one record into an open transaction: of this writer, or as its owner does, of the next one."""
    try:
        transaction = await writer.begin()
        await transaction.write(outgoing([counted(number)], journal, 0))
    except FencedError:
        writer = await log.writer("w")
        transaction = await writer.begin()
        await transaction.write(outgoing([counted(number)], journal, 0))
    return writer


async def test_what_the_old_protocol_would_do_a_late_copy_commits_half_of_the_next_transaction(
    proxy: LateEndTxnProxy,
) -> None:
    log, journal = await opened(proxy)
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "transactional.id": "bare"})
    await asyncio.to_thread(producer.init_transactions)

    proxy.hold_next = True
    producer.begin_transaction()
    producer.produce(journal, b"first", partition=0)
    await asyncio.to_thread(producer.commit_transaction)  # all is well, it says
    assert proxy.held is not None
    repeated = [request for request in proxy.seen if request.transactional_id == "bare"]
    assert [(r.epoch, r.commit) for r in repeated] == [(proxy.held.epoch, True)]
    assert repeated[0].version <= OLD_PROTOCOL

    producer.begin_transaction()
    producer.produce(journal, b"second", partition=0)
    await asyncio.to_thread(producer.flush)
    assert await proxy.deliver() == 0, "the broker takes it"
    end = await log.end(journal)
    values = [record.value async for record in log.read(journal, {}, until=end)]
    assert values == [b"first", b"second"], "and nobody has committed the second"
    await log.close()


async def test_a_late_copy_of_a_commit_does_not_commit_what_is_open_by_then(proxy: LateEndTxnProxy) -> None:
    log, journal = await opened(proxy)
    writer = await log.writer("w")
    proxy.hold_next = True
    await writer.commit(outgoing([counted(0)], journal, 0))
    assert proxy.held is not None
    assert proxy.held.commit
    assert proxy.held.transactional_id.endswith(".writer.w")

    writer = await still_open(log, writer, journal, 1)
    assert await proxy.deliver() != 0
    await writer.close()
    assert numbers(await stored(log, journal)) == [0], "the open one was aborted, whole"
    await log.close()


async def test_a_late_copy_of_an_abort_does_not_abort_what_is_open_by_then(proxy: LateEndTxnProxy) -> None:
    log, journal = await opened(proxy)
    writer = await log.writer("w")
    proxy.hold_next = True
    transaction = await writer.begin()
    await transaction.write(outgoing([counted(0)], journal, 0))
    await transaction.abort()
    assert proxy.held is not None
    assert not proxy.held.commit

    writer = await still_open(log, writer, journal, 1)
    assert await proxy.deliver() != 0
    transaction = writer._open  # type: ignore[attr-defined]
    await transaction.write(outgoing([counted(2)], journal, 0))
    await transaction.commit()
    assert numbers(await stored(log, journal)) == [1, 2], "both halves"
    await log.close()


async def test_no_late_copy_fits_where_the_client_tells_nothing_of_a_broken_connection(
    proxy: LateEndTxnProxy,
) -> None:
    """librdkafka tells of the third break in the same words within half a minute no more."""
    log, journal = await opened(proxy)
    writer = await log.writer("w")
    committed = [-1]
    await writer.commit(outgoing([counted(-1)], journal, 0))
    for number in range(3):  # broken between transactions, which does no harm
        proxy.opened.clear()
        proxy.cut()
        async with asyncio.timeout(PATIENCE_S):
            await proxy.opened.wait()
        writer.serve()  # type: ignore[attr-defined]  # KafkaWriter's
        try:
            await writer.commit(outgoing([counted(number)], journal, 0))
        except FencedError:
            writer = await log.writer("w")
        else:
            committed.append(number)
    proxy.hold_next = True
    try:
        await writer.commit(outgoing([counted(3)], journal, 0))
    except FencedError:
        writer = await log.writer("w")
        await writer.commit(outgoing([counted(3)], journal, 0))
    assert proxy.held is not None

    writer = await still_open(log, writer, journal, 4)
    assert await proxy.deliver() != 0
    await writer.close()
    assert numbers(await stored(log, journal)) == [*committed, 3], "the open one was aborted, whole"
    await log.close()


async def test_a_late_copy_of_an_appends_commit_does_not_tear_the_next_append(proxy: LateEndTxnProxy) -> None:
    log, _ = await opened(proxy)
    topic = log.topology.events("demo")
    proxy.hold_next = True
    await log.append([counted(0, "k"), counted(1, "k")])
    assert proxy.held is not None
    await log.append([counted(2, "k"), counted(3, "k")])
    ended = [r for r in proxy.seen if r.transactional_id == proxy.held.transactional_id]
    assert ended[0].epoch == proxy.held.epoch, "the client's own repetition"
    assert ended[1].epoch > proxy.held.epoch, "a producer that was made anew"
    assert await proxy.deliver() != 0
    assert numbers(await stored(log, topic)) == [0, 1, 2, 3]
    await log.close()


async def test_an_unplain_commit_that_was_told_as_done_is_done_once(proxy: LateEndTxnProxy) -> None:
    log, journal = await opened(proxy)
    writer = await log.writer("w")
    for number in range(4):
        proxy.hold_next = True
        try:
            await writer.commit(outgoing([counted(number)], journal, 0))
        except EventStoreError:
            writer = await log.writer("w")
            await writer.commit(outgoing([counted(number)], journal, 0))
        await proxy.deliver()
    assert numbers(await stored(log, journal)) == [0, 1, 2, 3]
    await log.close()
