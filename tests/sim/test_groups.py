"""The simulated groups keep what real ones promise."""

from __future__ import annotations

from random import Random

from noesium_stream.log.port import TopicPartition
from tests.sim.broker import Broker, Link
from tests.sim.log import SimCoordinator
from tests.sim.loop import SimLoop

PLACE = TopicPartition("noesium.agent.caller.inbox", 0)


def test_a_partition_whose_release_was_lost_on_the_way_does_not_stay_with_nobody() -> None:
    loop = SimLoop(Random("schedule"))
    broker = Broker(loop, Random("broker"))
    link = Link(broker, loop.outside, Random("link"), {})

    async def let_go() -> None:
        member = SimCoordinator(link, "group", "anna", {PLACE.topic: 1})
        assert PLACE in (await member.poll()).held
        link.cut = True
        await member.release([PLACE])
        link.cut = False
        assert member.changed()
        assert PLACE in (await member.poll()).held

    try:
        loop.run_until_complete(let_go())
    finally:
        loop.close()
