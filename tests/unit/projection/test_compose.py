"""Several projections as one: the states of all, of one position, in one file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from noesium_stream.errors import ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.compose import compose
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.stored.stored_projection import describe, open_stored_projection
from tests.support.attach import Numbers
from tests.support.events import Counted, Sold, catalogue, counted, noted, sold
from tests.support.reading import PATIENCE_S


class Stock(BaseModel):
    left: int = 10
    names: set[str] = set()


class Shop(BaseProjection[Stock]):
    name = "shop"
    topics = ("events.*",)
    event_types = ("shop.sold",)
    in_place = True

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> Stock:
        return Stock()

    def apply(self, state: Stock, event: EventEnvelope) -> Stock | None:
        state.left -= 1
        state.names.add(str(event.payload["n"]))
        return state if state.left else None


class Counts(BaseProjection[int]):
    name = "counts"
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1

    def merge(self, a: int, b: int) -> int:
        return a + b


class Most(Counts):
    name = "most"
    event_types = ("demo.counted",)

    def apply(self, state: int, event: EventEnvelope) -> int:
        return max(state, event.payload["n"])

    def merge(self, a: int, b: int) -> int:
        return max(a, b)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    yield log
    await log.close()


async def test_each_part_has_the_state_that_it_would_have_alone(log: EventLog, tmp_path: Path) -> None:
    events = [make(n, f"k{n % 5}") for n in range(60) for make in (counted, noted, sold)]
    await log.append(events, topic=log.topology.events("all"))
    whole = compose("system", numbers=Numbers(), shop=Shop())
    with ProjectionEngine(log, tmp_path) as engine:
        for name, projection in (("numbers", Numbers()), ("shop", Shop()), ("system", whole)):
            engine.register(name, projection)
        alone = await engine.get_state("numbers"), await engine.get_state("shop")
        assert alone[1]["k0"].left == 8, "the row was removed after ten, and begun anew"
        together = await engine.get_state("system")
        assert {key: row["numbers"] for key, row in together.items()} == alone[0]
        assert {key: Stock(**dict(row["shop"])) for key, row in together.items()} == alone[1]


async def test_its_states_are_stored_as_the_parts_say_and_in_one_order(log: EventLog) -> None:
    whole = compose("system", shop=Shop(), numbers=Numbers())
    codec: StateCodec[Any] = StateCodec(whole)
    state = {"numbers": [1], "shop": Stock(left=3, names={"b", "a"})}
    data = codec.encode(state)
    assert data == b'{"numbers":[1],"shop":{"left":3,"names":["a","b"]}}'
    assert codec.decode(data) == state
    assert isinstance(codec.decode(data)["shop"], Stock)
    again: StateCodec[Any] = StateCodec(compose("system", numbers=Numbers(), shop=Shop()))
    assert again.shape == codec.shape, "the order in which parts are given is no matter"


async def test_a_new_version_of_a_part_is_another_shape() -> None:
    class Newer(Numbers):
        version = 2

    old, new = (StateCodec(compose("s", numbers=part, shop=Shop())).shape for part in (Numbers(), Newer()))
    assert old != new


async def test_states_without_keys_are_merged_part_by_part(log: EventLog) -> None:
    whole = compose("all", counts=Counts(), most=Most())
    assert whole.merges()
    assert not whole.keyed()
    with ProjectionEngine(log) as engine:
        engine.register("all", whole)
        assert await engine.get_state("all") == {"counts": 0, "most": 0}
        await log.append([counted(n, f"k{n}") for n in range(50)])
        await log.append([sold(99, "k")])
        assert await engine.get_state("all") == {"counts": 51, "most": 49}


async def test_what_the_parts_declare_is_declared_by_the_whole() -> None:
    whole = compose("s", 3, numbers=Numbers(), shop=Shop())
    assert (whole.name, whole.version, whole.topics) == ("s", 3, ("events.*",))
    assert whole.event_types is None
    assert whole.in_place
    assert whole.keyed()
    assert not whole.merges()
    assert compose("s", a=Shop(), b=Shop()).event_types == ("shop.sold",)


async def test_a_part_is_not_given_what_it_does_not_want() -> None:
    whole = compose("s", numbers=Numbers(), shop=Shop())
    state = whole.apply({}, counted(1, "k"))
    assert state == {"numbers": [1]}
    state = whole.apply(state, sold(2, "k"))
    assert state == {"numbers": [1, 2], "shop": Stock(left=9, names={"2"})}


async def test_what_cannot_be_folded_together_is_refused() -> None:
    class Elsewhere(Numbers):
        topics = ("events.shop",)

    class Headers(Numbers):
        headers_only = True

    with pytest.raises(ProjectionError, match="nothing"):
        compose("s")
    for other, what in ((Elsewhere(), "topics"), (Headers(), "headers_only"), (Counts(), "key")):
        with pytest.raises(ProjectionError, match=f"`{what}` differs at b"):
            compose("s", a=Numbers(), b=other)


class Sized(Numbers):
    """Events of all topics by key, merged."""

    name = "sized"

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        return sorted(a + b)


async def test_a_key_of_several_topics_names_them_and_the_parts_without_merge(
    log: EventLog, tmp_path: Path
) -> None:
    await log.append([counted(1, "k"), sold(2, "k")])
    whole = compose("system", numbers=Numbers(), shop=Shop(), sized=Sized())
    describe(tmp_path, whole, "g", None)
    with ProjectionEngine(log, tmp_path) as engine:
        engine.register("system", whole)
        await engine.catch_up("system")
        stored = open_stored_projection(tmp_path, "system", load=lambda _: whole)
        for ask in (
            lambda: engine.query("system", "k"),
            lambda: list(engine.scan("system")),
            lambda: stored.get("k"),
        ):
            with pytest.raises(ProjectionError) as raised:
                ask()
            assert raised.value.message == (
                "The key 'k' of the projection system has parts in several topics "
                "(noesium.events.demo, noesium.events.shop)."
            )
            assert raised.value.hint == (
                "Declare `merge` in numbers, shop, or name one topic alone in `topics`: a key's parts lie by "
                "topic and partition."
            )


class One(Numbers):
    name = "one"

    def key(self, event: EventEnvelope) -> str | None:
        return "one"


class LocalOne(One):
    name = "local-one"
    local_keys = True


class WithoutKey(Numbers):
    name = "without-key"
    key = BaseProjection.key


async def test_an_attached_projection_without_merge_stops_at_a_key_that_may_have_parts_elsewhere(
    log: EventLog, tmp_path: Path
) -> None:
    await log.append([counted(n, f"k{n}") for n in range(20)])
    for projection, sort in ((One(), "one"), (compose("whole", one=One(), shop=Numbers()), "whole")):
        async with AttachedProjection(log, projection, tmp_path) as attached:
            with pytest.raises(ProjectionError, match=rf"of the projection {sort}|different keys"):
                await asyncio.wait_for(attached.wait(), PATIENCE_S)
    with pytest.raises(ProjectionError, match="without-key has a state per partition"):
        await AttachedProjection(log, WithoutKey(), tmp_path).start()


async def test_a_key_of_several_partitions_of_one_topic_is_told_to_follow_the_partition_key(
    log: EventLog, tmp_path: Path
) -> None:
    await log.append([counted(n, f"k{n}") for n in range(20)])
    attached = AttachedProjection(log, LocalOne(), tmp_path)
    async with attached:
        await attached.wait_until_caught_up()
        with pytest.raises(ProjectionError, match=r"The key 'one' .* in several partitions"):
            await attached.query("one")
        with pytest.raises(ProjectionError, match=r"The key 'one' .* in several partitions") as told:
            list(attached.scan())
    assert told.value.hint == "Declare `merge`, or let `key` return the event's partition key."


async def test_a_whole_knows_the_events_of_its_parts_and_what_they_read() -> None:
    class Reads(Numbers):
        events = (Counted,)
        event_versions: ClassVar[dict[str, str]] = {"demo.counted": "1"}

    class Differs(Numbers):
        events = (Counted, Sold)
        event_versions: ClassVar[dict[str, str]] = {"demo.counted": "2"}

    whole = compose("s", a=Reads(), b=Numbers())
    assert (whole.events, whole.event_versions) == ((Counted,), {"demo.counted": "1"})
    with pytest.raises(ProjectionError, match=r"different versions of demo\.counted"):
        compose("s", a=Reads(), b=Differs())


async def test_parts_that_say_different_keys_for_an_event_stop_it(log: EventLog) -> None:
    class Other(Numbers):
        def key(self, event: EventEnvelope) -> str | None:
            return "other"

    with ProjectionEngine(log) as engine:
        engine.register("s", compose("s", a=Numbers(), b=Other()))
        await log.append([counted(1, "k")])
        with pytest.raises(ProjectionError, match=r"different keys for demo.counted .*: k, other"):
            await engine.catch_up("s")
