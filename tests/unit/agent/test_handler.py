"""A handler's state is by partition: what may have parts of a key in several is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from noesium_stream.agent import BaseHandler
from noesium_stream.errors import ConfigError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.projection.base import BaseProjection


def handler(*, keyed: bool = True, **declared: Any) -> type[BaseHandler]:
    class Count(BaseProjection[int]):
        name = "count"

        def initial_state(self) -> int:
            return 0

        def apply(self, state: int, event: EventEnvelope) -> int:
            return state + 1

    if keyed:
        declared["key"] = lambda self, event: event.partition_key
    for name, value in declared.items():
        setattr(Count, name, value)

    class Counting(BaseHandler):
        agent_type = "counting"
        state = Count

        def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
            return ()

    return Counting


@pytest.mark.parametrize(
    "topics",
    [
        ("events.sales",),
        ("agent.*.journal",),
        ("agent.*.journal*",),
        ("agent.a.journal", "agent.a.journal.g2", "agent.b.journal.g*"),
    ],
)
def test_a_handler_of_one_topic_of_facts_or_of_journals_is_taken(topics: tuple[str, ...]) -> None:
    handler(topics=topics).check()


@pytest.mark.parametrize(
    "topics",
    [
        ("events.sales", "events.returns"),
        ("events.*",),
        ("events.[ab]",),
        ("agent.*.journal", "events.sales"),
        ("agent.*.journal", "events.journal"),
        ("agent.*",),
        BaseProjection.topics,
    ],
)
def test_a_handler_of_several_topics_is_refused_unless_a_state_per_partition_is_wanted(
    topics: tuple[str, ...],
) -> None:
    with pytest.raises(ConfigError, match="several: it reads several topics") as told:
        handler(topics=topics).check()
    assert "local_keys = True in Count" in str(told.value.hint)
    handler(topics=topics, local_keys=True).check()


def test_a_handler_without_a_key_is_refused_unless_a_state_per_partition_is_wanted() -> None:
    with pytest.raises(ConfigError, match="it declares no `key`"):
        handler(keyed=False, topics=("events.sales",)).check()
    handler(keyed=False, topics=("events.sales",), local_keys=True).check()
