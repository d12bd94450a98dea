"""A member that was not heard for longer than a group waits, as on a machine that slept, joins it again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import Consumer

from noesium_stream.log import open_log
from noesium_stream.log.kafka.group import member_config
from noesium_stream.log.kafka.group import subscription as kafka_group
from tests.support.events import catalogue, counted
from tests.support.kafka import KafkaServer
from tests.support.reading import GroupMember, eventually


async def test_a_member_that_has_not_polled_for_too_long_joins_its_group_again(
    kafka: KafkaServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own limit is five minutes; here it is as short as the session."""

    def hurried(config: dict[str, Any], **given: Any) -> Consumer:
        return Consumer({**config, "max.poll.interval.ms": member_config.SESSION_MS}, **given)

    obey, may_go_on = kafka_group.KafkaSubscription._obey, threading.Event()
    may_go_on.set()

    def standing_still(subscription: kafka_group.KafkaSubscription) -> None:
        may_go_on.wait()
        obey(subscription)

    monkeypatch.setattr(kafka_group, "Consumer", hurried)
    monkeypatch.setattr(kafka_group.KafkaSubscription, "_obey", standing_still)
    log, member = await open_log(f"{kafka.url(namespace)}&partitions=1", catalogue=catalogue()), GroupMember()
    topic = log.topology.events("demo")
    await log.ensure_topics([log.topology.spec(topic)])
    subscription = await log.subscribe(
        "group", [topic], member.handle, on_assigned=member.on_assigned, on_revoked=member.on_revoked
    )
    try:
        await eventually(lambda: member.assigned)

        async def left() -> bool:
            return not await log.members("group")

        may_go_on.clear()
        await eventually(left)
        await log.append([counted(0, "k")])
        may_go_on.set()
        done = subscription._done  # type: ignore[attr-defined]  # KafkaSubscription's
        await eventually(lambda: member.records or done.done())
        assert not done.done()
        assert member.revoked, "it was told that it had lost the partition"
        assert len(member.assigned) >= 2
    finally:
        may_go_on.set()
        await subscription.close()
        await log.close()
