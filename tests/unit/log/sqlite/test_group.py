"""The table of a consumer group: what a member may still do when its lease has run out."""

from __future__ import annotations

from pathlib import Path

from noesium_stream.clock import VirtualClock
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.port import TopicPartition
from noesium_stream.log.sqlite.group import LEASE_S

TOPIC = "noesium.events.demo"


async def test_a_member_whose_lease_ran_out_holds_nothing_and_cannot_move_the_offset(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log(f"sqlite:///{tmp_path}/log.db?partitions=2", clock=clock)
    assert isinstance(log, EmbeddedLog)
    await log.ensure_topics([log.topology.spec(TOPIC)])
    topic = log.store.topic(TOPIC)
    assert topic is not None
    late = log.store.coordinator("group", "late", [topic])
    next_one = log.store.coordinator("group", "next", [topic])
    tp = TopicPartition(TOPIC, 0)

    first = (await late.poll()).held
    assert set(first) == {tp, TopicPartition(TOPIC, 1)}
    await late.commit({tp: (5, first[tp].epoch)})
    assert late.holds(first)

    clock.advance(LEASE_S / 2)
    await late.beat()
    clock.advance(LEASE_S * 0.75)
    assert set((await next_one.poll()).held) == set(), "the lease was renewed"
    assert late.holds(first)

    await late.release([tp])
    clock.advance(LEASE_S * 1.5)
    assert late.changed()
    taken = (await next_one.poll()).held
    assert set(taken) == set(first)
    assert taken[tp].offset == 5
    assert taken[tp].epoch > first[tp].epoch
    assert not late.holds({tp: first[tp]})
    await late.commit({tp: (9, first[tp].epoch)})
    await late.release(first)
    assert next_one.holds(taken)

    await next_one.leave()
    again = (await late.poll()).held
    assert again[tp].offset == 5, "what the late member said after its lease does not count"
    assert not late.holds(first), "it holds them in a new epoch"
    await late.commit({tp: (9, first[tp].epoch)})
    await late.leave()
    assert (await next_one.poll()).held[tp].offset == 5
    await log.close()
