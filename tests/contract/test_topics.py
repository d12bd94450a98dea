"""Topics: made as they have to be, checked where they exist, told apart from their namesakes."""

from __future__ import annotations

import pytest

from noesium_stream.errors import EventValidationError, TopicConfigError
from noesium_stream.log.generations import generations
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import TopicKind, TopicSpec
from tests.support.backends import PARTITIONS, Open
from tests.support.events import counted


async def test_topics_are_made_as_they_have_to_be_and_may_be_wanted_again(log: EventLog) -> None:
    names = [log.topology.inbox("tester"), log.topology.journal("tester"), log.topology.registry]
    specs = [log.topology.spec(name) for name in names]
    await log.ensure_topics(specs)
    await log.ensure_topics(specs)
    infos = {info.name: info for info in await log.topics()}
    assert set(infos) == set(names)
    for spec in specs:
        assert infos[spec.name].partitions == spec.partitions
        assert infos[spec.name].retention_ms == spec.retention_ms
        assert infos[spec.name].records == 0


async def test_topics_are_listed_by_name_with_their_size(log: EventLog) -> None:
    await log.append([counted(n, f"k{n}") for n in range(10)])
    await log.append([counted(1, "k")], topic=log.topology.dlq)
    infos = await log.topics()
    assert [info.name for info in infos] == sorted(info.name for info in infos)
    by_name = {info.name: info for info in infos}
    demo = by_name[log.topology.events("demo")]
    assert demo.partitions == PARTITIONS
    assert 10 <= demo.records <= 10 + PARTITIONS, "a transaction may have taken an offset in each partition"
    assert demo.bytes is not None
    assert demo.bytes > 1000
    assert by_name[log.topology.dlq].records == 1


async def test_too_few_partitions_are_refused_by_name(log: EventLog) -> None:
    name = log.topology.journal("tester")
    await log.ensure_topics([TopicSpec(name, TopicKind.JOURNAL, 2, None)])
    with pytest.raises(TopicConfigError, match=r"journal has 2 partitions, 4 are wanted"):
        await log.ensure_topics([TopicSpec(name, TopicKind.JOURNAL, 4, None)])


async def test_a_shorter_retention_than_wanted_is_refused_by_name(log: EventLog) -> None:
    name = log.topology.journal("tester")
    await log.ensure_topics([TopicSpec(name, TopicKind.JOURNAL, 2, 3_600_000)])
    with pytest.raises(TopicConfigError, match="journal"):
        await log.ensure_topics([TopicSpec(name, TopicKind.JOURNAL, 2, None)])


async def test_one_wrong_topic_keeps_the_others_from_being_made(log: EventLog) -> None:
    wrong, fresh = log.topology.journal("tester"), log.topology.inbox("tester")
    await log.ensure_topics([TopicSpec(wrong, TopicKind.JOURNAL, 1, None)])
    with pytest.raises(TopicConfigError):
        await log.ensure_topics([log.topology.spec(fresh), TopicSpec(wrong, TopicKind.JOURNAL, 2, None)])
    assert [info.name for info in await log.topics()] == [wrong]


async def test_how_many_partitions_a_new_topic_gets_is_no_demand_on_one_that_is_there(log: EventLog) -> None:
    name = log.topology.journal("tester")
    await log.ensure_topics([TopicSpec(name, TopicKind.JOURNAL, PARTITIONS - 1, None)])
    await log.ensure_topics([log.topology.spec(name)])
    assert len(await log.end(name)) == PARTITIONS - 1


@pytest.mark.parametrize("made_first", ["inbox", "journal"])
async def test_an_agents_inbox_and_journal_have_equally_many_partitions_whoever_made_the_first(
    log: EventLog, made_first: str
) -> None:
    topics = {"inbox": log.topology.inbox("tester"), "journal": log.topology.journal("tester")}
    kind = TopicKind.INBOX if made_first == "inbox" else TopicKind.JOURNAL
    retention = log.topology.spec(topics[made_first]).retention_ms
    await log.ensure_topics([TopicSpec(topics[made_first], kind, PARTITIONS + 2, retention)])
    (found,) = await generations(log, "tester")
    assert found.partitions == PARTITIONS + 2
    assert {len(await log.end(name)) for name in topics.values()} == {PARTITIONS + 2}


@pytest.mark.parametrize("wide", ["inbox", "journal"])
async def test_a_journal_and_an_inbox_that_have_not_equally_many_partitions_are_refused(
    log: EventLog, wide: str
) -> None:
    inbox, journal = log.topology.inbox("tester"), log.topology.journal("tester")
    counts = {"inbox": 2, "journal": 2, wide: 3}
    retention = log.topology.spec(inbox).retention_ms
    await log.ensure_topics(
        [
            TopicSpec(inbox, TopicKind.INBOX, counts["inbox"], retention),
            TopicSpec(journal, TopicKind.JOURNAL, counts["journal"], None),
        ]
    )
    said = rf"journal has {counts['journal']} partitions and .*inbox {counts['inbox']}: they need"
    with pytest.raises(TopicConfigError, match=said):
        await generations(log, "tester")


async def test_a_topic_that_exists_keeps_its_partitions(log: EventLog) -> None:
    name = log.topology.events("demo")
    await log.ensure_topics([TopicSpec(name, TopicKind.EVENTS, 2, None)])
    positions = await log.append([counted(n, f"k{n}") for n in range(20)])
    assert {position.partition for position in positions} == {0, 1}
    assert set(await log.end(name)) == {0, 1}


async def test_every_log_on_a_store_knows_a_topic_by_the_same_id(log_factory: Open) -> None:
    one, other = await log_factory(), await log_factory()
    names = [one.topology.inbox("tester"), one.topology.journal("tester")]
    await one.ensure_topics([one.topology.spec(name) for name in names])
    ids = [await one.topic_id(name) for name in names]
    assert [await other.topic_id(name) for name in names] == ids
    assert len(set(ids)) == 2


async def test_reading_a_partition_that_is_not_there_is_an_error(log: EventLog) -> None:
    name = log.topology.events("demo")
    await log.append([counted(1, "k")])
    with pytest.raises(EventValidationError, match="partition"):
        await anext(log.read(name, {PARTITIONS: 0}, until={PARTITIONS: 1}))


async def test_a_topic_that_is_made_like_another_keeps_its_records_as_long(log: EventLog) -> None:
    old, new = log.topology.inbox("tester"), log.topology.inbox("tester", 2)
    days_20 = 20 * 86_400_000
    await log.ensure_topics([TopicSpec(old, TopicKind.INBOX, 2, days_20)])
    like = TopicSpec(new, TopicKind.INBOX, 5, 86_400_000, like=old)
    await log.ensure_topics([like])
    await log.ensure_topics([like])
    infos = {info.name: (info.partitions, info.retention_ms) for info in await log.topics()}
    assert infos == {old: (2, days_20), new: (5, days_20)}
