"""Topics that exist with settings that lose or reorder events, and topics as this package makes them."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from noesium_stream.errors import FencedError, LogUnavailableError, TopicConfigError, TopicNotFoundError
from noesium_stream.log.kafka import transactional_producer
from noesium_stream.log.open import open_log
from noesium_stream.log.port import Outgoing
from noesium_stream.log.topics import TopicKind, TopicSpec
from tests.support.events import catalogue, counted
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually, numbers, stored


def make(server: KafkaServer, topic: str, partitions: int = 8, **settings: str) -> None:
    """Make a topic as a stranger would."""
    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
    config.update({name.replace("_", "."): value for name, value in settings.items()})
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(PATIENCE_S)


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("cleanup.policy", "compact", "delete"),
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("retention.ms", "86400000", "-1"),
        ("retention.bytes", "1000000", "-1"),
        ("unclean.leader.election.enable", "true", "false"),
    ],
)
async def test_a_journal_with_a_wrong_setting_is_refused_with_the_command_that_repairs_it(
    kafka: KafkaServer, namespace: str, setting: str, value: str, wanted: str
) -> None:
    log = await open_log(kafka.url(namespace))
    journal = log.topology.journal("tester")
    make(kafka, journal, **{setting.replace(".", "_"): value})
    with pytest.raises(TopicConfigError) as caught:
        await log.ensure_topics([log.topology.spec(journal)])
    assert f"{journal} has {setting}={value}, {wanted} is wanted" in caught.value.message
    assert f"--bootstrap-server {kafka.bootstrap}" in str(caught.value.hint)
    assert f"--entity-name {journal} --add-config {setting}={wanted}" in str(caught.value.hint)
    await log.close()


async def test_an_append_to_a_compacted_topic_is_refused_before_anything_enters(
    kafka: KafkaServer, namespace: str
) -> None:
    log = await open_log(kafka.url(namespace), catalogue=catalogue())
    topic = log.topology.events("demo")
    make(kafka, topic, cleanup_policy="compact")
    for events in ([counted(1, "k")], [counted(1, "k"), counted(2, "k")]):
        with pytest.raises(TopicConfigError, match="compaction"):
            await log.append(events)
    assert await log.last_offset(topic) == 0
    await log.close()


async def test_too_few_partitions_are_told_with_both_ways_out(kafka: KafkaServer, namespace: str) -> None:
    log = await open_log(kafka.url(namespace))
    journal = log.topology.journal("tester")
    make(kafka, journal, partitions=3)
    with pytest.raises(TopicConfigError, match="has 3 partitions, 8 are wanted") as caught:
        await log.ensure_topics([TopicSpec(journal, TopicKind.JOURNAL, 8, None)])
    assert "?partitions=3" in str(caught.value.hint)
    assert f"--alter --topic {journal} --partitions 8" in str(caught.value.hint)
    await log.close()


async def test_topics_are_made_with_the_settings_of_their_kind(kafka: KafkaServer, namespace: str) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=2")
    names = [log.topology.journal("tester"), log.topology.inbox("tester")]
    await log.ensure_topics([log.topology.spec(name) for name in names])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for name, retention in zip(names, ("-1", str(14 * 86_400_000)), strict=True):
        [answer] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        settings = {key: entry.value for key, entry in answer.result(PATIENCE_S).items()}
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert settings["cleanup.policy"] == "delete"
        assert settings["retention.ms"] == retention
        assert settings["min.insync.replicas"] == "1"
    await log.close()


async def test_a_topic_deleted_and_made_anew_has_another_id_and_appends_go_on(
    kafka: KafkaServer, namespace: str
) -> None:
    log = await open_log(f"{kafka.url(namespace)}&partitions=2", catalogue=catalogue())
    topic = log.topology.events("demo")
    await log.append([counted(1, "k"), counted(2, "k")])
    before = await log.topic_id(topic)
    assert await log.topic_id(topic) == before
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)

    async def gone() -> bool:
        try:
            await log.end(topic)
        except TopicNotFoundError:
            return True
        return False

    await eventually(gone)
    await log.append([counted(3, "k"), counted(4, "k")])
    assert await log.topic_id(topic) != before
    assert numbers(await stored(log, topic)) == [3, 4]
    await log.close()


async def test_a_topic_that_was_deleted_unnoticed_is_made_anew_by_whoever_writes_next(
    kafka: KafkaServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka asks the coordinator again and again to add a partition that it does not know."""
    monkeypatch.setattr(transactional_producer, "TRANSACTION_TIMEOUT_MS", 2_000)
    log = await open_log(f"{kafka.url(namespace)}&partitions=2", catalogue=catalogue())
    topic = log.topology.events("demo")
    await log.append([counted(1, "k"), counted(2, "k")])
    await gone(kafka, topic)
    await log.append([counted(3, "k"), counted(4, "k")])
    assert numbers(await stored(log, topic)) == [3, 4]

    writer = await log.writer("w")
    await writer.commit([Outgoing(counted(5, "k"), topic, 0, "k")])
    await gone(kafka, topic)
    with pytest.raises(LogUnavailableError):
        await writer.commit([Outgoing(counted(6, "k"), topic, 0, "k")])
    with pytest.raises(FencedError, match="let go of its id"):
        await writer.commit([Outgoing(counted(6, "k"), topic, 0, "k")])
    await writer.close()
    writer = await log.writer("w")
    await writer.commit([Outgoing(counted(7, "k"), topic, 0, "k")])
    assert numbers(await stored(log, topic)) == [7]
    await writer.close()
    await log.close()


async def gone(server: KafkaServer, topic: str) -> None:
    """Delete a topic as a stranger would; return when the broker does not know it any more."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)
    await eventually(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
