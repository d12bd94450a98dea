"""What `LogCheckpointer` puts on the log, and what deletions, copies and prunings leave."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.constants import END, START
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages

from noesium_stream.errors import CheckpointError, RecordTooLargeError, StateError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import LogCheckpointer
from noesium_stream.kernel.checkpointer import record as checkpoint_record
from noesium_stream.log import open_log
from tests.support.checkpoints import checkpoint, config, put, talking, thread, values_at

TOPIC = "noesium.events.checkpoint"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/threads.db"


@pytest.fixture
def saver(url: str) -> Iterator[LogCheckpointer]:
    with LogCheckpointer(open_log(url)) as made:
        yield made


def on_the_log(url: str) -> list[EventEnvelope]:
    """All records of the topic."""

    async def read() -> list[EventEnvelope]:
        log = await open_log(url)
        found = [record.envelope async for record in log.read(TOPIC, {}, until=await log.end(TOPIC))]
        await log.close()
        return found

    return asyncio.run(read())


def bytes_of(url: str) -> int:
    """Bytes of the topic."""

    async def read() -> int:
        log = await open_log(url)
        [topic] = await log.topics()
        await log.close()
        assert topic.bytes is not None
        return topic.bytes

    return asyncio.run(read())


def converse(url: str, turns: int) -> int:
    """Bytes on the log after a conversation of so many turns of 500 bytes."""
    with LogCheckpointer(open_log(url)) as saver:
        talking(saver, turns).invoke({"messages": [], "turns": 0}, thread(), durability="sync")
        found = values_at(saver, config())
        assert found is not None
        assert len(found["messages"]) == turns
    return bytes_of(url)


@pytest.mark.parametrize("turns", [50, 200, 330])
def test_twice_the_conversation_is_twice_the_bytes(turns: int, tmp_path: Path) -> None:
    once = converse(f"sqlite:///{tmp_path}/once.db?synchronous=NORMAL", turns)
    twice = converse(f"sqlite:///{tmp_path}/twice.db?synchronous=NORMAL", 2 * turns)
    assert twice / once <= 2.1
    assert once / turns < 3_500


def test_two_thousand_turns_and_four_thousand() -> None:
    """As above, of puts alone: the graph itself would take longer than all of this."""
    sizes = {}
    with LogCheckpointer(open_log("memory://big")) as saver:
        made = checkpoint(messages=[])
        at = saver.put(config(), made, {}, made["channel_versions"])
        messages: list[str] = []
        for turn in range(1, 4001):
            messages.append(f"{turn:0500d}")
            made = checkpoint(messages=messages)
            at = saver.put(at, made, {}, made["channel_versions"])
            if turn in (2000, 4000):
                sizes[turn] = bytes_of("memory://big")
        assert values_at(saver, at) == {"messages": messages}
    assert sizes[4000] / sizes[2000] <= 2.1


def test_messages_of_langchain_are_appended_too(url: str, saver: LogCheckpointer) -> None:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    def say(state: State) -> dict[str, Any]:
        return {"messages": [HumanMessage("x" * 100, id=str(len(state["messages"])))]}

    builder = StateGraph(State)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda state: "say" if len(state["messages"]) < 40 else END)
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": []}, thread())
    sizes = [len(json.dumps(event.payload)) for event in on_the_log(url)]
    # All but the few that are whole again.
    assert sorted(sizes)[-8] < 2_000
    assert len(graph.get_state(thread()).values["messages"]) == 40


def test_the_log_reads_as_a_history_of_changes(url: str, saver: LogCheckpointer) -> None:
    big = "x" * 1000
    at = put(saver, config(), names=["a"], big=big)
    made = checkpoint(names=["a", "b"], big=big)
    made["channel_versions"]["big"] -= 1
    saver.put(at, made, {"source": "loop"}, {"names": made["channel_versions"]["names"]})
    first, second = (event.payload for event in on_the_log(url))
    assert first["base"] is None
    assert first["body"]["checkpoint"]["channel_values"] == {"big": big, "names": ["a"]}
    assert second["base"] == on_the_log(url)[0].event_id
    assert second["body"]["checkpoint"]["keys"]["channel_values"] == {
        "keys": {"names": {"keep": 1, "tail": ["b"]}}
    }
    assert second["parent_id"] == first["checkpoint_id"]
    assert [event.partition_key for event in on_the_log(url)] == ["t", "t"]


def test_a_chain_that_outweighs_its_base_gets_a_new_one(url: str, saver: LogCheckpointer) -> None:
    at = put(saver, config(), text="")
    for turn in range(400):
        at = put(saver, at, text=f"{turn}" * 5)
    bases = [n for n, event in enumerate(on_the_log(url)) if event.payload["base"] is None]
    assert 2 <= len(bases) <= 100
    assert max(after - before for before, after in itertools.pairwise(bases)) < 150


def test_a_write_that_is_repeated_stays_as_it_was_and_a_special_one_is_replaced(
    saver: LogCheckpointer,
) -> None:
    own = InMemorySaver()
    told = []
    for each in (saver, own):
        at = put(each, config(), a=1)
        each.put_writes(at, [("a", "first"), ("__interrupt__", "one")], "task", "path")
        each.put_writes(at, [("a", "second"), ("__interrupt__", "two"), ("b", "new")], "task", "path")
        each.put_writes(at, [("a", "before")], "ultimate", "a path before")
        found = each.get_tuple(at)
        assert found is not None
        told.append(found.pending_writes)
    assert told[0] == told[1]
    assert ("task", "a", "first") in told[0]
    assert ("task", "__interrupt__", "two") in told[0]


def test_a_channel_is_the_parents_only_where_its_version_is(saver: LogCheckpointer) -> None:
    at = put(saver, config(), same="old", newer="old", unversioned="old", gone="old")
    parent = saver.get_tuple(at)
    assert parent is not None
    versions = parent.checkpoint["channel_versions"]
    made = checkpoint(same="ignored", newer="new", unversioned="new")
    made["channel_versions"] = {"same": versions["same"], "newer": 10**6}
    assert values_at(saver, saver.put(at, made, {}, {})) == {
        "same": "old",
        "newer": "new",
        "unversioned": "new",
    }
    made = checkpoint(same="new")
    made["channel_versions"] = {**versions, "gone": 10**6}
    after = saver.put(at, made, {}, {"same": 1, "gone": 10**6})
    assert values_at(saver, after) == {"same": "new", "newer": "old", "unversioned": "old"}


def test_writes_may_come_before_their_checkpoint(saver: LogCheckpointer) -> None:
    made = checkpoint(a=1)
    saver.put_writes(config("t", made["id"]), [("a", 2)], "task")
    assert saver.get_tuple(config("t", made["id"])) is None
    saver.put(config(), made, {}, made["channel_versions"])
    found = saver.get_tuple(config())
    assert found is not None
    assert found.pending_writes == [("task", "a", 2)]


@pytest.mark.parametrize("home", ["own", "open", "open and interleaved"])
async def test_writes_and_checkpoints_lie_on_the_log_in_the_order_they_were_asked_for(
    home: str, url: str
) -> None:
    log = await open_log("memory://?seed=3" if home == "open and interleaved" else url)
    saver = LogCheckpointer(open_log(url) if home == "own" else log)
    at, asked, places = config(), [], []
    for number in range(20):
        made = checkpoint(names=list(range(number)))
        asked.append(asyncio.ensure_future(saver.aput(at, made, {}, made["channel_versions"])))
        at = config("t", made["id"])
        places.append(at)
        asked.append(asyncio.ensure_future(saver.aput_writes(at, [("names", number)], "task")))
    await asyncio.gather(*asked)
    lying = [
        (record.envelope.payload["checkpoint_id"], record.envelope.event_type)
        async for record in log.read(TOPIC, {}, until=await log.end(TOPIC))
    ]
    kinds = ("checkpoint.saved", "checkpoint.writes.saved")
    assert lying == [(place["configurable"]["checkpoint_id"], kind) for place in places for kind in kinds]
    for number, place in enumerate(places):
        found = await saver.aget_tuple(place)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"names": list(range(number))}
    await saver.aclose()
    await log.close()


def test_large_values_take_several_records_and_come_back(url: str, saver: LogCheckpointer) -> None:
    huge = 'é"\\\x00 ' * 600_000
    at = put(saver, config(), a=1)
    saver.put_writes(at, [("a", huge)], "task")
    at = put(saver, at, a=huge, b=[1])
    at = put(saver, at, a=huge + "!", b=[1, 2])
    with LogCheckpointer(open_log(url)) as other:
        for each in (saver, other):
            assert values_at(each, at) == {"a": huge + "!", "b": [1, 2]}
            assert values_at(each, config("t", at["configurable"]["checkpoint_id"])) is not None
            [write] = [w for found in each.list(config()) for w in found.pending_writes or ()]
            assert write == ("task", "a", huge)
    assert "checkpoint.part.saved" in {event.event_type for event in on_the_log(url)}


def test_what_is_too_large_in_all_is_refused_and_the_log_is_unharmed(
    saver: LogCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_record, "MAX_BODY_BYTES", 2_000_000)
    at = put(saver, config(), a=1)
    with pytest.raises(RecordTooLargeError, match="the checkpointer takes 2,000,000") as refused:
        put(saver, at, a="x" * 3_000_000)
    assert "Keep large content elsewhere" in str(refused.value)
    with pytest.raises(RecordTooLargeError):
        saver.put_writes(at, [("a", "x" * 3_000_000)], "task")
    assert [found.checkpoint["channel_values"] for found in saver.list(config())] == [{"a": 1}]
    assert values_at(saver, put(saver, at, a=2)) == {"a": 2}


def test_a_value_that_cannot_be_written_is_named_and_the_log_is_unharmed(saver: LogCheckpointer) -> None:
    at = put(saver, config(), a=1)
    with pytest.raises(StateError, match=r"channel_values\.door cannot be saved"):
        put(saver, at, door=open)
    with pytest.raises(StateError, match=r"writes\.door cannot be saved"):
        saver.put_writes(at, [("door", open)], "task")
    assert values_at(saver, config()) == {"a": 1}


def chain(saver: LogCheckpointer, runs: str) -> list[Any]:
    """A checkpoint for each letter, its run; the list grows by one each time."""
    at, made, names = config(), [], [f"{'long' * 50}"]
    for number, run in enumerate(runs):
        names = [*names, number]
        at = put(saver, at, run_id=run, names=names)
        saver.put_writes(at, [("names", number)], "task")
        made.append(at)
    return made


def test_what_rests_on_a_deleted_checkpoint_is_still_whole(url: str, saver: LogCheckpointer) -> None:
    places = chain(saver, "abababab")
    expected = [values_at(saver, at) for at in places]
    saver.delete_for_runs(["a"])
    with LogCheckpointer(open_log(url)) as other:
        for each in (saver, other):
            told = [values_at(each, at) for at in places]
            assert told == [None if n % 2 == 0 else expected[n] for n in range(8)]
            assert len(list(each.list(config()))) == 4
    after = put(saver, places[-1], run_id="c", names=["next"])
    assert values_at(saver, after) == {"names": ["next"]}


def test_pruning_keeps_the_latest_with_its_writes(url: str, saver: LogCheckpointer) -> None:
    places = chain(saver, "aaaa")
    expected = values_at(saver, places[-1])
    saver.prune(["t"])
    with LogCheckpointer(open_log(url)) as other:
        for each in (saver, other):
            [found] = each.list(None)
            assert found.checkpoint["channel_values"] == expected
            assert found.pending_writes == [("task", "names", 3)]
    saver.prune(["t"], strategy="delete")
    assert list(saver.list(None)) == []


def test_a_copy_and_its_source_go_their_own_ways(url: str, saver: LogCheckpointer) -> None:
    places = chain(saver, "aaaa")
    saver.copy_thread("t", "u")
    saver.copy_thread("t", "t")
    source = [(f.checkpoint, f.metadata, f.pending_writes) for f in saver.list(config("t"))]
    copied = [(f.checkpoint, f.metadata, f.pending_writes) for f in saver.list(config("u"))]
    assert source == copied
    saver.delete_thread("t")
    grown = put(saver, config("u", places[-1]["configurable"]["checkpoint_id"]), names=["own"])
    with LogCheckpointer(open_log(url)) as other:
        for each in (saver, other):
            assert list(each.list(config("t"))) == []
            assert [(f.checkpoint, f.metadata, f.pending_writes) for f in each.list(config("u"))][
                1:
            ] == copied
            assert values_at(each, grown) == {"names": ["own"]}


def test_a_child_of_a_checkpoint_that_another_one_has_just_deleted_stands_on_its_own(url: str) -> None:
    with LogCheckpointer(open_log(url)) as one, LogCheckpointer(open_log(url)) as other:
        first = put(one, config(), names=["a"] * 100, kept="k")
        other.delete_thread("t")
        made = checkpoint(names=["a"] * 101, kept="k")
        made["channel_versions"]["kept"] = 10**9
        after = one.put(first, made, {}, {"names": made["channel_versions"]["names"]})
        for each in (one, other):
            assert values_at(each, after) == {"names": ["a"] * 101, "kept": "k"}
            assert len(list(each.list(None))) == 1


def test_a_checkpoint_that_is_saved_again_changes_none_that_rest_on_the_old_one(url: str) -> None:
    with LogCheckpointer(open_log(url)) as saver:
        made = checkpoint(names=["a"] * 100)
        first = saver.put(config(), made, {}, made["channel_versions"])
        child = put(saver, first, names=["a"] * 101)
        made["channel_values"] = {"names": []}
        saver.put(config(), made, {}, made["channel_versions"])
        with LogCheckpointer(open_log(url)) as other:
            for each in (saver, other):
                assert values_at(each, first) == {"names": []}
                assert values_at(each, child) == {"names": ["a"] * 101}


def extend(old: list[Any], new: Any) -> list[Any]:
    """The reducer of a delta channel: takes several writes at once."""
    return [*old, *(item for items in new for item in items)]


class Listed(TypedDict):
    """A list whose checkpoints hold nothing but a snapshot now and then."""

    items: Annotated[list[Any], DeltaChannel(extend, list, snapshot_frequency=4)]


@pytest.mark.parametrize("loss", ["prune", "runs", "copy"])
def test_delta_channels_survive_prunings_deletions_and_copies(url: str, loss: str) -> None:
    def add(state: Listed) -> dict[str, Any]:
        return {"items": [len(state["items"])]}

    builder = StateGraph(Listed)
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    builder.add_conditional_edges("add", lambda state: "add" if len(state["items"]) % 6 else END)
    with LogCheckpointer(open_log(url)) as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke({"items": []}, {**thread(), "metadata": {"run_id": "first"}})
        name = "t"
        if loss == "prune":
            saver.prune(["t"])
        elif loss == "copy":
            saver.copy_thread("t", "u")
            saver.delete_thread("t")
            name = "u"
        else:
            steps = sorted(f.metadata["step"] for f in saver.list(thread()))
            assert steps == list(range(-1, 7))
            graph.invoke({"items": ["again"]}, {**thread(), "metadata": {"run_id": "second"}})
            saver.delete_for_runs(["first"])
        found = saver.get_tuple(thread(name))
        assert found is not None
        # The latest one has no value of its own: it is told by writes to checkpoints that are gone.
        assert "items" not in found.checkpoint["channel_values"]
        items = graph.get_state(thread(name)).values["items"]
        assert items[:6] == list(range(6))
    with LogCheckpointer(open_log(url)) as other:
        graph = builder.compile(checkpointer=other)
        assert graph.get_state(thread(name)).values["items"] == items
        more = graph.invoke({"items": ["more"]}, thread(name))
        assert more["items"][: len(items) + 1] == [*items, "more"]


class Reversing(CipherProtocol):
    """No secret, and never the same text twice."""

    def __init__(self) -> None:
        self.count = 0

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        self.count += 1
        return "reversed", self.count.to_bytes(4, "big") + plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[4:][::-1]


def test_an_encrypting_serializer_hides_every_value_and_deltas_stay_small(url: str) -> None:
    serde = EncryptedSerializer(Reversing(), JsonPlusSerializer())
    names: list[Any] = ["secret" * 100, HumanMessage("secret")]
    with LogCheckpointer(open_log(url), serde=serde) as saver:
        at = put(saver, config(), names=names)
        saver.put_writes(at, [("names", ["secret"])], "task")
        for number in range(10):
            names = [*names, HumanMessage(f"secret {number}", id=str(number))]
            at = put(saver, at, names=names)
    events = [json.dumps(event.payload) for event in on_the_log(url)]
    assert not [text for text in events if "secret" in text]
    assert len(events[-1]) < len(events[0])
    with LogCheckpointer(open_log(url), serde=serde) as saver:
        assert values_at(saver, at) == {"names": names}
    with LogCheckpointer(open_log(url)) as blind, pytest.raises(CheckpointError, match="cannot be read"):
        blind.get_tuple(config())


def test_events_of_others_in_the_topic_are_passed_over(url: str, saver: LogCheckpointer) -> None:
    put(saver, config(), a=1)
    [event] = on_the_log(url)

    async def say() -> None:
        log = await open_log(url)
        log.catalogue.register_schema("checkpoint.passed", "1.0.0", {"type": "object"})
        await log.append([event.replace(event_type="checkpoint.passed", payload={"who": "a traveller"})])
        await log.close()

    asyncio.run(say())
    put(saver, config(), a=2)
    with LogCheckpointer(open_log(url)) as other:
        assert len(list(other.list(None))) == len(list(saver.list(None))) == 2
