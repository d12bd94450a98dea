"""Partitioning, routing and headers as pure functions."""

from __future__ import annotations

import pytest

from noesium_stream.errors import ConfigError, EventValidationError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log.generations import fitting_spec
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.port import TopicShape
from noesium_stream.log.prepare import standard_headers
from noesium_stream.log.topics import TopicKind, Topology, murmur2, partition_of, route
from tests.support.events import counted

# From Apache Kafka's own test of `Utils.murmur2`.
VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_murmur2_is_kafkas(key: str, signed: int) -> None:
    assert murmur2(key.encode()) == signed & 0xFFFFFFFF
    for partitions in (1, 3, 8, 1000):
        assert partition_of(key, partitions) == (signed & 0x7FFFFFFF) % partitions


def test_routes_are_the_designed_ones() -> None:
    names = Topology("ns")
    assert route(counted(1), names) == "ns.events.demo"
    assert route(counted(1, metadata={"to": "librarian"}), names) == "ns.agent.librarian.inbox"
    with pytest.raises(EventValidationError, match=r"metadata\.to"):
        route(counted(1, metadata={"to": "No Name"}), names)


def test_tasks_have_two_topics_and_a_group_by_the_id_of_their_capability() -> None:
    names = Topology("ns")
    assert names.task("image.resize") == "ns.task.image.resize"
    assert names.spec("ns.task.image.resize").kind is TopicKind.TASK
    assert names.spec("ns.task.image.resize").retention_ms == names.spec(names.inbox("a")).retention_ms
    assert names.spec(names.taken("image.resize")).kind is TopicKind.TAKEN
    assert names.spec(names.taken("image.resize")).retention_ms is None
    assert names.takers("image.resize") == "ns.tasks.image.resize"


@pytest.mark.parametrize("wrong", ["", "a b", "a..b", ".a", "a.", "a/b", "é", "a2a:https://x", "x" * 121])
def test_an_id_that_makes_no_topic_name_has_no_tasks(wrong: str) -> None:
    for named in (Topology("ns").task, Topology("ns").taken, Topology("ns").takers):
        with pytest.raises(ConfigError, match="cannot have a topic"):
            named(wrong)
    with pytest.raises(ConfigError, match="is no topic"):
        Topology("ns").kind(f"ns.task.{wrong}")


def test_a_topics_kind_follows_from_its_name() -> None:
    names = Topology("ns")
    kinds = {
        names.inbox("a"): TopicKind.INBOX,
        names.journal("a"): TopicKind.JOURNAL,
        names.events("shop"): TopicKind.EVENTS,
        names.registry: TopicKind.REGISTRY,
        names.dlq: TopicKind.DLQ,
    }
    assert {topic: names.kind(topic) for topic in kinds} == kinds
    assert names.spec(names.registry).partitions == 1
    with pytest.raises(ConfigError):
        names.kind("other.events.shop")


def test_header_values_hold_any_agent_id_on_one_line() -> None:
    event = counted(1).replace(producer=AgentRef("müller\n&söhne", "a b", "local", ""))
    headers = dict(standard_headers(event))
    assert headers["ce_source"] == b"/agents/a%20b/m%C3%BCller%0A%26s%C3%B6hne"
    assert headers["ce_id"].decode() == event.event_id


@pytest.mark.parametrize("ms", [0, 999, 1_767_225_600_000, 1_767_225_600_007, 253_402_300_799_999])
def test_the_time_header_is_the_envelopes_to_the_millisecond(ms: int) -> None:
    event = counted(1).replace(timestamp_ms=ms)
    assert dict(standard_headers(event))["ce_time"].decode() == event.to_dict()["timestamp"]


def test_a_type_filter_takes_names_and_prefixes() -> None:
    keep = TypeFilter(["demo.counted", "shop."])
    assert [
        keep.keeps(name) for name in (b"demo.counted", b"demo.counted.x", b"shop.sold", b"shopping.sold")
    ] == [
        True,
        False,
        True,
        False,
    ]
    assert not TypeFilter([]).keeps(b"demo.counted")


@pytest.mark.parametrize(("there", "wanted"), [("inbox", "journal"), ("journal", "inbox")])
def test_one_of_an_inbox_and_its_journal_is_made_like_the_other(there: str, wanted: str) -> None:
    topology = Topology(partitions=8)
    layout = {
        f"noesium.agent.echo.{there}": TopicShape(3, "id"),
        "noesium.agent.other.inbox": TopicShape(5, "o"),
    }
    assert fitting_spec(topology, layout, f"noesium.agent.echo.{wanted}").partitions == 3
    assert fitting_spec(topology, layout, "noesium.agent.third.journal").partitions == 8
    assert fitting_spec(topology, layout, "noesium.events.echo").partitions == 8
