"""Graphs over `LogCheckpointer`: interrupts, time travel, subgraphs, threads and loops, reopening."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from noesium_stream.errors import ConfigError, LogClosedError, LogUnavailableError, TopicConfigError
from noesium_stream.kernel import LogCheckpointer
from noesium_stream.log import open_log
from noesium_stream.log.topics import TopicKind, TopicSpec
from tests.support.checkpoints import Talk, asking, config, put, talking, thread, values_at


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogCheckpointer]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/threads.db"
    with LogCheckpointer(open_log(url)) as made:
        yield made


def test_a_graph_that_asks_goes_on_where_it_stopped(saver: LogCheckpointer) -> None:
    graph = asking(saver)
    asked = graph.invoke({"messages": [], "turns": 0}, thread())
    assert asked["__interrupt__"][0].value == "go on?"
    assert graph.get_state(thread()).next == ("ask",)
    done = graph.invoke(Command(resume="yes"), thread())
    assert done == {"messages": ["worked", "yes"], "turns": 1}
    assert graph.get_state(thread()).next == ()


async def test_the_same_asynchronously(saver: LogCheckpointer) -> None:
    graph = asking(saver)
    asked = await graph.ainvoke({"messages": [], "turns": 0}, thread())
    assert asked["__interrupt__"][0].value == "go on?"
    done = await graph.ainvoke(Command(resume="yes"), thread())
    assert done == {"messages": ["worked", "yes"], "turns": 1}
    assert [state.next async for state in graph.aget_state_history(thread())] == [
        (),
        ("ask",),
        ("work",),
        ("__start__",),
    ]


def test_a_thread_goes_on_in_a_checkpointer_opened_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/threads.db"
    with LogCheckpointer(open_log(url)) as first:
        asking(first).invoke({"messages": [], "turns": 0}, thread())
        told = list(first.list(None))
    with LogCheckpointer.from_url(url) as second:
        assert list(second.list(None)) == told
        assert asking(second).invoke(Command(resume=1), thread())["messages"] == ["worked", 1]


def test_two_checkpointers_on_one_file_see_each_others_threads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/threads.db"
    with LogCheckpointer(open_log(url)) as one, LogCheckpointer(open_log(url)) as other:
        assert other.get_tuple(config()) is None
        asking(one).invoke({"messages": [], "turns": 0}, thread())
        assert asking(other).invoke(Command(resume="b"), thread())["messages"] == ["worked", "b"]
        assert one.get_tuple(config()) == other.get_tuple(config())
        one.delete_thread("t")
        assert other.get_tuple(config()) is None
        assert list(other.list(None)) == []


def test_writers_at_the_same_time_leave_every_checkpointer_with_the_same_threads(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/threads.db?synchronous=NORMAL"
    errors: list[BaseException] = []

    def work(saver: LogCheckpointer, name: str) -> None:
        try:
            for turn in range(5):
                talking(saver, 5 * turn + 5).invoke({"messages": [], "turns": 5 * turn}, thread(name))
                saver.copy_thread(name, f"copy of {name}")
                saver.delete_thread("shared") if turn % 2 else put(saver, config("shared"), a=turn)
        except BaseException as error:
            errors.append(error)

    savers = [LogCheckpointer(open_log(url)) for _ in range(3)]
    workers = [threading.Thread(target=work, args=(saver, str(n))) for n, saver in enumerate(savers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    told = [list(saver.list(None)) for saver in savers]
    with LogCheckpointer(open_log(url)) as late:
        told.append(list(late.list(None)))
    assert told[0] == told[1] == told[2] == told[3]
    for n in range(3):
        latest = values_at(savers[0], config(str(n)))
        assert latest is not None
        assert [message["content"][:8] for message in latest["messages"]] == [f"{m:08d}" for m in range(25)]
    for saver in savers:
        saver.close()


async def test_synchronous_calls_work_beside_a_running_loop(saver: LogCheckpointer) -> None:
    graph = talking(saver, 3)
    on_the_loop = graph.invoke({"messages": [], "turns": 0}, thread("a"))
    beside = await asyncio.to_thread(graph.invoke, {"messages": [], "turns": 0}, thread("b"))
    awaited = await graph.ainvoke({"messages": [], "turns": 0}, thread("c"))
    assert on_the_loop == beside == awaited
    assert {found.config["configurable"]["thread_id"] async for found in saver.alist(None)} == {"a", "b", "c"}


async def test_an_open_log_serves_its_loop_and_other_threads_and_stays_open() -> None:
    log = await open_log("memory://")
    saver = LogCheckpointer(log)
    graph = talking(saver, 3)
    awaited = await graph.ainvoke({"messages": [], "turns": 0}, thread("a"))
    beside = await asyncio.to_thread(graph.invoke, {"messages": [], "turns": 0}, thread("b"))
    other_loop = await asyncio.to_thread(
        lambda: asyncio.run(graph.ainvoke({"messages": [], "turns": 0}, thread("c")))  # type: ignore[arg-type]
    )
    assert awaited == beside == other_loop
    with pytest.raises(ConfigError, match="would wait for the event loop"):
        saver.get_tuple(config("a"))
    await saver.aclose()
    assert (await log.topics())[0].name == "noesium.events.checkpoint"
    await log.close()


def test_older_states_are_read_changed_and_continued_from(saver: LogCheckpointer) -> None:
    graph = talking(saver, 4, size=10)
    graph.invoke({"messages": [], "turns": 0}, thread())
    history = list(graph.get_state_history(thread()))
    assert [len(state.values["messages"]) for state in history] == [4, 3, 2, 1, 0, 0]
    assert [state.metadata["step"] for state in history if state.metadata] == [4, 3, 2, 1, 0, -1]
    fork = graph.update_state(history[2].config, {"messages": ["forked"], "turns": 3})
    done = graph.invoke(None, fork)
    assert [str(message)[:6] for message in done["messages"][2:]] == ["forked", "{'role"]
    # What was there is as it was.
    assert list(graph.get_state_history(thread()))[-6:] == history
    replayed = graph.invoke(None, history[1].config)
    assert len(replayed["messages"]) == 4


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_subgraphs_keep_their_own_namespaces(saver: LogCheckpointer, asynchronous: bool) -> None:
    def inner(state: Talk) -> dict[str, Any]:
        return {"messages": [interrupt("inner?")], "turns": 1}

    child = StateGraph(Talk)
    child.add_node("inner", inner)
    child.add_edge(START, "inner")
    builder = StateGraph(Talk)
    builder.add_node("child", child.compile())
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=saver)
    if asynchronous:
        await graph.ainvoke({"messages": ["hello"], "turns": 0}, thread())
        state = await graph.aget_state(thread(), subgraphs=True)
        done = await graph.ainvoke(Command(resume="inside"), thread())
    else:
        graph.invoke({"messages": ["hello"], "turns": 0}, thread())
        state = graph.get_state(thread(), subgraphs=True)
        done = graph.invoke(Command(resume="inside"), thread())
    assert state.tasks[0].state.next == ("inner",)  # type: ignore[union-attr]
    assert done["messages"] == ["hello", "hello", "inside"]
    namespaces = {found.config["configurable"]["checkpoint_ns"] for found in saver.list(thread())}
    assert "" in namespaces
    assert [name for name in namespaces if name.startswith("child:")]


def test_what_is_handed_out_belongs_to_whoever_asked(saver: LogCheckpointer) -> None:
    given = {"names": ["a"]}
    at = put(saver, config(), state=given)
    saver.put_writes(at, [("state", given)], "task")
    given["names"].append("changed after it was saved")
    for _ in range(2):
        found = saver.get_tuple(at)
        assert found is not None
        assert found.pending_writes is not None
        assert found.checkpoint["channel_values"] == {"state": {"names": ["a"]}}
        assert found.pending_writes == [("task", "state", {"names": ["a"]})]
        assert found.checkpoint["versions_seen"] == {}
        found.checkpoint["channel_values"]["state"]["names"].append("changed by a reader")
        found.checkpoint["versions_seen"]["node"] = {"state": 1}
        found.pending_writes[0][2]["names"].clear()
        found.metadata["source"] = "fork"


def test_versions_are_whole_numbers() -> None:
    with LogCheckpointer(open_log("memory://")) as saver:
        talking(saver, 2).invoke({"messages": [], "turns": 0}, thread())
        found = saver.get_tuple(config())
        assert found is not None
        assert {type(version) for version in found.checkpoint["channel_versions"].values()} == {int}


def test_a_closed_checkpointer_says_so(tmp_path: Path) -> None:
    unused = LogCheckpointer(open_log("memory://"))
    unused.close()
    used = LogCheckpointer(open_log(f"sqlite:///{tmp_path}/threads.db"))
    put(used, config(), a=1)
    used.close()
    used.close()
    for saver in (unused, used):
        with pytest.raises(LogClosedError, match="The checkpointer is closed"):
            saver.get_tuple(config())


async def test_a_closed_log_says_so() -> None:
    log = await open_log("memory://")
    saver = LogCheckpointer(log)
    assert await saver.aget_tuple(config()) is None
    await log.close()
    with pytest.raises(LogClosedError, match=r"memory:// is closed"):
        await saver.aget_tuple(config())


def test_an_open_log_outside_of_its_loop_is_refused() -> None:
    log = asyncio.run(open_log("memory://"))
    with pytest.raises(ConfigError, match="none is running here"):
        LogCheckpointer(log)


async def test_a_task_that_opens_is_refused() -> None:
    opening = asyncio.ensure_future(open_log("memory://"))
    with pytest.raises(ConfigError, match="belongs to its event loop"):
        LogCheckpointer(opening)
    await (await opening).close()


def test_a_log_that_is_no_embedded_one_is_refused() -> None:
    class Elsewhere:
        url = "kafka://broker:9092"

        async def close(self) -> None:
            pass

    async def opened() -> Any:
        return Elsewhere()

    with (
        LogCheckpointer(opened()) as saver,
        pytest.raises(ConfigError, match=r"not on kafka://broker:9092") as refused,
    ):
        saver.get_tuple(config())
    assert "run the graph as an agent" in str(refused.value)


def test_a_log_that_cannot_be_opened_fails_every_call(tmp_path: Path) -> None:
    (tmp_path / "threads.db").mkdir()
    with LogCheckpointer(open_log(f"sqlite:///{tmp_path}/threads.db")) as saver:
        for _ in range(2):
            with pytest.raises(LogUnavailableError):
                saver.get_tuple(config())


async def test_a_topic_with_several_partitions_is_refused() -> None:
    log = await open_log("memory://")
    await log.ensure_topics([TopicSpec("noesium.events.checkpoint", TopicKind.EVENTS, 2, None)])
    with pytest.raises(TopicConfigError, match="2 partitions"):
        await LogCheckpointer(log).aget_tuple(config())
    await log.close()


def test_a_config_without_a_thread_is_refused(saver: LogCheckpointer) -> None:
    with pytest.raises(ConfigError, match="names no thread"):
        saver.get_tuple({"configurable": {}})


def test_an_unknown_way_to_prune_is_refused(saver: LogCheckpointer) -> None:
    with pytest.raises(ConfigError, match="'keep_all' is no way to prune"):
        saver.prune(["t"], strategy="keep_all")


def test_threads_names_and_filters_are_listed_as_by_langgraphs_own(saver: LogCheckpointer) -> None:
    own = InMemorySaver()
    for each in (saver, own):
        each.serde = own.serde
        for name in ("a", "b"):
            talking(each, 3, size=5).invoke({"messages": [], "turns": 0}, thread(name))

    def told(each: Any, *args: Any, **kwargs: Any) -> list[Any]:
        found = list(each.list(*args, **kwargs))
        return sorted((f.config["configurable"]["thread_id"], f.metadata["step"]) for f in found)

    def sixth(each: Any) -> Any:
        return list(each.list(thread("a")))[2].config

    assert told(saver, None) == told(own, None)
    assert told(saver, thread("a"), filter={"source": "loop"}) == told(
        own, thread("a"), filter={"source": "loop"}
    )
    assert told(saver, None, filter={"step": 1, "source": "loop"}) == [("a", 1), ("b", 1)]
    for limit in (0, 1, 100):
        assert told(saver, thread("b"), limit=limit) == told(own, thread("b"), limit=limit)
    assert told(saver, thread("a"), before=sixth(saver)) == told(own, thread("a"), before=sixth(own))
    assert told(saver, sixth(saver)) == told(own, sixth(own)) == [("a", 1)]
    assert told(saver, config("a", namespace="other")) == []
